"""Many runs, through one handler: apart, bounded, and never in the agent's way."""

import asyncio
import copy
import gc
import tracemalloc
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import add, agent, cancelled, wait
from scripted_models import ScriptedModel, StreamingModel, calls, says

import kp_langchain
import kp_middleware
from kp_langchain import KPCallbackHandler
from kp_middleware.recording import Limits, Recorder, shield

GO = {"messages": "go"}
OURS = [
    tracemalloc.Filter(inclusive=True, filename_pattern=str(Path(package.__file__).parent / "*"))
    for package in (kp_langchain, kp_middleware)
]
ADDS = [calls("I add.", add={"a": 1, "b": 2}), says("3")]


@pytest.fixture
def memory():
    """How many bytes our own code has allocated and not given back."""
    tracemalloc.start()
    yield allocated
    tracemalloc.stop()


def allocated():
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces(OURS)
    return sum(trace.size for trace in snapshot.traces)


class Counter:
    """A pipeline that keeps nothing of what it is given."""

    def __init__(self):
        self.started = self.ended = 0

    def start_recording(self, framework):
        self.started += 1
        return Recorder(self.end, Limits(), framework=framework)

    def end(self, _recorder):
        self.ended += 1


@pytest.mark.slow
def test_a_thousand_cancelled_runs_leave_nothing(memory):
    waiting = agent(calls(wait={"seconds": 60}), tools=[wait])
    config = {"callbacks": [handler := KPCallbackHandler(counter := Counter())]}

    async def cancel_many(times):
        for _ in range(times):
            await asyncio.gather(*[cancelled(waiting, config) for _ in range(100)])

    asyncio.run(cancel_many(1))
    before = memory()
    asyncio.run(cancel_many(10))
    after = memory()

    assert counter.started == counter.ended == 1100
    assert len(handler._runs) == len(handler._runs._roots) == 0
    assert after - before < 400 * 1024  # the ids of what is over are known for a while


def test_streams_that_are_closed_early_leave_nothing(handler, config, notebook):
    chain = StreamingModel(turns=[says("one two three")]) | StrOutputParser()

    def close_early():
        stream = chain.stream("count", config)
        next(stream)
        stream.close()

    async def aclose_early():
        stream = chain.astream("count", config)
        await anext(stream)
        await stream.aclose()

    async def close_many():
        _ = [await aclose_early() for _ in range(500)]
        while len(handler._runs):  # the loop closes the streams inside a turn later
            await asyncio.sleep(0)

    _ = [close_early() for _ in range(500)]
    asyncio.run(close_many())

    assert len(notebook.runs) == 1000
    assert len(handler._runs) == len(handler._runs._roots) == 0


@tool
def read_all(path: str) -> str:
    """Read ten megabytes."""
    return path * 10_000_000


def test_case_26_a_tool_result_of_ten_megabytes_is_cut_with_a_marker(config, notebook):
    reading = agent(calls(read_all={"path": "x"}), says("long"), tools=[read_all])

    reading.invoke(GO, config)

    [result] = [step for step in notebook.trace.steps if step.type == "observation"]
    assert result.output_summary.endswith("x… [cut: 10000000 characters in all]")
    assert len(result.output_summary) < 65 * 1024


def test_case_24_a_run_id_may_be_used_again(config, notebook):
    with_id = config | {"run_id": uuid.uuid4()}

    agent(*ADDS).invoke(GO, with_id)
    agent(*ADDS).invoke(GO, with_id)

    assert [len(run.trace.steps) for run in notebook.runs] == [4, 4]


def test_where_too_many_runs_never_end_the_oldest_is_given_up(handler, notebook):
    questions = [f"question {number}" for number in range(2049)]

    _ = [handler.on_chain_start(None, text, run_id=uuid.uuid4()) for text in questions]

    [given_up] = notebook.ended
    assert given_up.objective == "question 0"
    assert given_up.complete is False
    assert len(handler._runs) == 2048


def test_what_was_given_up_long_ago_is_forgotten(handler, notebook):
    oldest, *_ = run_ids = [uuid.uuid4() for _ in range(2048 + 2 * 4097)]
    for run_id in run_ids:
        handler.on_chain_start(None, "question", run_id=run_id)

    inner = uuid.uuid4()
    handler.on_chain_start(None, "inside the oldest", run_id=inner, parent_run_id=oldest)
    handler.on_chain_end({}, run_id=inner)

    assert notebook.ended[-1].objective == "inside the oldest"


