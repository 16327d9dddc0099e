"""The current run, propagated to where it would not be known."""

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from kp_middleware.recording import current_recorder, inside, propagate_context


def in_a_thread(function, *args):
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(function, *args).result()


async def recorder_after_a_while():
    await asyncio.sleep(0)
    return current_recorder()


def test_a_function_runs_in_the_run_that_it_was_wrapped_in(recorder):
    with inside(recorder):
        function = propagate_context(current_recorder)
        assert in_a_thread(current_recorder) is None

    assert in_a_thread(function) is recorder
    assert function() is recorder
    assert current_recorder() is None


def test_an_async_function_runs_in_the_run_that_it_was_wrapped_in(recorder):
    with inside(recorder):
        wrapped = propagate_context(recorder_after_a_while)

    assert in_a_thread(lambda: asyncio.run(wrapped())) is recorder
    assert asyncio.run(wrapped()) is recorder


def test_outside_of_any_run_it_is_outside(recorder):
    function = propagate_context(current_recorder)

    with inside(recorder):
        assert function() is None


def test_what_one_call_sets_no_other_sees():
    count = ContextVar("count", default=0)

    def add_one():
        count.set(count.get() + 1)
        return count.get()

    wrapped = propagate_context(add_one)

    assert [wrapped(), wrapped(), count.get()] == [1, 1, 0]


def test_notes_of_many_threads_at_once_are_all_in_the_run(notebook):
    together = threading.Barrier(4, timeout=30)

    def length(word):
        together.wait()
        return len(word)

    def count_all(words):
        count = propagate_context(notebook.tool(length))
        with ThreadPoolExecutor(max_workers=4) as pool:
            return sum(pool.map(count, words))

    assert notebook.capture(count_all)(["a", "bc"] * 10) == 30
    assert notebook.run.shape.steps == 40


def test_after_the_run_a_captured_function_is_a_run_of_its_own(notebook, recorder):
    with inside(recorder):
        wrapped = propagate_context(notebook.capture(str.upper))
    recorder.thought("done")
    recorder.finish()

    wrapped("late")

    assert len(notebook.runs) == 2


def test_the_function_stays_what_it_is():
    def add(a: int, *, b: int = 1) -> int:
        """Add."""
        return a + b

    wrapped = propagate_context(add)

    assert wrapped(1, b=2) == 3
    assert (wrapped.__name__, wrapped.__doc__) == ("add", "Add.")
    assert inspect.signature(wrapped) == inspect.signature(add)
    assert inspect.iscoroutinefunction(propagate_context(recorder_after_a_while))
    assert not inspect.iscoroutinefunction(wrapped)


def test_an_async_call_that_is_cancelled_is_cancelled_inside():
    cancelled = []

    async def wait():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append("inside")
            raise

    async def cancel():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(propagate_context(wait)(), 0.001)

    asyncio.run(cancel())

    assert cancelled == ["inside"]
