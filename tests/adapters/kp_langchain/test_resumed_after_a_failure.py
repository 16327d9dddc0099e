"""A thread whose run has failed, and goes on where it was: what it is for is not forgotten."""

import json
from typing import TypedDict

import pytest
from langchain_notebook import stored_run, stored_runs, story
from scripted_agents import add, agent, graph_of
from scripted_models import FlakyModel, answer_of, calls
from versions import Command, InMemorySaver, create_agent, interrupt, needs
from waiting_agents import on_thread
from ways_to_run import ainvoke, astream, invoke, stream

ASKED = {"messages": "How much is 1 + 2?"}


def failing_once():
    turns = [calls(add={"a": 1, "b": 2}), answer_of("3")]
    model = FlakyModel(turns=turns, errors=["down"])
    return create_agent(model, [add], checkpointer=InMemorySaver(), name="adder")


def fail(run, graph, given, config):
    with pytest.raises(ConnectionError):
        run(graph, given, config)


@pytest.mark.parametrize("run", [invoke, ainvoke, stream, astream])
def test_a_run_that_goes_on_after_a_failure_has_its_objective(kp, run):
    graph, config = failing_once(), on_thread(kp)
    fail(run, graph, ASKED, config)

    run(graph, None, config)

    failed, went_on = stored_runs(kp)
    assert failed.known_success is False
    assert (went_on.objective, went_on.known_success) == ("How much is 1 + 2?", None)
    assert story(went_on) == ["tool_call add(a=1, b=2)", "observation add: 3", "thought: 3"]


def test_what_failed_before_anybody_recorded_is_heard_from_the_conversation(kp):
    graph = failing_once()
    fail(invoke, graph, ASKED, {"configurable": {"thread_id": "T"}})

    graph.invoke(None, on_thread(kp))

    assert stored_run(kp).objective == "How much is 1 + 2?"


class Report(TypedDict, total=False):
    request: dict
    report: str


def test_a_graph_with_keys_of_its_own_has_the_objective_of_the_run_that_failed(kp):
    model = FlakyModel(turns=[answer_of("on cats")], errors=["down"])
    write = {"write": lambda _: {"report": model.invoke("You are a writer.").text}}
    graph, config = graph_of(write, state=Report, checkpointer=InMemorySaver()), on_thread(kp)
    fail(invoke, graph, {"request": {"subject": "cats"}}, config)

    graph.invoke(None, config)

    assert json.loads(kp.run("@last").objective) == {"request": {"subject": "cats"}}


def test_a_thread_whose_id_is_not_written_hears_its_objective_from_the_conversation(kp):
    first, second = failing_once(), failing_once()
    its_thread = on_thread(kp, "ghp_" + "a1B2" * 9)
    fail(invoke, first, {"messages": "one?"}, its_thread)
    fail(invoke, second, {"messages": "two?"}, on_thread(kp, "ghp_" + "c3D4" * 9))

    first.invoke(None, its_thread)

    assert kp.run("@last").objective == "one?"


@needs("tool calls with ids")
def test_a_tool_that_is_called_after_a_pause_has_its_result(kp):
    inner = agent(calls(add={"a": 1, "b": 2}), answer_of("3"))
    nodes = {
        "ask": lambda _: {"request": interrupt("may I?")},
        "add": lambda _: {"report": inner.invoke(ASKED)["messages"][-1].text},
    }
    graph = graph_of(nodes, state=Report, in_turn=True, checkpointer=InMemorySaver())
    graph.invoke({"request": {"of": 1}}, on_thread(kp))

    graph.invoke(Command(resume="yes"), on_thread(kp))

    assert story(stored_run(kp)) == [
        "observation: may I?",
        "observation: yes",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: 3",
    ]