@pytest.mark.slow
def test_case_26_a_thousand_runs_at_once_stay_apart(config, notebook):
    running = agent(*ADDS)

    async def run_many():
        questions = [{"messages": f"question {number}"} for number in range(1000)]
        await asyncio.gather(*[running.ainvoke(question, config) for question in questions])

    asyncio.run(run_many())

    assert len({run.trace.task.objective for run in notebook.runs}) == 1000
    assert {len(run.trace.steps) for run in notebook.runs} == {4}


def test_case_26_a_run_of_ten_thousand_steps_is_bounded(handler, config, notebook):
    def use_tools(_):
        for number in range(5000):
            add.invoke({"a": number, "b": 1})

    RunnableLambda(use_tools).invoke("go", config)

    assert notebook.run.shape.steps == 10_000
    assert len(notebook.trace.steps) == 1000
    assert len(handler._runs) == 0


def test_case_25_one_handler_serves_many_threads(handler, config, notebook):
    running = agent(*ADDS)

    with ThreadPoolExecutor(max_workers=20) as pool:
        pool.map(lambda _: running.invoke(GO, config), range(20))

    assert [len(run.trace.steps) for run in notebook.runs] == [4] * 20
    assert len(handler._runs) == 0


class SwitchedOff:
    """A pipeline that records nothing."""

    def __init__(self):
        self.asked = 0

    def start_recording(self, _framework):
        self.asked += 1


def test_where_recording_is_off_it_is_asked_once_a_run():
    off = SwitchedOff()
    handler = KPCallbackHandler(off)

    agent(*ADDS).invoke(GO, {"callbacks": [handler]})

    assert off.asked == 1
    assert len(handler._runs) == 0


class Broken:
    """A pipeline with a bug."""

    def __init__(self, bug=RuntimeError):
        self.bug = bug

    def start_recording(self, _framework):
        raise self.bug("a bug of ours")


def test_case_27_a_bug_of_ours_does_not_reach_the_agent():
    handler = KPCallbackHandler(Broken())

    result = agent(*ADDS).invoke(GO, {"callbacks": [handler]})

    assert result["messages"][-1].text == "3"


def test_a_failure_of_ours_is_counted_by_the_event_that_it_was_in(handler):
    handler.on_retriever_end([], run_id=None)

    assert shield.failures["KPCallbackHandler.on_retriever_end: AttributeError"] == 1


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        ("on_chain_start", ({}, {})),
        ("on_chat_model_start", ({}, [["a", "b"]])),
        ("on_tool_start", ({"name": "t"}, "x")),
        ("on_retriever_start", ({}, "x")),
    ],
)
def test_case_27_each_hook_counts_its_bugs_and_logs_them_once(caplog, hook, told):
    bug = type(f"BugOf_{hook}", (RuntimeError,), {})  # of a kind that was never logged before
    call = getattr(KPCallbackHandler(Broken(bug)), hook)
    before = shield.failures.total()

    for _ in range(3):
        call(*told, run_id=uuid.uuid4())

    assert shield.failures.total() == before + 3
    assert len([record for record in caplog.records if "not recorded" in record.message]) == 1


class Hostile:
    """Raises whenever it is asked for something that it does not have."""

    def __getattr__(self, name):
        raise RuntimeError("do not look")

    def __repr__(self):
        raise RuntimeError("do not look")


def test_hostile_inputs_and_outputs_do_not_cost_the_trace(config, notebook):
    model = ScriptedModel(turns=[says("hi")])

    RunnableLambda(lambda hostile: (model.invoke("go"), hostile)[1]).invoke(Hostile(), config)

    assert notebook.story == ["thought: hi"]


def test_case_29_the_agents_objects_are_not_changed(config):
    inputs = {"messages": [HumanMessage("go", id="1")]}
    before = copy.deepcopy(inputs)

    agent(*ADDS).invoke(inputs, config)

    assert inputs == before


def test_a_copied_config_reports_to_the_same_handler(config, notebook):
    agent(*ADDS).invoke(GO, copy.deepcopy(config))

    assert len(notebook.runs) == 1
