"""Captured functions in progress: generators, cancellation and concurrent runs."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from captured_functions import coroutine, generator, plain
from notebook import line, run_of

from kp_middleware.recording import current_recorder, current_trace


def echo(_question):
    heard = []
    try:
        while len(heard) < 3:
            try:
                heard.append((yield f"heard {len(heard)}"))
            except KeyError as error:
                heard.append(str(error))
    finally:
        current_trace().thought(f"{heard}")
    return heard


def test_a_generator_is_sent_to_and_thrown_into_and_returns(notebook, capture):
    running = capture(echo)("why")

    yielded = [next(running), running.send("a"), running.throw(KeyError("b"))]
    with pytest.raises(StopIteration) as stop:
        running.send("c")

    assert yielded == ["heard 0", "heard 1", "heard 2"]
    assert stop.value.value == ["a", "'b'", "c"]
    assert notebook.run.trace.outcome.result_summary == "heard 0heard 1heard 2"


def test_a_generator_that_is_closed_or_dropped_is_an_incomplete_run(notebook, capture):
    closed, dropped = capture(echo)("why"), capture(echo)("why")
    next(closed)
    closed.close()
    next(dropped)
    del dropped

    for run in notebook.runs:
        assert [*map(line, run.trace.steps)] == ["thought []", "observation GeneratorExit"]
        assert (run.complete, run.trace.metadata.success) == (False, False)
        assert run.trace.outcome.result_summary == "heard 0"
    assert len(notebook.runs) == 2


def test_a_generator_that_is_never_iterated_is_no_run(notebook, capture):
    capture(generator)("why").close()

    assert notebook.ended == []


def test_an_inner_generator_or_tool_whose_caller_had_enough_did_not_fail(notebook, capture, tool):
    pages = tool(lambda: (f"page {number}" for number in range(9)), name="pages")
    inner = capture(generator)

    capture(lambda question: (next(pages()), next(inner(question, times=5))))("why")

    assert notebook.story == [
        "tool_call pages {}",
        "observation pages page 0",
        "thought about why",
    ]
    assert notebook.run.shape.recoveries == 0


def test_generators_that_take_turns_do_not_mix(notebook, capture):
    one, other = capture(echo)("one"), capture(echo)("other")

    [(next(one), next(other)) for _ in range(3)]
    [running.close() for running in (one, other)]

    assert [run.trace.task.objective for run in notebook.runs] == ["one", "other"]
    assert [run.shape.steps for run in notebook.runs] == [2, 2]


@pytest.mark.parametrize(
    ("items", "result"),
    [
        (["word "] * 5000, "word " * 5000),
        (["a", {"b": 1}], '["a", {"b": 1}]'),
        (["x" * 10_238] * 1000, "x" * 10_238 * 6 + "… [cut: 1000 items in all]"),
    ],
    ids=["texts", "not all texts", "a stream of 10 MB"],
)
def test_what_was_yielded_is_the_result(notebook, capture, items, result):
    [*capture(lambda _question: (item for item in items))("why")]

    assert notebook.run.trace.outcome.result_summary == result


async def async_echo(_question):
    heard = []
    try:
        while len(heard) < 3:
            try:
                heard.append((yield f"heard {len(heard)}"))
            except KeyError as error:
                heard.append(str(error))
    finally:
        await asyncio.sleep(0)
        current_trace().thought(f"{heard}")


async def talk_to(running):
    yielded = [await anext(running), await running.asend("a"), await running.athrow(KeyError("b"))]
    with pytest.raises(StopAsyncIteration):
        await running.asend("c")
    return yielded


def test_an_async_generator_is_sent_to_and_thrown_into(notebook, capture):
    yielded = asyncio.run(talk_to(capture(async_echo)("why")))

    assert yielded == ["heard 0", "heard 1", "heard 2"]
    assert notebook.story == ["thought ['a', \"'b'\", 'c']"]


async def close_early(running):
    await anext(running)
    await running.aclose()
    assert current_recorder() is None


async def break_out(running):
    async for _ in running:
        break


def test_an_async_generator_that_is_closed_is_an_incomplete_run(notebook, capture):
    asyncio.run(close_early(capture(async_echo)("why")))

    assert notebook.story == ["thought []", "observation GeneratorExit"]
    assert not notebook.run.complete


def test_an_async_generator_whose_loop_is_broken_is_an_incomplete_run(notebook, capture):
    asyncio.run(break_out(capture(async_echo)("why")))

    assert not notebook.run.complete


async def cancelled(coroutine):
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def forever(_question):
    current_trace().thought("waiting")
    await asyncio.sleep(60)


async def forever_yielding(question):
    yield await forever(question)


@pytest.mark.parametrize(
    "start",
    [
        lambda capture: capture(forever)("why"),
        lambda capture: break_out(capture(forever_yielding)("why")),
    ],
    ids=["coroutine", "async generator"],
)
def test_a_cancelled_run_is_incomplete(notebook, capture, start):
    asyncio.run(cancelled(start(capture)))

    assert notebook.story == ["thought waiting", "observation CancelledError"]
    assert (notebook.run.complete, notebook.run.error_type) == (False, "CancelledError")


@pytest.mark.parametrize(
    ("error", "complete"),
    [(KeyboardInterrupt(), False), (SystemExit(3), False), (StopIteration("mine"), True)],
    ids=repr,
)
def test_what_interrupts_a_function_passes_as_it_is(notebook, capture, error, complete):
    def stop(_question):
        raise error

    with pytest.raises(type(error)) as raised:
        capture(stop)("why")

    assert raised.value is error
    assert notebook.story[0] == 'thought stop({"_question": "why"})'
    assert (notebook.run.complete, notebook.run.error_type) == (complete, type(error).__name__)


async def at_once(*coroutines):
    return await asyncio.gather(*coroutines)


def test_runs_at_the_same_time_do_not_mix(notebook, capture):
    captured = capture(coroutine)

    asyncio.run(at_once(*(captured(name) for name in "abc")))

    assert [(run.trace.task.objective, line(run.trace.steps[0])) for run in notebook.runs] == [
        (name, f"thought about {name}") for name in "abc"
    ]


def test_runs_in_threads_do_not_mix(notebook, capture):
    with ThreadPoolExecutor(3) as pool:
        [*pool.map(capture(plain), "abc")]

    assert {(r.trace.task.objective, line(r.trace.steps[0])) for r in notebook.runs} == {
        (name, f"thought about {name}") for name in "abc"
    }


def test_a_tool_may_be_used_by_several_tasks_of_one_run(notebook, capture, tool):
    search = tool(coroutine, name="search")

    @capture
    async def agent(_question):
        return await at_once(*(search(name) for name in "ab"))

    asyncio.run(agent("why"))

    assert notebook.run.shape.steps == 6
    assert notebook.run.shape.tools == 1


def test_a_tool_that_outlives_its_run_disturbs_nobody(notebook, capture, tool):
    left = []
    capture(lambda question: left.append(tool(generator)(question)) or next(left[0]))("why")

    rest = [*left[0]]

    assert rest == []
    assert run_of(notebook.ended[0]).shape.steps == 2
