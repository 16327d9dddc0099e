"""Runs whose input and output are of any kind, and events that are the program's own."""

import json
import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import agent, graph_of
from scripted_models import ScriptedModel, calls, says
from versions import START, Send, StateGraph
from ways_to_run import ainvoke, astream, invoke, stream


@pytest.mark.parametrize(
    ("given", "objective", "returned", "result"),
    [
        (7, "7", None, "hi"),
        (["a", "b"], "b", 7, "7"),
        ("go", "go", [1, 2], "[1, 2]"),
        ({"n": 7}, '{"n": 7}', AIMessage("bye"), "bye"),
    ],
)
def test_case_14_input_and_output_may_be_of_any_kind(
    config, notebook, given, objective, returned, result
):
    def run(_):
        ScriptedModel(turns=[says("hi")]).invoke("go")
        return returned

    RunnableLambda(run).invoke(given, config)

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.task.objective == objective
    assert notebook.trace.outcome.result_summary == result


def test_case_16_the_program_s_own_events_are_not_steps(config, notebook):
    @tool
    def work() -> str:
        """Tell how it goes."""
        dispatch_custom_event("progress", {"percent": 50})
        return "worked"

    agent(calls(work={}), says("done"), tools=[work]).invoke({"messages": "go"}, config)

    assert notebook.story == ["tool_call work", "observation work: worked", "thought: done"]


class Research(TypedDict, total=False):
    request: dict
    subjects: list
    report: str
    notes: Annotated[list, operator.add]


@dataclass
class Order:
    what: str
    how_many: int = 1
    said: str = ""


def asking(prompt):
    """A model that answers a prompt which is not what its run is for."""
    return ScriptedModel(turns=[says(f"on {prompt}")]).invoke(f"You are an expert. {prompt}").text


@pytest.mark.parametrize("way", [invoke, ainvoke, stream, astream])
def test_a_graph_with_keys_of_its_own_has_its_own_input_and_output(config, notebook, way):
    graph = graph_of({"write": lambda _: {"report": asking("cats")}}, state=Research)
    asked = {"request": {"subject": "cats", "pages": 2}}

    way(graph, asked, config)

    trace = notebook.trace
    assert json.loads(trace.task.objective) == asked
    assert json.loads(trace.outcome.result_summary) == {**asked, "report": "on cats"}


def test_what_is_sent_to_many_nodes_is_one_input_and_one_output(config, notebook):
    graph = StateGraph(Research)
    graph.add_node("note", lambda sent: {"notes": [asking(sent["subject"])]})
    graph.add_conditional_edges(
        START,
        lambda state: [Send("note", {"subject": one}) for one in state["subjects"]],
        ["note"],
    )

    graph.compile().invoke({"subjects": ["cats", "dogs"]}, config)

    trace = notebook.trace
    assert json.loads(trace.task.objective) == {"subjects": ["cats", "dogs"]}
    assert json.loads(trace.outcome.result_summary)["notes"] == ["on cats", "on dogs"]


def test_the_state_of_a_graph_may_be_a_dataclass(config, notebook):
    graph = graph_of({"order": lambda order: {"said": asking(order.what)}}, state=Order)

    graph.invoke(Order("a ladder", how_many=2), config)

    assert json.loads(notebook.trace.task.objective) == {"what": "a ladder", "how_many": 2}
    assert json.loads(notebook.trace.outcome.result_summary)["said"] == "on a ladder"


def test_however_large_an_input_is_the_objective_is_bounded(config, notebook):
    RunnableLambda(lambda _: asking("all")).invoke({"pages": ["page " * 20_000] * 20}, config)

    assert len(notebook.trace.task.objective) < 100_000
