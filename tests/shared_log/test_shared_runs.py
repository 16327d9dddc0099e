"""The file's record of its runs in the shared log."""

import json
import sqlite3
import time
from contextlib import closing

import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse
from kp_middleware.cli import main
from kp_middleware.shared_log import ItemState
from kp_middleware.storage import History, SqliteStore

OTHER = "kp:trace:1339c0de-3f52-4d2b-9d2a-6b1f0c1f8f11"
LEASE = "SELECT value FROM meta WHERE key = 'shared lease'"


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


@pytest.fixture
def second(file):
    """The id of the second run."""
    with History.open(file) as history:
        return history.run(2).id


@pytest.fixture
def typed(file):
    return lambda *words: CliRunner().invoke(main, [*words, "--db", str(file)])


@pytest.fixture
def sql(file):
    """Runs a statement on the file; gives the rows."""

    def run(statement, *values):
        with closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    return run


def test_what_is_reported_of_a_shared_run_is_written_once_to_the_log_also_to_a_restored_one(
    store, second, typed
):
    runs = store.shared_runs()
    runs.mark_shipped({second: 7})
    typed("feedback", second, "--failure")

    assert runs.to_revise(10) == [2]

    runs.reset({second: 5}, first=1)

    assert runs.to_revise(10) == [2]

    runs.mark_revised(2, runs.feedback_count(2))

    assert runs.to_revise(10) == []
    assert runs.appended(0, 10) == [(2, second)]


def test_runs_in_the_log_are_not_decided_anew(store, second, typed):
    store.shared_runs().mark_shipped({second: 7})

    rescored = typed("rescore")

    assert rescored.exit_code == 1
    assert "in the shared log: use --dry-run" in rescored.output


def test_a_run_that_waits_to_be_shipped_is_not_pruned(sql, typed):
    sql("UPDATE traces SET shared_seq = -1 WHERE seq = 1")

    typed("prune", "--keep", "0", "--yes")

    assert sql("SELECT seq FROM traces") == [(1,)]


def test_a_shared_run_does_not_name_the_private_one_that_it_is_like(store, sql):
    sql("UPDATE traces SET visibility = 'private' WHERE seq = 1")
    sql(
        "UPDATE traces SET shared_seq = -1, nearest_seq = 1, nearest_similarity = 0.5 WHERE seq = 2"
    )

    [(_, run)] = store.shared_runs().runs([2], "pod")

    assert (run.nearest, run.nearest_similarity) == (None, 0.5)


def test_what_is_reported_of_a_run_that_is_not_shared_waits_for_no_log(store, typed):
    typed("feedback", "@last", "--failure")

    assert store.shared_runs().backlog() == (0, 0, None)


def test_one_process_ships_for_a_file_and_a_lease_that_lasts_is_not_written_again(store, sql):
    ours, theirs = store.shared_runs(), store.shared_runs()

    assert ours.take_lease(30)
    before = sql(LEASE)
    assert ours.take_lease(30)
    assert sql(LEASE) == before
    assert not theirs.take_lease(30)

    ours.release_lease()

    assert theirs.take_lease(30)


def test_a_lease_that_was_taken_a_moment_later_by_our_clock_is_another_s(store, sql):
    store.shared_runs().take_lease(30)
    later = json.dumps(["another", time.time() + 30.5])
    sql("UPDATE meta SET value = ? WHERE key = 'shared lease'", later)

    assert not store.shared_runs().take_lease(30)


def test_a_lease_from_before_the_clock_was_set_back_holds_up_nobody(store):
    store.shared_runs().take_lease(100)

    assert store.shared_runs().take_lease(30)


def test_what_is_deleted_in_the_log_waits_no_more(store, second, sql):
    store.shared_runs().mark_shipped({second: 7})
    sql(
        "INSERT INTO outbox (trace_seq, state, claimed_by, idempotency_key, registry, redactor)"
        " VALUES (2, 'pending', 'shared log k', 'k', 'r', 'x')"
    )

    store.shared_runs().update_items([ItemState(second, "gone", None, 0, None, None, None, None)])

    assert sql("SELECT state, reason FROM outbox") == [("cancelled", "by hand")]


def test_status_says_what_waits_for_the_log(sql, typed):
    sql("UPDATE traces SET state = 'recorded', shared_seq = -2, score = NULL")

    result = typed("status")

    assert "2 passed locally and await the shared log" in " ".join(result.output.split())
    assert "the next program that records does it" not in result.output


def test_a_run_of_another_host_is_named_as_the_nearest(sql, typed):
    sql("UPDATE traces SET embedder = 'e', nearest_id = ?, nearest_similarity = 0.5", OTHER)

    result = typed("show", "@last", "--why")

    words = " ".join(result.output.split())
    assert "0.500 similar to 1339c0de, the nearest earlier run: another host's" in words


def test_what_waits_for_a_log_is_pruned_only_if_that_is_said(store, sql, typed):
    store.shared_runs().pod()
    sql("UPDATE traces SET state = 'recorded', shared_seq = -2, score = NULL WHERE seq = 2")

    kept = typed("prune", "--keep", "0", "--yes")
    removed = typed("prune", "--keep", "0", "--unshipped", "--yes")

    assert "0 removed, 2 kept" in kept.output
    assert "2 wait for the shared log: set KP_SHARED, or add --unshipped" in kept.output
    assert "2 removed, 0 kept" in removed.output
