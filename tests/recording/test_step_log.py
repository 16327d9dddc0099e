"""Bounded memory, true counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.recording import Recorder
from kp_middleware.traces import Limits

TYPES = ["thought", "tool_call", "observation", "error_recovery"]


def thought(number):
    return {"type": "thought", "content": str(number)}


def contents(log):
    return [step.get("content", step.get("output_summary")) for step in log.steps()]


def log_of(given_steps, **limits):
    log = Recorder(print, Limits(**limits), framework="python").log
    [log.append(step, len(str(step))) for step in given_steps]
    return log


@pytest.mark.parametrize(
    ("count", "most", "kept"),
    [
        (0, 4, []),
        (4, 4, ["0", "1", "2", "3"]),
        (5, 4, ["0", "[2 of 5 steps left out here]", "3", "4"]),
        (9, 2, ["[8 of 9 steps left out here]", "8"]),
        (9, 3, ["0", "[7 of 9 steps left out here]", "8"]),
        (9, 5, ["0", "1", "[5 of 9 steps left out here]", "7", "8"]),
    ],
)
def test_the_marker_is_one_of_the_limit_and_stands_where_something_is_left_out(count, most, kept):
    assert contents(log_of(map(thought, range(count)), steps=most)) == kept


LONG = "x" * 9000
HALF = "x" * 3000


@pytest.mark.parametrize(
    ("given_contents", "kept"),
    [
        (
            [digit * 950 for digit in "01234567"],
            ["0" * 950, "1" * 950, "[4 of 8 steps left out here]", "6" * 950, "7" * 950],
        ),
        (["1", LONG], ["1", LONG]),
        (["1", "2", LONG, "4"], ["1", "2", "[1 of 4 steps left out here]", "4"]),
        ([HALF, "2", "3"], [HALF, "2", "3"]),
    ],
    ids=["all long", "the last is too long", "one is too long", "the first is long"],
)
def test_within_the_size_the_beginning_and_the_end_are_kept(given_contents, kept):
    steps = [{"type": "thought", "content": content} for content in given_contents]

    assert contents(log_of(steps, trace_bytes=5000)) == kept


def test_what_was_left_out_still_counts():
    step = {"type": "tool_call", "tool": {"name": "search"}, "input": {"q": "x" * 9000}}

    log = log_of([step, thought(1), thought(2)], trace_bytes=5000)

    assert (log.shape().tools, log.shape().steps) == (1, 3)


def test_a_demoted_step_is_an_observation_where_it_is_kept_and_where_it_is_counted():
    log = log_of([])
    step = {"type": "error_recovery", "output_summary": "no"}
    log.append(step, 2)

    log.mark_fatal(step)

    assert log.steps()[0]["type"] == "observation"
    assert (log.shape().types, log.shape().recoveries) == ({"observation"}, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TYPES), st.sampled_from([None, "a", "b", "c"]), st.integers(0, 99)
        ),
        max_size=60,
    ),
    st.integers(2, 20),
    st.integers(0, 3000),
)
def test_whatever_comes_is_counted_truly_and_kept_within_bounds(given_steps, most, trace_bytes):
    steps = [
        {"type": kind, "content": "x" * size} | ({"tool": {"name": tool}} if tool else {})
        for kind, tool, size in given_steps
    ]

    log = log_of(steps, steps=most, trace_bytes=trace_bytes)

    shape = log.shape()
    assert shape.steps == len(steps)
    assert shape.types == {step["type"] for step in steps}
    assert shape.tools == len({tool for _, tool, _ in given_steps} - {None})
    assert shape.recoveries == [step["type"] for step in steps].count("error_recovery")
    assert len(log.steps()) <= most
    assert log.size_bytes <= trace_bytes + 300
