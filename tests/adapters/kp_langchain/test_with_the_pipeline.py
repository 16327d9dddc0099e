"""The handler and the real pipeline, together: what is stored, and how an agent's run ended."""

import pytest
from langchain_core.tools import tool
from langchain_notebook import story
from scripted_agents import agent
from scripted_models import answer_of, calls
from versions import InMemorySaver
from waiting_agents import on_thread

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from kp_middleware.outcomes import Judge, ToolResult, checks


def test_a_run_is_scored_and_stored(kp):
    adding = agent(calls(add={"a": 1, "b": 2}), answer_of("It is 3."), name="adder")

    adding.invoke({"messages": "1 + 2?"}, {"callbacks": [KPCallbackHandler(kp)]})

    run = kp.run("@last")
    assert (run.state, run.success, run.framework) == ("scored", True, "langchain")
    assert (run.objective, run.result_summary) == ("1 + 2?", "It is 3.")
    assert run.agent_name == "adder"
    assert story(run) == ["tool_call add(a=1, b=2)", "observation add: 3", "thought: It is 3."]


def test_where_recording_is_off_nothing_is_stored(db):
    with KnowledgePulse(db=db, embedder=None, enabled=False) as kp:
        agent(answer_of("Paris")).invoke({"messages": "go"}, {"callbacks": [KPCallbackHandler(kp)]})

    assert not db.exists()


@tool
def shell(command: str) -> str:
    """Run a command."""
    return f"$ {command}\n====== 1 failed, 3 passed in 1.33s ======"


@tool
def submit(answer: str) -> dict:
    """Submit the answer."""
    return {"ok": answer == "3"}


SUBMITTED = ToolResult("submit", lambda result: result["ok"])


@pytest.mark.parametrize(
    ("verdict", "turn", "is_right"),
    [
        (checks, calls(shell={"command": "pytest"}), False),
        (SUBMITTED, calls(submit={"answer": "3"}), True),
        (SUBMITTED, calls(submit={"answer": "4"}), False),
    ],
    ids=["tests", "right", "wrong"],
)
def test_how_a_run_ended_is_read_from_its_tools(kp, verdict, turn, is_right):
    config = {"callbacks": [KPCallbackHandler(kp, confidence=verdict)]}

    agent(turn, answer_of("Done."), tools=[shell, submit]).invoke({"messages": "1 + 2?"}, config)

    run = kp.run("@last")
    assert (run.success, run.success_source) == (is_right, "extracted")


def test_a_judge_is_asked_about_a_whole_conversation_when_it_has_ended(kp):
    asked = []

    def judge(trace):
        asked.append(sum(step.type == "thought" for step in trace.steps))
        return True

    config = on_thread(kp, confidence=Judge(judge), scope="thread")
    chat = agent(answer_of("Hello."), answer_of("3."), tools=[], checkpointer=InMemorySaver())
    chat.invoke({"messages": "Hi!"}, config)
    chat.invoke({"messages": "1 + 2?"}, config)
    kp.flush(20)
    assert asked == []

    kp.end_thread("T")
    kp.flush(20)

    run = kp.run("@last")
    assert (run.success, run.success_source, asked) == (True, "extracted", [2])
