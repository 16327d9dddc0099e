"""Runs as they come to their end."""

import pytest
from stored_runs import scored, verdict

from kp_middleware.core.evaluation import Evaluation


@pytest.fixture
def score(store):
    return lambda seq: store.save_evaluation(seq, Evaluation(scored(0.5), verdict()), took_ms=1)


def objectives(tail):
    return [run.objective for run in next(tail)]


def test_a_run_is_given_once_when_it_ends_whatever_ends_before_it(history, keep, score):
    keep("before", score=0.5)
    tail = history.tail()
    assert objectives(tail) == []

    slow = keep("slow")
    assert objectives(tail) == []
    keep("fast", score=0.5)
    keep("cancelled", complete=False)
    assert objectives(tail) == ["fast", "cancelled"]
    score(slow)

    assert objectives(tail) == ["slow"]
    assert objectives(tail) == []


def test_one_that_was_waiting_already_is_given_when_it_ends(history, keep, store, score):
    scored_later, given_up = keep("scored later"), keep("given up")
    keep("newest", score=0.5)
    tail = history.tail()
    assert objectives(tail) == []

    score(scored_later)
    store.fail(given_up, "not_scored", "no")

    assert objectives(tail) == ["scored later", "given up"]


def test_the_last_ones_come_first_if_they_are_wanted(history, keep):
    [keep(name, score=0.5) for name in "abc"]
    keep("waits")

    assert objectives(history.tail(first=2)) == ["b", "c"]
    assert objectives(history.tail(first=9)) == ["a", "b", "c"]
    assert objectives(history.tail(first=0)) == []


def test_what_is_removed_is_forgotten_and_what_takes_its_place_is_given(history, connection, keep):
    [keep(name, score=0.5) for name in "abc"]
    keep("removed before it ends")
    tail = history.tail()
    assert objectives(tail) == []

    connection.execute("DELETE FROM traces")
    assert objectives(tail) == []
    keep("d", score=0.5)

    assert objectives(tail) == ["d"]
