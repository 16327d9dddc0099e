"""Who scores what: ours first, and what others left only when they do not do it themselves."""

import math
from contextlib import closing

import pytest

from kp_middleware import ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.runs import RecordedRun
from kp_middleware.storage import NextRun, SqliteStore
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
def steady():
    return FakeClock(0.0)


@pytest.fixture
def next_run(store, steady):
    return NextRun(store, luck=lambda: 0.5, steady=steady)


def taken(store, next_run):
    """In the order in which they are offered, each scored at once."""
    found = []
    while (seq := next_run.oldest()) is not None:
        found.append(seq)
        store.fail(seq, "not_scored", "scored")
    return found


def test_what_is_there_when_we_begin_is_done_at_once_oldest_first(store, next_run, record):
    left = record(3)

    assert taken(store, next_run) == left


def test_ours_come_first_in_their_order(store, next_run, record):
    left, ours = record(2), record(2)
    next_run.add(dict.fromkeys(ours))

    assert taken(store, next_run) == ours + left


def test_what_another_has_just_recorded_is_left_to_it_for_a_moment(store, next_run, record, steady):
    next_run.oldest()
    theirs = record(2)

    at_once = taken(store, next_run)
    steady.advance(1)
    under_our_eyes = taken(store, next_run)
    steady.advance(1)

    assert (at_once, under_our_eyes, taken(store, next_run)) == ([], [], theirs)


def test_who_cannot_wait_takes_it_at_once(next_run, record):
    next_run.oldest()
    theirs = record(1)

    assert next_run.oldest(at_once=True) == theirs[0]


def test_where_another_was_quicker_we_go_on_elsewhere_and_come_back(store, next_run, record):
    left = record(9)
    first = next_run.oldest()
    store.fail(first, "not_scored", "scored by another process")

    next_run.go_elsewhere()
    found = taken(store, next_run)

    assert found[0] == left[5 - 1]
    assert sorted(found) == left[1:]


def test_the_wait_is_told_and_has_no_end_where_nothing_waits(store, next_run, record, steady):
    next_run.oldest()
    without = next_run.in_s()
    theirs = record(1)
    steady.advance(0.25)

    with_theirs = next_run.in_s()
    store.fail(theirs[0], "not_scored", "scored")

    assert (without, with_theirs, next_run.in_s()) == (math.inf, 0.75, math.inf)
