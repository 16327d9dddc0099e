"""The objective and the answer of a run are found in every form of its input and output."""

import json
import operator
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel
from scripted_agents import graph_of
from scripted_events import recorded
from scripted_models import ScriptedModel, answer_of
from versions import START, Command, Send, StateGraph
from ways_to_run import ainvoke, astream, invoke, stream


class State(BaseModel):
    messages: list


@dataclass
class Request:
    subject: str
    depth: int | None = None


@pytest.mark.parametrize(
    ("inputs", "objective"),
    [
        ({"messages": [("user", "one"), ("ai", "hm"), ("user", "two")]}, "two"),
        ({"messages": ("user", "two")}, "two"),
        ({"messages": "two"}, "two"),
        ({"messages": [SystemMessage("one"), SystemMessage("two")]}, "two"),
        ([HumanMessage("two")], "two"),
        (State(messages=["two"]), "two"),
        (ChatPromptValue(messages=[HumanMessage("two")]), "two"),
        (StringPromptValue(text="two"), "two"),
        ("two", "two"),
        ({"input": "two", "chat_history": [HumanMessage("one")]}, "two"),
        ({"q": "two"}, "two"),
        ({"topic": "two", "q": "one"}, "two"),
        ({"a": "one", "b": 2}, '{"a": "one", "b": 2}'),
        (2, "2"),
        ({"input": ""}, "agent"),
        ({"request": {"subject": "two"}}, '{"request": {"subject": "two"}}'),
        ({"q": "two", "pages": ["one"]}, '{"q": "two", "pages": ["one"]}'),
        ({"question": "two", "pages": ["one"]}, "two"),
        ({"messages": [], "request": {"n": 2}}, '{"request": {"n": 2}}'),
        (Request(subject="two"), "two"),
        (Request(subject="two", depth=2), '{"subject": "two", "depth": 2}'),
        ([{"subject": "two"}], '[{"subject": "two"}]'),
        ({"log": []}, "agent"),
        (None, "agent"),
    ],
    ids=repr,
)
def test_the_objective_is_found_in_every_form_of_input(inputs, objective):
    assert recorded(inputs).trace.task.objective == objective


@pytest.mark.parametrize(
    ("given", "objective"),
    [({"resume": "yes"}, "agent"), ({"update": {"messages": ["two"]}}, "two")],
    ids=["goes on after a pause", "updates the state"],
)
def test_a_command_asks_what_it_updates_the_state_with(given, objective):
    assert recorded(Command(**given)).trace.task.objective == objective


class Parsed(BaseModel):
    total: int
    confidence: float


@pytest.mark.parametrize(
    ("output", "result", "confidence"),
    [
        ({"messages": [HumanMessage("q"), AIMessage("a")]}, "a", None),
        ({"messages": [HumanMessage("q"), AIMessage("a"), AIMessage("")]}, "a", None),
        ({"messages": [ToolMessage("direct", tool_call_id="1")]}, "direct", None),
        ({"messages": [AIMessage("before"), HumanMessage("q")]}, "Hm.", None),
        ({"messages": [AIMessage("a")], "confidence": 0.7}, "a", 0.7),
        (
            {"structured_response": {"v": 1, "confidence": 0.6}, "confidence": 0.7},
            '{"v": 1, "confidence": 0.6}',
            0.6,
        ),
        (AIMessage("<think>hm</think>a"), "a", None),
        ({"output": "a"}, "a", None),
        ("a", "a", None),
        (3, "3", None),
        ([1, 2], "[1, 2]", None),
        (Parsed(total=3, confidence=0.9), '{"total": 3, "confidence": 0.9}', 0.9),
        ({"log": ["x"]}, '{"log": ["x"]}', None),
        ({"messages": [HumanMessage("q")], "report": {"n": 1}}, '{"report": {"n": 1}}', None),
        ({"request": {"n": 1}, "report": "", "notes": []}, '{"request": {"n": 1}}', None),
        ({"one": AIMessage("a"), "two": "b"}, '{"one": "a", "two": "b"}', None),
        ({"summary": "a", "translation": "b"}, '{"summary": "a", "translation": "b"}', None),
        ({"question": "q", "context": "c", "answer": "a"}, "a", None),
        ({"raw": AIMessage("a"), "parsed": {"n": 1}}, '{"raw": "a", "parsed": {"n": 1}}', None),
        ({"plan": Request("two")}, '{"plan": {"subject": "two", "depth": null}}', None),
        (None, "Hm.", None),
        (
            {name: {"messages": [AIMessage(name.upper())]} for name in ("a", "b")},
            '{"a": "A", "b": "B"}',
            None,
        ),
    ],
    ids=[
        "conversation",
        "silent end",
        "returned directly",
        "unanswered",
        "confidence in the state",
        "structured",
        "message",
        "AgentExecutor",
        "text",
        "number",
        "list",
        "parsed",
        "other state",
        "beside the conversation",
        "without what is empty",
        "branches",
        "branches that read like an answer",
        "what it was made of",
        "raw and parsed",
        "an object under a key of its own",
        "nothing",
        "agents in parallel",
    ],
)
def test_the_answer_is_found_in_every_form_of_output(output, result, confidence):
    run = recorded(output=output)

    assert run.trace.outcome.result_summary == result
    assert run.trace.outcome.confidence == (confidence or 0.8)


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
        ScriptedModel(turns=[answer_of("hi")]).invoke("go")
        return returned

    RunnableLambda(run).invoke(given, config)

    assert notebook.story == ["thought: hi"]
    assert notebook.trace.task.objective == objective
    assert notebook.trace.outcome.result_summary == result


class Research(TypedDict, total=False):
    request: dict
    subjects: list
    report: str
    notes: Annotated[list, operator.add]


def asking(prompt):
    """A model that answers a prompt which is not what its run is for."""
    return (
        ScriptedModel(turns=[answer_of(f"on {prompt}")]).invoke(f"You are an expert. {prompt}").text
    )


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


def test_however_large_an_input_is_the_objective_is_bounded(config, notebook):
    RunnableLambda(lambda _: asking("all")).invoke({"pages": ["page " * 20_000] * 20}, config)

    assert len(notebook.trace.task.objective) < 100_000


def test_a_result_of_a_tool_is_no_objective(config, notebook):
    model = ScriptedModel(turns=[answer_of("it is 3")])

    def loop(_, config):
        model.invoke([], config)
        return model.invoke([ToolMessage("three", tool_call_id="1")], config)

    RunnableLambda(loop).invoke({"messages": []}, config)

    assert notebook.trace.task.objective != "three"
