"""Many runs, through one handler: apart, bounded, and never in the agent's way."""

import asyncio
import copy
import gc
import tracemalloc
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import GO, agent, cancelled, wait
from scripted_events import answering
from scripted_models import ScriptedModel, answer_of, calls

import kp_langchain
import kp_middleware
from kp_langchain import KPCallbackHandler
from kp_middleware.recording import shield

OURS = [
    tracemalloc.Filter(inclusive=True, filename_pattern=str(Path(package.__file__).parent / "*"))
    for package in (kp_langchain, kp_middleware)
]
ADDS = [calls("I add.", add={"a": 1, "b": 2}), answer_of("3")]


@pytest.fixture
def memory():
    """Return the number of bytes that our code has allocated and not freed."""
    tracemalloc.start()
    yield allocated
    tracemalloc.stop()


def allocated():
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces(OURS)
    return sum(trace.size for trace in snapshot.traces)


@pytest.mark.slow
def test_a_thousand_cancelled_runs_leave_nothing(memory, config, notebook, live_spans):
    waiting = agent(calls(wait={"seconds": 60}), tools=[wait])
    ended = []
    notebook.ended = SimpleNamespace(append=lambda recorder: ended.append(recorder.complete))

    async def cancel_many(times):
        for _ in range(times):
            await asyncio.gather(*[cancelled(waiting, config) for _ in range(100)])

    asyncio.run(cancel_many(1))
    before = memory()
    asyncio.run(cancel_many(10))
    after = memory()

    assert (notebook.started, ended) == (1100, [False] * 1100)
    assert len(live_spans) == len(live_spans._root_ids) == 0
    assert after - before < 400 * 1024  # the ids of what is over are known for a while


@tool
def read_all(path: str) -> str:
    """Read ten megabytes."""
    return path * 10_000_000


def test_case_26_a_tool_result_of_ten_megabytes_is_cut_with_a_marker(config, notebook):
    reading = agent(calls(read_all={"path": "x"}), answer_of("long"), tools=[read_all])

    reading.invoke(GO, config)

    [result] = [step for step in notebook.trace.steps if step.type == "observation"]
    assert result.output_summary.endswith("x… [cut: 10000000 characters in all]")
    assert len(result.output_summary) < 65 * 1024


def test_case_24_a_run_id_may_be_used_again(config, notebook):
    with_id = config | {"run_id": uuid.uuid4()}

    agent(*ADDS).invoke(GO, with_id)
    agent(*ADDS).invoke(GO, with_id)

    assert [len(run.trace.steps) for run in notebook.runs] == [4, 4]


def test_where_too_many_runs_never_end_the_oldest_are_given_up_and_in_the_end_forgotten(
    handler, notebook
):
    oldest, *_ = run_ids = [uuid.uuid4() for _ in range(2048 + 2 * 4097)]
    for number, run_id in enumerate(run_ids):
        handler.on_chain_start(None, f"question {number}", run_id=run_id)

    inner = uuid.uuid4()
    handler.on_chain_start(None, "inside the oldest", run_id=inner, parent_run_id=oldest)
    assert notebook.started - len(notebook.ended) == 2048
    handler.on_chain_end({}, run_id=inner)

    first, second, *_, last = notebook.ended
    assert (first.objective, second.objective) == ("question 0", "question 1")
    assert (first.complete, last.objective) == (False, "inside the oldest")
    assert (handler.trace_id(oldest), handler.trace_id(uuid.uuid4())) == (None, None)


def test_case_26_a_run_of_ten_thousand_steps_is_bounded(handler, notebook, live_spans):
    root, run = uuid.uuid4(), uuid.uuid4()
    handler.on_chain_start(None, "go", run_id=root)
    for _ in range(5000):
        handler.on_tool_start({"name": "add"}, "1 + 2", run_id=run, parent_run_id=root)
        handler.on_tool_end("3", run_id=run, parent_run_id=root)
    handler.on_chain_end({}, run_id=root)

    assert notebook.run.shape.steps == 10_000
    assert len(notebook.trace.steps) == 1000
    assert len(live_spans) == 0


def test_calls_that_nobody_runs_take_no_more_and_more_memory(handler, live_spans):
    root, run = uuid.uuid4(), uuid.uuid4()
    handler.on_chain_start(None, "go", run_id=root)
    for number in range(3000):
        call = {"name": "add", "args": {}, "id": f"call {number % 2000}"}
        handler.on_chat_model_start({}, [[]], run_id=run, parent_run_id=root)
        handler.on_llm_end(answering(AIMessage("", tool_calls=[call])), run_id=run)

    [live] = live_spans._root_ids.values()
    assert len(live_spans._live_spans[live].conversation.pending_calls) == 1024


def test_where_recording_is_off_it_is_asked_once_a_run(notebook):
    asked = []
    notebook.start_recording = asked.append
    handler = KPCallbackHandler(notebook)

    agent(*ADDS).invoke(GO, {"callbacks": [handler]})

    assert len(asked) == 1
    assert len(handler._runs) == 0


def broken(notebook):
    """A handler whose pipeline has a bug."""

    def fail(_framework):
        raise RuntimeError("a bug of ours")

    notebook.start_recording = fail
    return KPCallbackHandler(notebook)


def test_case_27_a_bug_of_ours_does_not_reach_the_agent(notebook):
    result = agent(*ADDS).invoke(GO, {"callbacks": [broken(notebook)]})

    assert result["messages"][-1].text == "3"


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        ("on_chain_start", ({}, {})),
        ("on_chat_model_start", ({}, [["a", "b"]])),
        ("on_tool_start", ({"name": "t"}, "x")),
        ("on_retriever_start", ({}, "x")),
    ],
)
def test_case_27_each_hook_counts_its_bugs_and_logs_them_once(notebook, caplog, hook, told):
    call = getattr(broken(notebook), hook)

    for _ in range(3):
        call(*told, run_id=uuid.uuid4())

    assert shield.failures[f"KPCallbackHandler.{hook}: RuntimeError"] == 3
    assert len([record for record in caplog.records if "not recorded" in record.message]) == 1


class Hostile:
    """Raises whenever it is asked for something that it does not have."""

    def __getattr__(self, name):
        raise RuntimeError("do not look")

    def __repr__(self):
        raise RuntimeError("do not look")


def test_hostile_inputs_and_outputs_do_not_cost_the_trace(config, notebook):
    model = ScriptedModel(turns=[answer_of("hi")])

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
