"""Runs are recorded without a handler in their config: everywhere, or in a block."""

import asyncio
import threading

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_notebook import story
from langsmith import RunTree, tracing_context
from scripted_agents import ADDED, GO, agent
from scripted_models import answer_of, calls
from ways_to_run import WAYS

import kp_langchain
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse


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

    assert notebook.story == ADDED


def test_enabling_again_records_once_in_the_last_pipeline(adding, notebook, other):
    kp_langchain.enable(other)
    kp_langchain.enable(notebook)
    kp_langchain.enable(notebook)

    adding.invoke(GO)

    assert other.started == 0
    assert notebook.story == ADDED


@pytest.mark.usefixtures("enabled")
def test_after_disabling_what_goes_on_is_recorded_to_its_end_and_nothing_else(adding, notebook):
    @tool
    def switch_off(really: bool) -> str:
        """Disable, twice."""
        kp_langchain.disable()
        kp_langchain.disable()
        return str(really)

    agent(calls(switch_off={"really": True}), answer_of("done"), tools=[switch_off]).invoke(GO)
    adding.invoke(GO)

    assert notebook.story[-1] == "thought: done"
    assert notebook.run.complete is True
    assert notebook.started == 1


@pytest.mark.usefixtures("enabled")
def test_a_run_in_a_function_that_langsmith_traces_is_recorded(adding, notebook):
    with tracing_context(parent=RunTree(name="outer"), enabled=False):
        adding.invoke(GO)

    assert notebook.story == ADDED


@pytest.mark.usefixtures("enabled")
def test_a_run_that_is_given_the_handler_as_well_is_one_trace(adding, config, notebook):
    RunnableLambda(lambda _: adding.invoke(GO, config)).invoke("outer")
    adding.invoke(GO, config)

    assert [story(run) for run in notebook.runs] == [ADDED] * 2
    assert [run.trace.task.objective for run in notebook.runs] == ["outer", "go"]


@pytest.mark.usefixtures("enabled")
def test_a_run_with_a_handler_of_another_pipeline_is_recorded_by_that(adding, notebook, other):
    adding.invoke(GO, {"callbacks": [KPCallbackHandler(other)]})

    assert other.story == ADDED
    assert notebook.started == 0


@pytest.mark.usefixtures("enabled")
def test_all_runs_share_one_handler():
    switch = kp_langchain._autotrace._switch

    assert switch.get() is switch.get() is not None


def test_a_thread_that_has_begun_before_is_recorded(adding, notebook):
    may_run = threading.Event()
    thread = threading.Thread(target=lambda: may_run.wait(10) and adding.invoke(GO))
    thread.start()

    kp_langchain.enable(notebook)
    may_run.set()
    thread.join()

    assert notebook.story == ADDED


def test_the_domain_and_the_confidence_are_those_that_were_given(adding, notebook):
    given = {"domain": "finance", "confidence": [lambda _output: 0.4]}

    with kp_langchain.recording_runs(notebook, **given):
        adding.invoke(GO)
    kp_langchain.enable(notebook, **given)
    adding.invoke(GO)

    assert [run.trace.metadata.task_domain for run in notebook.runs] == ["finance"] * 2
    assert [run.trace.outcome.confidence for run in notebook.runs] == [0.4] * 2


@pytest.mark.parametrize("word", ["false", "False", "0", "off", " no "])
def test_where_recording_is_switched_off_nothing_is_switched_on_and_no_pipeline_needed(
    adding, notebook, monkeypatch, caplog, word
):
    monkeypatch.setenv("KP_ENABLED", word)
    monkeypatch.setenv("KP_THREAD_IDLE_S", "often")  # of which a pipeline would complain
    kp_langchain.enable(notebook)

    with kp_langchain.recording_runs(notebook) as handler:
        adding.invoke(GO, {"callbacks": [handler]})
    with kp_langchain.recording_runs() as handler:
        assert handler.trace_id() is None

    assert notebook.started == 0
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


def test_a_block_is_recorded_and_nothing_around_it_though_it_ends_with_an_error(adding, notebook):
    def fail_in_a_block():
        with kp_langchain.recording_runs(notebook):
            adding.invoke(GO)
            raise ZeroDivisionError

    adding.invoke(GO)
    with pytest.raises(ZeroDivisionError):
        fail_in_a_block()
    adding.invoke(GO)

    assert notebook.story == ADDED


@pytest.mark.usefixtures("enabled")
def test_in_a_block_its_pipeline_counts_more(adding, notebook, other):
    with kp_langchain.recording_runs(other):
        adding.invoke(GO)

    assert other.story == ADDED
    assert notebook.started == 0


def test_blocks_of_concurrent_tasks_do_not_mix(adding, notebook, other):
    async def run_in_block(kp):
        with kp_langchain.recording_runs(kp):
            await asyncio.sleep(0)
            await adding.ainvoke(GO)

    async def run_both():
        await asyncio.gather(run_in_block(notebook), run_in_block(other))

    asyncio.run(run_both())

    assert notebook.story == other.story == ADDED


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
