"""Runs are recorded without a handler in their config: everywhere, or in a block."""

import asyncio
import threading

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langsmith import RunTree, tracing_context
from scripted_agents import agent
from scripted_models import calls, says
from ways_to_run import WAYS

import kp_langchain
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

GO = {"messages": "go"}
STORY = ["thought: I need to add.", "tool_call add(a=1, b=2)", "observation add: 3"]
STORY = [*STORY, "thought: The answer is 3."]


@pytest.fixture(autouse=True)
def switched_off_afterwards():
    yield
    kp_langchain.disable()


@pytest.fixture
def enabled(notebook):
    kp_langchain.enable(notebook)


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run_is_recorded_without_a_handler(adding, notebook, way):
    way(adding, GO, {})

    assert notebook.story == STORY


def test_enabling_twice_records_once(adding, notebook):
    kp_langchain.enable(notebook)
    kp_langchain.enable(notebook)

    adding.invoke(GO)

    assert notebook.story == STORY


def test_enabling_again_replaces_the_pipeline(adding, notebook):
    kp_langchain.enable(before := type(notebook)())
    kp_langchain.enable(notebook)

    adding.invoke(GO)

    assert before.started == 0
    assert notebook.story == STORY


@pytest.mark.usefixtures("enabled")
def test_after_disabling_nothing_is_recorded(adding, notebook):
    kp_langchain.disable()
    kp_langchain.disable()

    adding.invoke(GO)

    assert notebook.started == 0


@pytest.mark.usefixtures("enabled")
def test_a_run_that_is_going_on_is_recorded_to_its_end(notebook):
    @tool
    def switch_off(really: bool) -> str:
        """Disable."""
        kp_langchain.disable()
        return str(really)

    agent(calls(switch_off={"really": True}), says("done"), tools=[switch_off]).invoke(GO)

    assert notebook.story[-1] == "thought: done"
    assert notebook.run.complete is True


@pytest.mark.usefixtures("enabled")
def test_a_run_in_a_function_that_langsmith_traces_is_recorded(adding, notebook):
    with tracing_context(parent=RunTree(name="outer"), enabled=False):
        adding.invoke(GO)

    assert notebook.story == STORY


@pytest.mark.usefixtures("enabled")
def test_a_run_that_is_given_the_handler_as_well_is_one_trace(adding, config, notebook):
    adding.invoke(GO, config)

    assert notebook.story == STORY


@pytest.mark.usefixtures("enabled")
def test_a_run_inside_that_is_given_the_handler_as_well_stays_in_the_trace(
    adding, config, notebook
):
    RunnableLambda(lambda _: adding.invoke(GO, config)).invoke("outer")

    assert notebook.story == STORY
    assert notebook.trace.task.objective == "outer"


@pytest.mark.usefixtures("enabled")
def test_a_run_with_a_handler_of_another_pipeline_is_recorded_by_that(adding, notebook):
    other = type(notebook)()

    adding.invoke(GO, {"callbacks": [KPCallbackHandler(other)]})

    assert other.story == STORY
    assert notebook.started == 0


@pytest.mark.usefixtures("enabled")
def test_all_runs_share_one_handler():
    seen = []

    @tool
    def look(where: str, callbacks=None) -> str:
        """Look who listens."""
        seen.extend(h for h in callbacks.handlers if isinstance(h, KPCallbackHandler))
        return where

    looking = agent(calls(look={"where": "here"}), says("done"), tools=[look])
    looking.invoke(GO)
    looking.invoke(GO)

    assert len(seen) == 2
    assert seen[0] is seen[1]


def test_a_thread_that_has_begun_before_is_recorded(adding, notebook):
    may_run = threading.Event()
    thread = threading.Thread(target=lambda: may_run.wait(10) and adding.invoke(GO))
    thread.start()

    kp_langchain.enable(notebook)
    may_run.set()
    thread.join()

    assert notebook.story == STORY


def test_a_task_that_has_begun_before_is_recorded(adding, notebook):
    async def run_when_told(told):
        await told.wait()
        await adding.ainvoke(GO)

    async def enable_meanwhile():
        task = asyncio.create_task(run_when_told(told := asyncio.Event()))
        await asyncio.sleep(0)
        kp_langchain.enable(notebook)
        told.set()
        await task

    asyncio.run(enable_meanwhile())

    assert notebook.story == STORY


def test_the_domain_and_the_confidence_are_those_that_were_given(adding, notebook):
    kp_langchain.enable(notebook, domain="finance", confidence=lambda _output: 0.4)

    adding.invoke(GO)

    assert notebook.trace.metadata.task_domain == "finance"
    assert notebook.trace.outcome.confidence == 0.4


@pytest.mark.parametrize("word", ["false", "False", "0", "off", " no "])
def test_where_recording_is_switched_off_nothing_is_switched_on(
    adding, notebook, monkeypatch, word
):
    monkeypatch.setenv("KP_ENABLED", word)
    kp_langchain.enable(notebook)

    with kp_langchain.recording_runs(notebook) as handler:
        adding.invoke(GO, {"callbacks": [handler]})

    assert notebook.started == 0


def test_a_block_that_records_nothing_needs_no_pipeline(monkeypatch, caplog):
    monkeypatch.setenv("KP_ENABLED", "false")
    monkeypatch.setenv("KP_THREAD_IDLE_S", "often")

    with kp_langchain.recording_runs() as handler:
        assert handler.trace_id() is None

    assert not caplog.records


def test_a_wrong_variable_does_not_reach_the_agent_and_is_named(adding, monkeypatch, caplog):
    monkeypatch.setenv("KP_THREAD_IDLE_S", "often")
    monkeypatch.setenv("KP_EMBEDDER", "none")
    kp_langchain.enable()

    result = adding.invoke(GO)

    with KnowledgePulse.default() as kp:
        assert kp.flush(30).unscored == 0
    assert result["messages"][-1].text == "The answer is 3."
    [error] = caplog.records
    assert "KP_THREAD_IDLE_S" in error.getMessage()
    assert kp.stats().scored == 1


def test_a_block_is_recorded_and_nothing_around_it(adding, notebook):
    adding.invoke(GO)
    with kp_langchain.recording_runs(notebook):
        adding.invoke(GO)
    adding.invoke(GO)

    assert notebook.story == STORY


def test_a_block_ends_with_an_error_too(adding, notebook):
    with pytest.raises(ZeroDivisionError), kp_langchain.recording_runs(notebook):
        _ = 1 / 0

    adding.invoke(GO)

    assert notebook.started == 0


@pytest.mark.usefixtures("enabled")
def test_in_a_block_its_pipeline_counts_more(adding, notebook):
    with kp_langchain.recording_runs(inner := type(notebook)()):
        adding.invoke(GO)

    assert inner.story == STORY
    assert notebook.started == 0


def test_blocks_of_concurrent_tasks_do_not_mix(adding, notebook):
    one, other = notebook, type(notebook)()

    async def run_in_block(kp):
        with kp_langchain.recording_runs(kp):
            await asyncio.sleep(0)
            await adding.ainvoke(GO)

    async def run_both():
        await asyncio.gather(run_in_block(one), run_in_block(other))

    asyncio.run(run_both())

    assert one.story == other.story == STORY


def test_a_block_that_is_left_in_another_context_is_left(adding, notebook):
    async def recorded():
        with kp_langchain.recording_runs(notebook):
            yield

    async def leave_elsewhere():
        block = recorded()
        await asyncio.create_task(anext(block))
        await block.aclose()
        await adding.ainvoke(GO)

    asyncio.run(leave_elsewhere())

    assert notebook.started == 0
