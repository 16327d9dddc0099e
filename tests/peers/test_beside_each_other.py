"""Other tracers in the same process, beside, around and inside what we record."""

import asyncio
from contextlib import ExitStack, contextmanager, nullcontext, suppress

import pytest
from langchain_core.tools import tool
from langchain_notebook import comparable
from langsmith import traceable
from scripted_agents import ADDED, GO, add, agent
from scripted_models import ScriptedModel, StreamingModel, answer_of, calls
from versions import create_agent
from watching import (
    Program,
    by_langfuse,
    by_langsmith,
    by_openinference,
    is_in_a_span,
    names_in,
)
from ways_to_run import ainvoke, astream, invoke, stream

import kp_langchain
from kp_langchain import KPCallbackHandler

PEERS = {
    "LangSmith": (by_langsmith,),
    "Langfuse": (by_langfuse,),
    "OpenInference": (by_openinference,),
    "all": (by_langsmith, by_langfuse, by_openinference),
}
TURNS = [calls("I need to add.", add={"a": 1, "b": 2}), answer_of("The answer is 3.")]


@tool
def explode(x: int) -> int:
    """Fail, always."""
    raise ValueError(f"bad {x}")


@tool
def ask(question: str) -> str:
    """Ask another agent."""
    return agent(*TURNS, name="inner").invoke({"messages": question})["messages"][-1].text


def adding():
    return create_agent(StreamingModel(turns=TURNS), [add], name="adding")


def failing():
    return agent(calls("Try.", explode={"x": 1}), tools=[explode], name="failing")


def asking():
    turns = [calls(ask={"question": "1 + 2?"}), answer_of("They say 3.")]
    return agent(*turns, tools=[ask], name="asking")


@contextmanager
def in_the_config(notebook):
    yield {"callbacks": [KPCallbackHandler(notebook)]}


@contextmanager
def enabled(notebook):
    kp_langchain.enable(notebook)
    yield {"callbacks": []}
    kp_langchain.disable()


@pytest.fixture(params=[in_the_config, enabled])
def config(request, notebook):
    """With it, a run is recorded into the notebook."""
    with request.param(notebook) as config:
        yield config


@pytest.fixture
def langsmith():
    with by_langsmith() as watch:
        yield watch


ABSENT = nullcontext({"callbacks": []})


def run(runnable, way, *, we=ABSENT, peers=()):
    """Run it, recorded by us and watched by the peers: what each of these has seen."""
    with ExitStack() as stack:
        ours = stack.enter_context(we)
        watching = [stack.enter_context(peer()) for peer in peers]
        theirs = [callback for watch in watching for callback in watch.callbacks]
        with suppress(ValueError):
            way(runnable, GO, {"callbacks": [*ours["callbacks"], *theirs]})
    return [watch.seen() for watch in watching]


@pytest.mark.parametrize("peer", [by_langsmith, by_langfuse, by_openinference])
def test_a_peer_sees_agents_models_and_tools(peer):
    [seen] = run(asking(), invoke, peers=[peer])

    assert {"asking", "model", "ask", "inner", "add"} <= set(names_in(seen))


@pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS)
@pytest.mark.parametrize("way", [invoke, ainvoke, stream, astream])
@pytest.mark.parametrize("make", [adding, failing, asking])
@pytest.mark.parametrize("we", [in_the_config, enabled])
def test_case_30_each_sees_what_it_sees_without_the_other(notebook, peers, way, make, we):
    runnable = make()
    theirs_alone = run(runnable, way, peers=peers)
    run(runnable, way, we=we(notebook))

    theirs_beside_us = run(runnable, way, we=we(notebook), peers=peers)

    alone, beside_peers = notebook.runs
    assert theirs_beside_us == theirs_alone
    assert comparable(beside_peers) == comparable(alone)
    assert notebook.started == 2


ADDING = agent(*TURNS, name="adding")
RUNNABLES = pytest.mark.parametrize(
    ("runnable", "given", "story"),
    [
        (ADDING, GO, ADDED),
        (ScriptedModel(turns=[answer_of("hi")]), "go", ["thought: hi"]),
        (add, {"a": 1, "b": 2}, ["tool_call add(a=1, b=2)", "observation add: 3"]),
    ],
    ids=["agent", "model", "tool"],
)


@RUNNABLES
@pytest.mark.parametrize(
    "run_traced",
    [
        lambda runnable, *given: traceable(runnable.invoke, name="outer")(*given),
        lambda runnable, *given: asyncio.run(traceable(runnable.ainvoke, name="outer")(*given)),
    ],
    ids=["sync", "async"],
)
@pytest.mark.usefixtures("langsmith")
def test_a_run_in_a_traceable_function_is_recorded(
    notebook, config, run_traced, runnable, given, story
):
    run_traced(runnable, given, config)

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

    return agent(calls(delegate={"task": "t"}), answer_of("bye"), tools=[delegate])


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

    measuring = agent(calls(measure={"what": "x"}), answer_of("done"), tools=[measure])
    with program.span("around"):
        measuring.invoke(GO, {"callbacks": [*config["callbacks"], *watch.callbacks]})
    with program.span("after"):
        pass
    return program.parents()


@pytest.mark.parametrize("peer", [by_langfuse, by_openinference])
def test_opentelemetrys_context_is_that_which_it_is_without_us(peer, notebook, config):
    with peer() as watch:
        beside_us = parents_of_spans(watch, config)
    kp_langchain.disable()
    with peer() as watch:
        without_us = parents_of_spans(watch, {"callbacks": []})

    assert beside_us == without_us
    assert beside_us["after"] is None
    assert notebook.started == 1
    assert not is_in_a_span()
