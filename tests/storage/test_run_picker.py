"""Who scores what: ours first, and what others left only when they do not do it themselves."""

import math
from contextlib import closing

import pytest

from kp_middleware import ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.runs import RecordedRun
from kp_middleware.storage import RunPicker, SqliteStore
from kp_middleware.testing import FakeClock


@pytest.fixture
def store(db):
    with closing(connect(db)) as connection:
        yield SqliteStore(connection, scorer="test")


@pytest.fixture
def record(store):
    """Writes so many runs, and returns their places."""
    trace = ReasoningTrace.of("x", [Step(step_id=0, type="thought")])
    run = RecordedRun(trace=trace, shape=trace.shape)
    unlike = iter(range(1000))

    def another():
        return run.model_copy(
            update={"trace": trace.model_copy(update={"id": f"kp:trace:{next(unlike)}"})}
        )

    return lambda count: [store.record(another()) for _ in range(count)]


@pytest.fixture
def monotonic():
    return FakeClock(0.0)


@pytest.fixture
def picker(store, monotonic):
    return RunPicker(store, random=lambda: 0.5, monotonic=monotonic)


def taken(store, picker):
    """In the order in which they are offered, each scored at once."""
    found = []
    while (seq := picker.pick()) is not None:
        found.append(seq)
        store.fail(seq, "not_scored", "scored")
    return found


def test_what_is_there_when_we_begin_is_done_at_once_oldest_first(store, picker, record):
    left = record(3)

    assert taken(store, picker) == left


def test_ours_come_first_in_their_order(store, picker, record):
    left, ours = record(2), record(2)
    picker.add(dict.fromkeys(ours))

    assert taken(store, picker) == ours + left


def test_what_another_has_just_recorded_is_left_to_it_at_first(store, picker, record, monotonic):
    picker.pick()
    theirs = record(2)

    at_once = taken(store, picker)
    monotonic.advance(1)
    under_our_eyes = taken(store, picker)
    monotonic.advance(1)

    assert (at_once, under_our_eyes, taken(store, picker)) == ([], [], theirs)


def test_who_cannot_wait_takes_it_at_once(picker, record):
    picker.pick()
    theirs = record(1)

    assert picker.pick(at_once=True) == theirs[0]


def test_where_another_was_quicker_we_go_on_elsewhere_and_come_back(store, picker, record):
    left = record(9)
    first = picker.pick()
    store.fail(first, "not_scored", "scored by another process")

    picker.skip_ahead()
    found = taken(store, picker)

    assert found[0] == left[5 - 1]
    assert sorted(found) == left[1:]


def test_the_wait_is_told_and_has_no_end_where_nothing_waits(store, picker, record, monotonic):
    picker.pick()
    without = picker.seconds_until_next()
    theirs = record(1)
    monotonic.advance(0.25)

    with_theirs = picker.seconds_until_next()
    store.fail(theirs[0], "not_scored", "scored")

    assert (without, with_theirs, picker.seconds_until_next()) == (math.inf, 0.75, math.inf)
