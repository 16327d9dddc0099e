"""What is known of an agent's steps beside the document."""

import time

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from scripted_agents import add, agent
from scripted_models import calls, says
from versions import needs

from kp_middleware import current_trace

pytestmark = needs("create_agent")


def facts(notebook, *names):
    """Of each step its kind and these facts."""
    steps = zip(notebook.trace.steps, notebook.run.facts, strict=True)
    return [(step.type, *(getattr(fact, name) for name in names)) for step, fact in steps]


def test_parallel_calls_of_one_tool_are_told_apart_by_their_ids(config, notebook):
    both = AIMessage(
        "",
        tool_calls=[{"name": "add", "args": {"a": n, "b": 1}, "id": f"call {n}"} for n in (1, 2)],
    )

    agent(both, says("fin"), tools=[add]).invoke({"messages": "go"}, config)

    ids = [call_id for kind, call_id in facts(notebook, "call_id") if kind != "thought"]
    assert ids[0] != ids[1]
    assert sorted(ids[:2]) == sorted(ids[2:])


@needs("agents that say their name")
def test_two_agents_of_one_name_are_told_apart_by_the_calls_they_run_in(config, notebook):
    @tool
    def ask(question: str) -> str:
        """Let another agent answer."""
        answer = agent(says(f"{question}!"), name="helper").invoke({"messages": question})
        return answer["messages"][-1].text

    asked = calls(ask={"question": "a"}), calls(ask={"question": "b"})
    agent(*asked, says("fin"), tools=[ask], name="outer").invoke({"messages": "go"}, config)

    told = facts(notebook, "agent", "call_id", "parent")
    called = [call_id for kind, _, call_id, _ in told if kind == "tool_call"]
    inside = [(name, parent) for _, name, _, parent in told if parent is not None]
    assert inside == [("helper", called[0]), ("helper", called[1])]


def test_what_a_tool_notes_itself_is_inside_its_call(config, notebook):
    @tool
    def look(what: str) -> str:
        """Look."""
        current_trace().thought("looking")
        return what

    agent(calls(look={"what": "cats"}), says("fin"), tools=[look]).invoke(
        {"messages": "go"}, config
    )

    (_, call_id, _), (_, _, parent), *_ = facts(notebook, "call_id", "parent")
    assert parent == call_id is not None


def test_each_model_call_tells_its_model_tokens_and_time_once(config, notebook):
    used = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    turn = calls("I add.", add={"a": 1, "b": 2})
    turn.usage_metadata = used
    turn.response_metadata = {"model_name": "m-1"}
    answer = AIMessage("3", usage_metadata=used, response_metadata={"model_name": "m-2"})

    agent(turn, answer, tools=[add]).invoke({"messages": "go"}, config)

    told = facts(notebook, "model", "input_tokens", "output_tokens")
    assert told == [
        ("thought", "m-1", 9, 4),
        ("tool_call", None, None, None),
        ("observation", None, None, None),
        ("thought", "m-2", 9, 4),
    ]
    took = [fact.model_latency_ms for fact in notebook.run.facts if fact.model]
    assert all(0 < ms < 10_000 for ms in took)


def test_steps_begin_in_their_order_and_a_result_when_its_tool_began(config, notebook):
    @tool
    def wait(seconds: float) -> str:
        """Wait."""
        time.sleep(seconds)
        return "done"

    before = time.time()
    agent(calls("I wait.", wait={"seconds": 0.1}), says("fin"), tools=[wait]).invoke(
        {"messages": "go"}, config
    )

    began = [fact.started_at_s for fact in notebook.run.facts]
    assert before - 0.01 <= began[0] <= began[2] <= time.time() - 0.1
    assert began[3] - began[2] >= 0.099
