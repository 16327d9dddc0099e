"""Other tracers in the same process: each sees what it sees without us, and so do we."""

from contextlib import ExitStack, contextmanager, nullcontext, suppress

import pytest
from langchain_core.tools import tool
from langchain_notebook import comparable
from scripted_agents import add, agent
from scripted_models import StreamingModel, calls, says
from versions import create_agent
from watching import by_langfuse, by_langsmith, by_openinference, names_in
from ways_to_run import ainvoke, astream, invoke, stream

import kp_langchain
from kp_langchain import KPCallbackHandler

PEERS = {
    "LangSmith": (by_langsmith,),
    "Langfuse": (by_langfuse,),
    "OpenInference": (by_openinference,),
    "all": (by_langsmith, by_langfuse, by_openinference),
}
TURNS = [calls("I need to add.", add={"a": 1, "b": 2}), says("It is 3.")]


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
    turns = [calls(ask={"question": "1 + 2?"}), says("They say 3.")]
    return agent(*turns, tools=[ask], name="asking")


@pytest.fixture(params=PEERS.values(), ids=PEERS)
def peers(request):
    return request.param


@pytest.fixture(params=[invoke, ainvoke, stream, astream])
def way(request):
    return request.param


@pytest.fixture(params=[adding, failing, asking])
def runnable(request):
    return request.param()


@contextmanager
def in_the_config(notebook):
    yield [KPCallbackHandler(notebook)]


@contextmanager
def enabled(notebook):
    kp_langchain.enable(notebook)
    yield []
    kp_langchain.disable()


@pytest.fixture(params=[in_the_config, enabled])
def we(request):
    return request.param


ABSENT = nullcontext([])


def run(runnable, way, *, we=ABSENT, peers=()):
    """Run it, recorded by us and watched by the peers: what each of these has seen."""
    with ExitStack() as stack:
        ours = stack.enter_context(we)
        watching = [stack.enter_context(peer()) for peer in peers]
        theirs = [callback for watch in watching for callback in watch.callbacks]
        with suppress(ValueError):
            way(runnable, {"messages": "go"}, {"callbacks": [*ours, *theirs]})
    return [watch.seen() for watch in watching]


@pytest.mark.parametrize("peer", [by_langsmith, by_langfuse, by_openinference])
def test_a_peer_sees_agents_models_and_tools(peer):
    [seen] = run(asking(), invoke, peers=[peer])

    assert {"asking", "model", "ask", "inner", "add"} <= set(names_in(seen))


def test_case_30_each_sees_what_it_sees_without_the_other(peers, way, runnable, notebook, we):
    theirs_alone = run(runnable, way, peers=peers)
    run(runnable, way, we=we(notebook))

    theirs_beside_us = run(runnable, way, we=we(notebook), peers=peers)

    alone, beside_peers = notebook.runs
    assert theirs_beside_us == theirs_alone
    assert comparable(beside_peers) == comparable(alone)
    assert notebook.started == 2
