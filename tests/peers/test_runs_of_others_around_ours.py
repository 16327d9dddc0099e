"""Runs that LangSmith or OpenTelemetry began, around and inside those that we record."""

import pytest
from langchain_core.tools import tool
from langsmith import traceable
from scripted_agents import ADDED, GO, add, agent
from scripted_models import ScriptedModel, calls, says
from watching import (
    Program,
    by_langfuse,
    by_langsmith,
    by_openinference,
    is_in_a_span,
    names_in,
)
from ways_to_run import ainvoke, invoke

import kp_langchain
from kp_langchain import KPCallbackHandler

ADDS = [calls("I need to add.", add={"a": 1, "b": 2}), says("The answer is 3.")]


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


ADDING = agent(*ADDS, name="adding")
RUNNABLES = pytest.mark.parametrize(
    ("runnable", "given", "story"),
    [
        (ADDING, GO, ADDED),
        (ScriptedModel(turns=[says("hi")]), "go", ["thought: hi"]),
        (add, {"a": 1, "b": 2}, ["tool_call add(a=1, b=2)", "observation add: 3"]),
    ],
    ids=["agent", "model", "tool"],
)


@RUNNABLES
@pytest.mark.parametrize("way", [invoke, ainvoke])
@pytest.mark.usefixtures("langsmith")
def test_a_run_in_a_traceable_function_is_recorded(notebook, config, way, runnable, given, story):
    @traceable
    def ask():
        way(runnable, given, config)

    ask()

    assert notebook.story == story
    assert notebook.run.complete is True


def test_a_traceable_function_is_seen_with_the_agent_inside_it(langsmith, config):
    traceable(ADDING.invoke, name="ask")(GO, config)

    assert names_in(langsmith.seen())[:3] == ["ask", "adding", "model"]


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


@RUNNABLES
@pytest.mark.usefixtures("langsmith")
def test_runs_in_a_traceable_function_in_a_tool_are_in_the_trace(
    notebook, config, runnable, given, story
):
    delegating(runnable, given).invoke(GO, config)

    assert notebook.story == [
        "tool_call delegate(task='t')",
        *story,
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
