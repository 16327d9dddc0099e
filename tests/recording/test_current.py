"""Which run are we in? By context, not by thread."""

import asyncio
import contextvars
import threading

import pytest

from kp_middleware.recording import Here, current_recorder, current_trace, inside, register_finder


@pytest.fixture
def finder():
    """Lets a framework say in which run we are, until the test ends."""
    asked = []
    yield lambda find: (asked.append(find), register_finder(lambda: find() if asked else None))
    asked.clear()


def test_outside_of_any_run_nothing_listens_and_nothing_breaks():
    trace = current_trace()

    trace.thought("hello")
    trace.outcome("done", confidence=1)
    trace.used_tokens(input_tokens=1, output_tokens=1)

    assert (trace.log.count, trace.result_summary, trace.input_tokens) == (0, "", None)
    assert current_recorder() is None


def test_inside_a_run_it_is_the_current_one(recorder):
    with inside(recorder):
        assert current_trace() is recorder

    assert current_recorder() is None


def test_a_run_inside_another_ends_before_it(recorder, notebook):
    inner = notebook.start()

    with inside(recorder):
        with inside(inner):
            within = current_recorder()
        after = current_recorder()

    assert (within, after) == (inner, recorder)


def test_a_run_that_has_ended_is_no_longer_the_current_one(recorder):
    with inside(recorder):
        recorder.finish()

        assert current_recorder() is None


def test_a_thread_is_outside_unless_it_is_given_the_context(recorder):
    seen = []

    with inside(recorder):
        context = contextvars.copy_context()
        threads = [
            threading.Thread(target=lambda: seen.append(current_recorder())),
            threading.Thread(target=lambda: seen.append(context.run(current_recorder))),
        ]
        [(thread.start(), thread.join()) for thread in threads]

    assert seen == [None, recorder]


async def seen_in(recorder):
    with inside(recorder):
        await asyncio.sleep(0)
        return await asyncio.gather(inner(), asyncio.to_thread(current_recorder))


async def inner():
    await asyncio.sleep(0)
    return current_recorder()


def test_tasks_that_take_turns_do_not_mix(notebook):
    one, other = notebook.start(), notebook.start()

    seen = asyncio.run(both(seen_in(one), seen_in(other)))

    assert seen == [[one, one], [other, other]]


async def both(*coroutines):
    return await asyncio.gather(*coroutines)


def test_a_framework_finds_the_run_where_no_captured_function_is(recorder, notebook, finder):
    inner = notebook.start()
    finder(lambda: None)
    finder(lambda: Here(recorder))

    with inside(inner):
        within = current_trace()

    assert (within, current_trace()) == (inner, recorder)


def test_a_framework_that_fails_finds_nothing(finder):
    finder(lambda: 1 / 0)

    assert current_recorder() is None


def test_a_block_that_is_left_in_another_context_is_left(recorder):
    block = inside(recorder)
    contextvars.copy_context().run(block.__enter__)

    block.__exit__(None, None, None)

    assert current_recorder() is None
