"""What the file remembers of its runs in the shared log."""

import json
import sqlite3
import time
from contextlib import closing

import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse
from kp_middleware.cli import main
from kp_middleware.sharing import ItemState
from kp_middleware.storage import History, SqliteStore

OTHER = "kp:trace:1339c0de-3f52-4d2b-9d2a-6b1f0c1f8f11"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kp.db"
    with KnowledgePulse(db=path, embedder=None) as kp:
        record = kp.capture(kp.tool(str.upper))
        record("one")
        record("two")
    return path


@pytest.fixture
def store(file):
    store = SqliteStore.at(file)
    yield store
    store.close()


def test_what_is_told_of_a_shared_run_is_written_to_the_log_once(file, store):
    with History.open(file) as history:
        second = history.run(2).id
    runs = store.shared_runs()
    runs.mark_shipped({second: 7})
    CliRunner().invoke(main, ["feedback", second, "--failure", "--db", str(file)])

    assert runs.to_revise(10) == [2]

    runs.mark_revised(2, runs.feedback_count(2))

    assert runs.to_revise(10) == []
    assert runs.appended(0, 10) == [(2, second)]


def test_runs_in_the_log_are_not_decided_anew(file, store):
    with History.open(file) as history:
        store.shared_runs().mark_shipped({history.run(2).id: 7})

    told = CliRunner().invoke(main, ["rescore", "--db", str(file)])

    assert told.exit_code == 1
    assert "in the shared log: use --dry-run" in told.output


def test_a_run_that_waits_to_be_shipped_is_not_pruned(file):
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE traces SET shared_seq = -1 WHERE seq = 1")

    CliRunner().invoke(main, ["prune", "--keep", "0", "--yes", "--db", str(file)])

    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT seq FROM traces").fetchall() == [(1,)]


def test_a_shared_run_does_not_name_the_private_one_that_it_is_like(file, store):
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE traces SET visibility = 'private' WHERE seq = 1")
        connection.execute(
            "UPDATE traces SET shared_seq = -1, nearest_seq = 1, nearest_similarity = 0.5"
            " WHERE seq = 2"
        )

    [(_, run)] = store.shared_runs().runs([2], "pod")

    assert (run.nearest, run.nearest_similarity) == (None, 0.5)


def test_what_is_told_of_a_run_that_is_not_shared_waits_for_no_log(file, store):
    CliRunner().invoke(main, ["feedback", "@last", "--failure", "--db", str(file)])

    assert store.shared_runs().backlog() == (0, 0, None)


def test_one_process_ships_for_a_file(store):
    ours, theirs = store.shared_runs(), store.shared_runs()

    assert ours.take_lease(30)
    assert not theirs.take_lease(30)

    ours.release_lease()

    assert theirs.take_lease(30)


def write(file, sql, *values):
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(sql, values).fetchall()


def test_a_lease_that_lasts_is_not_written_again(file, store):
    runs = store.shared_runs()
    runs.take_lease(30)
    [(before,)] = write(file, "SELECT value FROM meta WHERE key = 'shared lease'")

    assert runs.take_lease(30)
    assert write(file, "SELECT value FROM meta WHERE key = 'shared lease'") == [(before,)]


def test_a_lease_that_was_taken_a_moment_later_by_our_clock_is_another_s(file, store):
    store.shared_runs().take_lease(30)
    later = json.dumps(["another", time.time() + 30.5])
    write(file, "UPDATE meta SET value = ? WHERE key = 'shared lease'", later)

    assert not store.shared_runs().take_lease(30)


def test_a_lease_from_before_the_clock_was_set_back_holds_up_nobody(store):
    store.shared_runs().take_lease(100)

    assert store.shared_runs().take_lease(30)


def test_feedback_that_waits_is_told_to_a_log_that_was_restored(file, store):
    with History.open(file) as history:
        second = history.run(2).id
    runs = store.shared_runs()
    runs.mark_shipped({second: 7})
    CliRunner().invoke(main, ["feedback", second, "--failure", "--db", str(file)])

    runs.reset({second: 5}, first=1)

    assert runs.to_revise(10) == [2]
    assert runs.appended(0, 10) == [(2, second)]


@pytest.fixture
def handed_over(file, store):
    """The id of a run that waits in the shared outbox."""
    with History.open(file) as history:
        id_ = history.run(2).id
    store.shared_runs().mark_shipped({id_: 7})
    write(
        file,
        "INSERT INTO outbox (trace_seq, state, claimed_by, idempotency_key, registry, redactor)"
        " VALUES (2, 'pending', 'shared log k', 'k', 'r', 'x')",
    )
    return id_


def test_what_is_deleted_in_the_log_waits_no_more(file, store, handed_over):
    store.shared_runs().update_items(
        [ItemState(handed_over, "gone", None, 0, None, None, None, None)]
    )

    assert write(file, "SELECT state, reason FROM outbox") == [("cancelled", "by hand")]


def test_status_says_what_waits_for_the_log(file):
    write(file, "UPDATE traces SET state = 'recorded', shared_seq = -2, score = NULL")

    told = CliRunner().invoke(main, ["status", "--db", str(file)])

    assert "2 would clear and are waiting for the shared log" in " ".join(told.output.split())
    assert "the next program that records does it" not in told.output


def test_a_run_of_another_host_is_named_as_the_nearest(file):
    write(file, "UPDATE traces SET embedder = 'e', nearest_id = ?, nearest_similarity = 0.5", OTHER)

    told = CliRunner().invoke(main, ["show", "@last", "--why", "--db", str(file)])

    words = " ".join(told.output.split())
    assert "0.500 like 1339c0de, the nearest before it: another host's" in words
