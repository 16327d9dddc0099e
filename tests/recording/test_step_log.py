"""Bounded memory, true counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.recording import Limits, Recorder

TYPES = ["thought", "tool_call", "observation", "error_recovery"]


def thought(number):
    return {"type": "thought", "content": str(number)}


def contents(log):
    return [step.get("content", step.get("output_summary")) for step in log.steps()]


def log_of(given_steps, **limits):
    log = Recorder(print, Limits(**limits), framework="python").log
    [log.append(step, len(str(step))) for step in given_steps]
    return log


def test_a_long_run_keeps_its_first_and_last_half_and_says_what_is_between():
    log = log_of([thought(number) for number in range(10_000)])

    kept = contents(log)

    assert kept[:499] == [str(number) for number in range(499)]
    assert kept[499] == "[9001 of 10000 steps left out here]"
    assert kept[500:] == [str(number) for number in range(9500, 10_000)]
    assert (log.shape().steps, log.shape().recoveries) == (10_000, 0)


@pytest.mark.parametrize(
    ("count", "kept"),
    [
        (0, []),
        (4, ["0", "1", "2", "3"]),
        (5, ["0", "[2 of 5 steps left out here]", "3", "4"]),
    ],
    ids=["none", "all", "one too many"],
)
def test_the_marker_stands_where_something_is_left_out(count, kept):
    assert contents(log_of(map(thought, range(count)), steps=4)) == kept


@pytest.mark.parametrize(
    ("most", "kept"),
    [
        (2, ["[8 of 9 steps left out here]", "8"]),
        (3, ["0", "[7 of 9 steps left out here]", "8"]),
        (5, ["0", "1", "[5 of 9 steps left out here]", "7", "8"]),
    ],
)
def test_the_marker_is_one_of_the_limit(most, kept):
    assert contents(log_of(map(thought, range(9)), steps=most)) == kept


def test_a_run_of_long_steps_keeps_its_beginning_and_its_end_within_the_size():
    long = [{"type": "thought", "content": f"{number:03}" + "x" * 900} for number in range(100)]

    log = log_of(long, trace_bytes=5000)

    kept = [content[:3] for content in contents(log)]
    assert kept == ["000", "001", "[96", "098", "099"]
    assert log.size_bytes <= 5000


def test_the_last_step_is_kept_whatever_its_size():
    log = log_of([thought(1), {"type": "thought", "content": "x" * 9000}], trace_bytes=5000)

    assert contents(log)[-1] == "x" * 9000


def test_a_step_larger_than_all_others_does_not_cost_the_beginning():
    long = {"type": "thought", "content": "x" * 9000}

    log = log_of([thought(1), thought(2), long, thought(4)], trace_bytes=5000)

    assert contents(log) == ["1", "2", "[1 of 4 steps left out here]", "4"]


def test_a_last_step_larger_than_all_others_is_kept_beside_the_beginning():
    long = {"type": "thought", "content": "x" * 9000}

    assert contents(log_of([thought(1), long], trace_bytes=5000)) == ["1", "x" * 9000]


def test_what_the_first_half_does_not_need_the_last_steps_may_use():
    long = {"type": "thought", "content": "x" * 3000}

    assert log_of([long, thought(2), thought(3)], trace_bytes=5000).kept == 3


def test_what_was_left_out_still_counts():
    step = {"type": "tool_call", "tool": {"name": "search"}, "input": {"q": "x" * 9000}}

    log = log_of([step, thought(1), thought(2)], trace_bytes=5000)

    assert (log.shape().tools, log.shape().steps) == (1, 3)


def test_a_demoted_step_is_an_observation_where_it_is_kept_and_where_it_is_counted():
    log = log_of([])
    step = {"type": "error_recovery", "output_summary": "no"}
    log.append(step, 2)

    log.demote(step)

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
