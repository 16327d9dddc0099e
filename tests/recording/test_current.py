"""The current run is that of the context, not of the thread."""

import contextvars

import pytest

from kp_middleware.recording import (
    CurrentRun,
    current_recorder,
    current_trace,
    inside,
    register_finder,
)


@pytest.fixture
def finder():
    """Lets a framework say in which run we are, until the test ends."""
    asked = []
    yield lambda find: (asked.append(find), register_finder(lambda: find() if asked else None))
    asked.clear()


def test_outside_of_any_run_nothing_listens_and_nothing_breaks():
    trace = current_trace()

    trace.thought("hello")
    trace.thought("wrong arguments", bogus=1)
    trace.tool_call()
    trace.outcome("done", confidence=1)

    assert (trace.log.count, trace.result_summary) == (0, "")
    assert current_recorder() is None


def test_a_run_is_the_current_one_in_its_block_until_it_has_ended(recorder, notebook):
    inner = notebook.start()

    with inside(recorder):
        assert current_trace() is recorder
        with inside(inner):
            assert current_recorder() is inner
        assert current_recorder() is recorder
        recorder.finish()
        assert current_recorder() is None


def test_a_framework_finds_the_run_where_no_captured_function_is(recorder, notebook, finder):
    inner = notebook.start()
    finder(lambda: None)
    finder(lambda: CurrentRun(recorder))

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
