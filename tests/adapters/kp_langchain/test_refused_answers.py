"""An answer that a graph does not take leaves it waiting, and its run as well."""

import pytest
from langchain_core.tools import tool
from langchain_notebook import stored_run, stored_runs, story
from pydantic import BaseModel
from scripted_agents import GO, add, graph_of
from scripted_models import answer_of, calls
from versions import Command, HumanInTheLoopMiddleware, InMemorySaver, interrupt, needs
from waiting_agents import on_thread, risking

pytestmark = needs("answers that are refused")

YES = {"ok": True}


class Consent(BaseModel):
    ok: bool


@tool
def risk(amount: int) -> str:
    """Ask a human first."""
    return f"risked {amount}: {interrupt('may I?', response_schema=Consent)}"


@tool
def risk_in_words(amount: int) -> str:
    """Ask a human first, and complain."""
    try:
        return f"risked {amount}: {interrupt('may I?', response_schema=Consent)}"
    except ValueError as error:
        raise RuntimeError("say yes or no") from error


def using(tool):
    return lambda: risking(calls(**{tool.name: {"amount": 5}}), answer_of("done"), tools=[tool])


def reviewed():
    """An agent whose every sum a human allows."""
    each = HumanInTheLoopMiddleware(
        interrupt_on={"add": {"allowed_decisions": ["approve"]}}, interrupt_mode="per_call"
    )
    turns = calls(add={"a": 1, "b": 2}), answer_of("done")
    return risking(*turns, tools=[add], middleware=[each])


def ask(_):
    return {"messages": [("ai", f"{interrupt('may I?', response_schema=Consent)}")]}


@pytest.fixture
def config(kp):
    return on_thread(kp)


def refuse(graph, decision, config):
    with pytest.raises((ValueError, RuntimeError)):
        graph.invoke(Command(resume=decision), config)


def calls_in(run):
    return [line for line in story(run) if line.startswith("tool_call")]


@pytest.mark.parametrize(
    ("make", "taken"),
    [
        (using(risk), YES),
        (using(risk_in_words), YES),
        (reviewed, {"type": "approve"}),
        (lambda: graph_of({"ask": ask}, checkpointer=InMemorySaver()), YES),
    ],
    ids=["a tool", "a tool that says it otherwise", "a middleware", "a node"],
)
def test_a_run_waits_with_the_refused_answers_in_it_until_one_is_taken(kp, config, make, taken):
    graph = make()
    graph.invoke(GO, config)
    asked = stored_run(kp)

    refuse(graph, "perhaps", config)
    refused = stored_run(kp)
    refuse(graph, "never", config)
    graph.invoke(Command(resume=taken), config)

    ended = stored_run(kp)
    assert (refused.state, refused.error_type, refused.objective) == ("paused", None, "go")
    assert story(refused)[: len(asked.steps) + 1] == [*story(asked), "observation: perhaps"]
    assert (ended.state, ended.known_success, ended.error_type) == ("scored", None, None)
    assert story(ended)[: len(refused.steps)] == story(refused)
    assert calls_in(ended) == calls_in(refused)
    assert ended.recovery_count == 2


def test_a_question_that_was_answered_wrongly_is_still_found_by_its_id(kp, config):
    asked, another = using(risk)(), using(risk)()
    [question] = asked.invoke(GO, config)["__interrupt__"]
    refuse(asked, {question.id: "perhaps"}, config)
    another.invoke(GO, config)

    asked.invoke(Command(resume={question.id: YES}), config)

    first, second = stored_runs(kp)
    assert (first.state, second.state) == ("scored", "paused")
    assert story(first)[-2:] == ["observation risk: risked 5: ok=True", "thought: done"]


def test_a_captured_function_may_ask_again_itself(kp, config):
    graph = using(risk)()

    @kp.capture
    def answer(question):
        graph.invoke({"messages": question}, config)
        refuse(graph, "perhaps", config)
        return graph.invoke(Command(resume=YES), config)["messages"][-1].text

    answer("go")

    run = stored_run(kp)
    assert (run.state, run.result_summary) == ("scored", "done")
    assert story(run)[2] == "observation: perhaps"
    assert calls_in(run) == ["tool_call risk(amount=5)"]
