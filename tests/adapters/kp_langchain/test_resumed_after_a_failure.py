"""A thread whose run has failed, and goes on where it was: what it is for is not forgotten."""

import json
from contextlib import closing
from typing import TypedDict

import pytest
from langchain_notebook import line_of_row
from scripted_agents import add, agent
from scripted_models import FlakyModel, calls, says
from versions import START, Command, InMemorySaver, StateGraph, create_agent, interrupt, needs
from ways_to_run import ainvoke, astream, invoke, stream

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.trace import run_as_json

ASKED = {"messages": "How much is 1 + 2?"}


@pytest.fixture
def kp(tmp_path):
    with KnowledgePulse(db=tmp_path / "kp.db", embedder=None, sync=True) as kp:
        yield kp


@pytest.fixture
def traces(kp):
    def read():
        with closing(connect(kp.settings.db, read_only=True)) as connection:
            history = History(connection)
            return [
                run_as_json(history.run(history.find(row.id))) for row in history.runs(limit=100)
            ][::-1]

    return read


def on_thread(*handlers, **options):
    return {"callbacks": [*handlers], "configurable": {"thread_id": "T"}, **options}


def failing_once():
    turns = [calls(add={"a": 1, "b": 2}), says("3")]
    model = FlakyModel(turns=turns, errors=["down"])
    return create_agent(model, [add], checkpointer=InMemorySaver(), name="adder")


def fail(run, graph, given, config):
    with pytest.raises(ConnectionError):
        run(graph, given, config)


def story(trace):
    return [line_of_row(step) for step in trace["steps"]]


@pytest.mark.parametrize("run", [invoke, ainvoke, stream, astream])
def test_a_run_that_goes_on_after_a_failure_has_its_objective(kp, traces, run):
    graph, config = failing_once(), on_thread(KPCallbackHandler(kp))
    fail(run, graph, ASKED, config)

    run(graph, None, config)

    failed, went_on = traces()
    assert failed["success"] == 0
    assert (went_on["objective"], went_on["success"]) == ("How much is 1 + 2?", None)
    assert story(went_on) == ["tool_call add(a=1, b=2)", "observation add: 3", "thought: 3"]


def test_what_failed_before_anybody_recorded_is_heard_from_the_conversation(kp, traces):
    graph = failing_once()
    fail(invoke, graph, ASKED, on_thread())

    graph.invoke(None, on_thread(KPCallbackHandler(kp)))

    [trace] = traces()
    assert trace["objective"] == "How much is 1 + 2?"


class Report(TypedDict, total=False):
    request: dict
    report: str


def test_a_graph_with_keys_of_its_own_has_the_objective_of_the_run_that_failed(kp, traces):
    model = FlakyModel(turns=[says("on cats")], errors=["down"])
    graph = StateGraph(Report)
    graph.add_node("write", lambda _: {"report": model.invoke("You are a writer.").text})
    graph.add_edge(START, "write")
    graph, config = graph.compile(checkpointer=InMemorySaver()), on_thread(KPCallbackHandler(kp))
    fail(invoke, graph, {"request": {"subject": "cats"}}, config)

    graph.invoke(None, config)

    _, went_on = traces()
    assert json.loads(went_on["objective"]) == {"request": {"subject": "cats"}}


def test_a_thread_whose_id_is_not_written_hears_its_objective_from_the_conversation(kp, traces):
    config = on_thread(KPCallbackHandler(kp))
    for secret, question in (("ghp_" + "a1B2" * 9, "one?"), ("ghp_" + "c3D4" * 9, "two?")):
        graph = failing_once()
        own = {**config, "configurable": {"thread_id": secret}}
        fail(invoke, graph, {"messages": question}, own)
        if question == "one?":
            first = graph, own

    first[0].invoke(None, first[1])

    assert traces()[-1]["objective"] == "one?"


@needs("tool calls with ids")
def test_a_tool_that_is_called_after_a_pause_has_its_result(kp, traces):
    def ask(_):
        interrupt("may I?")

    inner = agent(calls(add={"a": 1, "b": 2}), says("3"))
    graph = StateGraph(Report)
    graph.add_node("ask", ask)
    graph.add_node("add", lambda _: {"report": inner.invoke(ASKED)["messages"][-1].text})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "add")
    graph, config = graph.compile(checkpointer=InMemorySaver()), on_thread(KPCallbackHandler(kp))
    graph.invoke({"request": {"of": 1}}, config)

    graph.invoke(Command(resume="yes"), config)

    [trace] = traces()
    assert story(trace) == [
        "observation: may I?",
        "observation: yes",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: 3",
    ]
