"""A copy of the shared log on this machine: every command that reads works on it."""

import json
import shlex
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner
from pods import end, record, run_of

from kp_middleware.cli import main
from kp_middleware.shared_log import Link, pull_runs

pytestmark = pytest.mark.timeout(150)

READING = [
    "list",
    "list --json",
    "list --domain support",
    "list -q look",
    "status",
    "stats",
    "stats --by domain",
    "stats --by tool",
    "calibrate",
    "show {id}",
    "show {id} --why",
    "show {id} --json",
    "similar {id}",
    "outbox",
    "sql 'SELECT count(*) FROM traces'",
    "recall 'look it up'",
    "doctor",
    "config",
    "export {folder}/out.jsonl",
    "report {folder}/out.html",
    "review --json",
    "backup {folder}/backup.db",
    "feedback --help",
    "rescore --dry-run",
]


@pytest.fixture
def fleet(shared, generous, pods, start):
    """Two pods that have recorded."""
    hosts = pods(2, shared=shared, registry=generous, threshold=0.75)
    seeds = [range(6), range(3, 9)]
    assert end([start(*each) for each in zip(hosts, [record] * 2, seeds, strict=True)]) == [0, 0]
    return hosts


@pytest.fixture
def pull(fleet):
    """Brings a copy of what they have shared up to date; returns where it is."""
    copy = fleet[0].folder / "fleet.db"

    def typed():
        done = fleet[0].command("pull", "--db", str(copy))
        assert done.returncode == 0, done.stderr
        return copy

    return typed


def rows(file, sql):
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(sql).fetchall()


def test_the_copy_has_every_run_with_its_pod_and_its_decision_and_once_more_is_the_same(
    fleet, pull, shared, ask
):
    asked = "SELECT id, pod, decision, score FROM"

    copied = rows(pull(), f"{asked} traces ORDER BY id")

    assert copied == ask(shared, f"{asked} kp.log ORDER BY id")
    assert len(copied) == 12
    assert len({pod for _, pod, _, _ in copied}) == 2
    listed = fleet[0].command("list", "--db", str(pull()), "--json", "-c", "id,pod").stdout
    assert sorted((run["id"], run["pod"]) for run in json.loads(listed)) == [
        row[:2] for row in copied
    ]
    assert rows(pull(), f"{asked} traces ORDER BY id") == copied
    for table in ("traces", "vectors", "documents"):
        assert rows(pull(), f"SELECT count(*) FROM {table}") == [(12,)]


def test_what_is_new_told_or_deleted_since_is_so_in_the_copy_too(fleet, pull, start):
    pull()
    (deleted,), (failed,) = fleet[1].rows("SELECT id FROM traces LIMIT 2")
    for words in (("shared", "delete", deleted), ("feedback", failed, "--failure")):
        typed = fleet[1].command(*words)
        assert typed.returncode == 0, typed.stderr
    end([start(fleet[1], record, ["new"])])  # and ships what was told

    found = dict(rows(pull(), "SELECT id, success FROM traces"))

    assert len(found) == 12 + 1 - 1
    assert deleted not in found
    assert found[failed] == 0


def test_a_copy_of_a_restored_log_has_what_that_has(server, own_shared, pods, start, ask):
    writing, other, reading = pods(3, shared=own_shared, threshold=1.0)
    end([start(writing, record, range(5))])
    older = server.keep_copy()
    end([start(writing, record, range(5, 9))])
    copy = reading.folder / "fleet.db"
    reading.command("pull", "--db", str(copy))
    server.restore(older)
    end([start(other, record, range(9, 15))])  # takes the numbers of what was lost
    end([start(writing, record, range(15, 17))])

    refused = reading.command("pull", "--db", str(copy))
    [file.unlink() for file in reading.folder.glob("fleet.db*")]
    typed = reading.command("pull", "--db", str(copy))

    assert "pull again" in refused.stderr
    assert typed.returncode == 0, typed.stderr
    assert set(rows(copy, "SELECT id FROM traces")) == set(ask(own_shared, "SELECT id FROM kp.log"))


def test_large_documents_go_in_small_batches(shared, pods, start, ask):
    recording, reading = pods(2, shared=shared, threshold=0.3, max_field_bytes=1_000_000)
    recording.told["KP_SHARED"] = "postgresql://127.0.0.1:9/away"
    end([start(recording, record_large)])
    recording.told["KP_SHARED"] = shared
    end([start(recording, record, [], flush_s=60)])

    [(batches, runs)] = ask(shared, "SELECT count(DISTINCT xmin::text), count(*) FROM kp.log")
    assert (batches, runs) == (2, 3)
    copy = reading.folder / "fleet.db"
    assert reading.command("pull", "--db", str(copy)).stdout == f"{copy}: 3 new runs\n"
    with closing(Link(shared, "a reader")) as link:
        pages = [len(pull_runs(link, None).rows)]
        ask(shared, "DELETE FROM kp.documents")
        pages.append(len(pull_runs(link, None).rows))
    assert pages == [1, 3]


def record_large(pod):
    """Record three runs of almost a megabyte, while the log is away."""
    with pod.pulse() as kp:
        for seed in range(3):
            kp.submit(run_of(seed, "It is so. " * 90_000))
        kp.flush(9)


def test_every_command_works_on_the_copy(pull, shared, tmp_path, monkeypatch):
    copy = pull()
    [(id,)] = rows(copy, "SELECT id FROM traces ORDER BY seq DESC LIMIT 1")
    monkeypatch.setenv("KP_SHARED", shared)

    failed = {}
    for words in READING:
        given = shlex.split(words.format(id=id, folder=tmp_path))
        typed = CliRunner().invoke(main, ["--db", str(copy), *given])
        if typed.exit_code != 0:
            failed[words] = typed.output

    assert failed == {}
