"""Runs that LangSmith or OpenTelemetry began, around and inside those that we record."""

import asyncio

import pytest
from langchain_core.tools import tool
from langsmith import traceable
from scripted_agents import add, agent
from scripted_models import ScriptedModel, calls, says
from watching import (
    Program,
    by_langfuse,
    by_langsmith,
    by_openinference,
    is_in_a_span,
    names_in,
)

import kp_langchain
from kp_langchain import KPCallbackHandler

GO = {"messages": "go"}
ADDS = [calls("I need to add.", add={"a": 1, "b": 2}), says("It is 3.")]
STORY = ["thought: I need to add.", "tool_call add(a=1, b=2)", "observation add: 3"]
STORY = [*STORY, "thought: It is 3."]


@pytest.fixture(params=["in the config", "enabled"])
def config(request, notebook):
    """With it, a run is recorded into the notebook."""
    if request.param == "enabled":
        kp_langchain.enable(notebook)
        yield {}
        kp_langchain.disable()
    else:
        yield {"callbacks": [KPCallbackHandler(notebook)]}


@pytest.fixture
def langsmith():
    with by_langsmith() as watch:
        yield watch


@traceable
def ask(config):
    return agent(*ADDS, name="adding").invoke(GO, config)


@traceable
async def aask(config):
    return await agent(*ADDS, name="adding").ainvoke(GO, config)


@pytest.mark.parametrize(
    "run", [ask, lambda config: asyncio.run(aask(config))], ids=["sync", "async"]
)
@pytest.mark.usefixtures("langsmith")
def test_an_agent_in_a_traceable_function_is_recorded(notebook, config, run):
    run(config)

    assert notebook.story == STORY
    assert notebook.trace.task.objective == "go"
    assert notebook.run.complete is True


def test_a_traceable_function_is_seen_with_the_agent_inside_it(langsmith, config):
    ask(config)

    assert names_in(langsmith.seen())[:3] == ["ask", "adding", "model"]


@pytest.mark.parametrize(
    ("runnable", "given", "story"),
    [
        (ScriptedModel(turns=[says("hi")]), "go", ["thought: hi"]),
        (add, {"a": 1, "b": 2}, ["tool_call add(a=1, b=2)", "observation add: 3"]),
    ],
    ids=["model", "tool"],
)
@pytest.mark.usefixtures("langsmith")
def test_a_model_or_a_tool_in_a_traceable_function_is_recorded(
    notebook, config, runnable, given, story
):
    traceable(runnable.invoke, name="outer")(given, config)

    assert notebook.story == story


def delegating(runnable, given):
    """An agent with a tool in which a traceable function runs that."""

    @traceable
    def run(_):
        return str(runnable.invoke(given))

    @tool
    def delegate(task: str) -> str:
        """Give it to a traceable function."""
        run(task)
        return "done"

    return agent(calls(delegate={"task": "t"}), says("bye"), tools=[delegate])


@pytest.mark.parametrize(
    ("runnable", "given", "inside"),
    [
        (agent(*ADDS), GO, STORY),
        (ScriptedModel(turns=[says("hi")]), "go", ["thought: hi"]),
        (add, {"a": 1, "b": 2}, ["tool_call add(a=1, b=2)", "observation add: 3"]),
    ],
    ids=["agent", "model", "tool"],
)
@pytest.mark.usefixtures("langsmith")
def test_runs_in_a_traceable_function_in_a_tool_are_in_the_trace(
    notebook, config, runnable, given, inside
):
    delegating(runnable, given).invoke(GO, config)

    assert notebook.story == [
        "tool_call delegate(task='t')",
        *inside,
        "observation delegate: done",
        "thought: bye",
    ]


def parents_of_spans(watch, config):
    """Of a span around a run, one in its tool and one after it."""
    program = Program()

    @tool
    def measure(what: str) -> str:
        """Measure, in a span."""
        with program.span("inside"):
            return what

    measuring = agent(calls(measure={"what": "x"}), says("done"), tools=[measure])
    with program.span("around"):
        measuring.invoke(GO, {"callbacks": [*config.get("callbacks", []), *watch.callbacks]})
    with program.span("after"):
        pass
    return program.parents()


@pytest.mark.parametrize("peer", [by_langfuse, by_openinference])
def test_opentelemetrys_context_is_that_which_it_is_without_us(peer, notebook, config):
    with peer() as watch:
        beside_us = parents_of_spans(watch, config)
    kp_langchain.disable()
    with peer() as watch:
        without_us = parents_of_spans(watch, {})

    assert beside_us == without_us
    assert beside_us["after"] is None
    assert notebook.started == 1
    assert not is_in_a_span()
