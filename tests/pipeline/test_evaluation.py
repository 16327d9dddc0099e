"""One step after another, on a file that others use too."""

import sqlite3
from contextlib import contextmanager

import pytest
from pipeline_helpers import Meanwhile, column_of, echo, trace_of

from kp_middleware.runs import RecordedRun
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder

FAILING = (
    "CREATE TRIGGER failing BEFORE UPDATE OF score ON traces BEGIN SELECT raise(ABORT, 'x'); END"
)


class Interrupted(SqliteStore):
    """Meets a lock just after it has written a run."""

    left = 1

    @contextmanager
    def transaction(self):
        with super().transaction():
            yield
        if Interrupted.left:
            Interrupted.left -= 1
            raise sqlite3.OperationalError("database is locked")


def scores(connection):
    return connection.execute("SELECT state, novelty FROM traces ORDER BY seq").fetchall()


def test_what_was_rolled_back_is_not_remembered(pulse, connection):
    kp = pulse(sync=True)
    connection.execute(FAILING)
    kp.submit(trace_of())
    connection.execute("DROP TRIGGER failing")

    kp.submit(trace_of())

    assert scores(connection) == [("failed", None), ("scored", 0.5)]


def test_a_run_that_was_written_and_is_tried_again_is_kept_once(pulse, db, connection):
    kp = pulse(store=Interrupted.at(db))

    assert echo(kp)("one") == "one"
    kp.flush(30)

    assert (Interrupted.left, [state for state, _ in scores(connection)]) == (0, ["scored"])


@pytest.mark.parametrize("sync", [True, False])
def test_a_run_that_another_process_scores_meanwhile_is_scored_once(pulse, connection, sync):
    theirs = pulse()
    ours = pulse(embedder=Meanwhile(lambda: theirs.flush(30)), sync=sync)

    ours.submit(trace_of())
    ours.flush(30)

    assert scores(connection) == [("scored", 0.5)]
    assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (1,)


def test_two_processes_embed_nothing_twice_while_each_has_runs_of_its_own(pulse, connection):
    embedders = StandInEmbedder(), StandInEmbedder()
    both = [pulse(embedder=embedder) for embedder in embedders]
    [(each.submit(trace_of()), each.flush(30)) for each in both]
    [embedder.asked.clear() for embedder in embedders]
    for number in range(10):
        [each.submit(trace_of(f"{number} {at}")) for at, each in enumerate(both)]

    [each.flush(30) for each in both]

    assert [len(embedder.asked) for embedder in embedders] == [20, 20]  # the run, what was said
    assert {state for state, _ in scores(connection)} == {"scored"}


def test_a_run_that_has_taken_the_place_of_a_removed_one_is_scored_as_itself(pulse, connection, db):
    theirs = trace_of("theirs")

    def take_its_place():
        connection.execute("DELETE FROM traces")
        SqliteStore(connection).record(RecordedRun(trace=theirs, shape=theirs.shape))

    kp = pulse(embedder=Meanwhile(take_its_place))
    kp.submit(trace_of("ours"))
    kp.flush(30)

    assert (column_of(db, "id"), column_of(db, "state")) == ([theirs.id], ["scored"])
    assert column_of(db, "key", "vectors") == [theirs.id]
