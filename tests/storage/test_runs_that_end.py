"""Traces as they come to their end."""

import pytest
from stored_runs import run, scored, verdict

from kp_middleware.core.evaluation import Evaluation
from kp_middleware.storage import History


@pytest.fixture
def score(store):
    return lambda seq: store.save_evaluation(seq, Evaluation(scored(0.5), verdict()), took_ms=1)


def told(arrivals):
    return [run.objective for run in next(arrivals)]


def test_a_trace_is_told_once_when_it_is_scored(connection, keep, score):
    keep("before", score=0.5)
    arrivals = History(connection).tail()
    assert told(arrivals) == []

    seq = keep("new")
    assert told(arrivals) == []
    score(seq)

    assert told(arrivals) == ["new"]
    assert told(arrivals) == []


def test_one_that_was_waiting_already_is_told_when_it_ends(connection, keep, store, score):
    scored_later, given_up = keep("scored later"), keep("given up")
    keep("newest", score=0.5)
    arrivals = History(connection).tail()
    assert told(arrivals) == []

    score(scored_later)
    store.fail(given_up, "not_scored", "no")

    assert told(arrivals) == ["scored later", "given up"]


def test_the_last_ones_come_first_if_they_are_wanted(connection, keep):
    [keep(name, score=0.5) for name in "abc"]
    keep("waits")

    assert told(History(connection).tail(first=2)) == ["b", "c"]
    assert told(History(connection).tail(first=9)) == ["a", "b", "c"]
    assert told(History(connection).tail(first=0)) == []


def test_one_that_overtakes_another_is_told_at_once(connection, keep, score):
    arrivals = History(connection).tail()
    assert told(arrivals) == []
    slow = keep("slow")
    keep("fast", score=0.5)

    assert told(arrivals) == ["fast"]
    score(slow)
    assert told(arrivals) == ["slow"]


def test_an_incomplete_one_is_told(connection, store):
    arrivals = History(connection).tail()
    assert told(arrivals) == []

    store.record(run("cancelled", complete=False))

    assert told(arrivals) == ["cancelled"]


def test_places_that_became_free_are_no_reason_to_be_silent(connection, keep):
    [keep(name, score=0.5) for name in "abc"]
    arrivals = History(connection).tail()
    assert told(arrivals) == []

    connection.execute("DELETE FROM traces")
    assert told(arrivals) == []
    keep("d", score=0.5)

    assert told(arrivals) == ["d"]


def test_one_that_is_removed_before_it_ends_is_forgotten(connection, keep):
    seq = keep("doomed")
    arrivals = History(connection).tail()
    assert told(arrivals) == []

    connection.execute("DELETE FROM traces WHERE seq = ?", (seq,))

    assert told(arrivals) == []
