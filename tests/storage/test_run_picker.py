"""A process scores its own runs first, and others' once those have stopped."""

import math

import pytest

from kp_middleware.storage import RunPicker
from kp_middleware.testing import FakeClock


@pytest.fixture
def record(keep):
    """Writes so many runs, and returns their places."""
    return lambda count: [keep() for _ in range(count)]


@pytest.fixture
def monotonic():
    return FakeClock(0.0)


@pytest.fixture
def picker(store, monotonic):
    return RunPicker(store, random=lambda: 0.5, monotonic=monotonic)


@pytest.fixture
def taken(store, picker):
    """Takes all in the order in which they are offered, each scored at once."""

    def take():
        found = []
        while (seq := picker.pick()) is not None:
            found.append(seq)
            store.fail(seq, "not_scored", "scored")
        return found

    return take


def test_ours_come_first_and_then_what_was_there_when_we_began_oldest_first(picker, record, taken):
    left, ours = record(3), record(2)
    picker.add(dict.fromkeys(ours))

    assert taken() == ours + left


def test_what_another_has_just_recorded_is_left_to_it_at_first(picker, record, monotonic, taken):
    picker.pick()
    theirs = record(2)

    at_once = taken()
    monotonic.advance(1)
    under_our_eyes = taken()
    monotonic.advance(1)

    assert (at_once, under_our_eyes, taken()) == ([], [], theirs)


def test_who_cannot_wait_takes_it_at_once(picker, record):
    picker.pick()
    theirs = record(1)

    assert picker.pick(at_once=True) == theirs[0]


def test_where_another_was_quicker_we_go_on_elsewhere_and_come_back(store, picker, record, taken):
    left = record(9)
    first = picker.pick()
    store.fail(first, "not_scored", "scored by another process")

    picker.skip_ahead()
    found = taken()

    assert found[0] == left[5 - 1]
    assert sorted(found) == left[1:]


def test_the_wait_is_reported_and_has_no_end_where_nothing_waits(store, picker, record, monotonic):
    picker.pick()
    without = picker.seconds_until_next()
    theirs = record(1)
    monotonic.advance(0.25)

    with_theirs = picker.seconds_until_next()
    store.fail(theirs[0], "not_scored", "scored")

    assert (without, with_theirs, picker.seconds_until_next()) == (math.inf, 0.75, math.inf)
