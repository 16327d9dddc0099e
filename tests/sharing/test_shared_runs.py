"""What the file remembers of its runs in the shared log."""

import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse
from kp_middleware.cli import main
from kp_middleware.storage import History, SqliteStore


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
    runs.shipped({second: 7})
    CliRunner().invoke(main, ["feedback", second, "--failure", "--db", str(file)])

    assert runs.to_revise(10) == [2]

    runs.revised(2, runs.told(2))

    assert runs.to_revise(10) == []
    assert runs.in_log(0, 10) == [(2, second)]


def test_runs_in_the_log_are_not_decided_anew(file, store):
    with History.open(file) as history:
        store.shared_runs().shipped({history.run(2).id: 7})

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

    run, _ = store.shared_runs().run(2, "pod")

    assert (run.nearest, run.nearest_similarity) == (None, 0.5)


def test_what_is_told_of_a_run_that_is_not_shared_waits_for_no_log(file, store):
    CliRunner().invoke(main, ["feedback", "@last", "--failure", "--db", str(file)])

    assert store.shared_runs().unshared() == (0, 0, None)


def test_one_process_ships_for_a_file(store):
    ours, theirs = store.shared_runs(), store.shared_runs()

    assert ours.take_lease(30)
    assert not theirs.take_lease(30)

    ours.release_lease()

    assert theirs.take_lease(30)
