"""Promises of a process about its runs, across locks, folders, feedback and its exit."""

import json
import sqlite3
import threading
from contextlib import contextmanager

import pytest
from pipeline_helpers import SideEffectEmbedder, column_of, echo, trace_of
from unsent_store import UnsentStore

from kp_middleware import KnowledgePulse
from kp_middleware.runs import RecordedRun
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder


def test_a_run_that_ends_while_another_is_scored_in_the_same_thread_waits_its_turn(pulse, db):
    embedder = SideEffectEmbedder()
    agent = echo(pulse(embedder=embedder, sync=True))
    embedder.happen = lambda: agent("two")  # as a garbage collector may end it

    agent("one")

    assert column_of(db, "state") == ["scored"] * 2


@pytest.mark.parametrize(
    ("name", "setting", "own", "stricter"),
    [
        ("visibility", "org", "network", "org"),
        ("visibility", "network", "org", "org"),
        ("privacy_level", "aggregated", "private", "aggregated"),
        ("privacy_level", "private", "federated", "federated"),
    ],
    ids=[
        "the setting hides more",
        "the trace hides more",
        "the setting removes more",
        "the trace does",
    ],
)
def test_a_submitted_trace_leaves_by_the_stricter_rule(
    pulse, sending, registry, name, setting, own, stricter
):
    kp = pulse(**sending, **{name: setting})

    kp.submit(trace_of("write to anna@example.org", metadata={name: own}))
    kp.flush()

    body = json.loads(registry.requests[0].body)
    assert body["metadata"][name] == stricter
    assert "anna@example.org" not in str(body)


def test_the_file_stays_where_it_was_when_the_program_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kp = KnowledgePulse(db="here.db", embedder=None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    with kp:
        echo(kp)("one")

    assert column_of(tmp_path / "here.db", "state") == ["scored"]


def test_two_processes_queue_what_waited_for_a_key_once(pulse, sending, registry):
    with pulse(threshold=0) as without:
        echo(without)("one")

    first, second = pulse(**sending), pulse(**sending)
    echo(first)("two")
    echo(second)("three")
    first.flush()
    second.flush()

    assert len(registry.documents) == 3
    assert len({received.body for received in registry.requests}) == len(registry.requests)


def test_one_registry_is_one_with_and_without_a_slash(pulse, sending, registry, db):
    store = UnsentStore.at(db)  # it dies before it could send
    echo(pulse(**sending, store=store, sync=True))("one")

    kp = pulse(**{**sending, "registry_url": f"{registry.url}/"}, sync=True)
    echo(kp)("two")

    assert not kp.flush()
    assert len(registry.documents) == 2


def test_a_closed_pipeline_has_no_thread_left(pulse, sending):
    before = set(threading.enumerate())
    kp = pulse(**sending)
    echo(kp)("one")
    kp.flush()
    ours = [one for one in set(threading.enumerate()) - before if one.name.startswith("kp-")]

    kp.close()
    [thread.join(30) for thread in ours]

    assert sorted(thread.name for thread in ours) == ["kp-scoring", "kp-sending"]
    assert not any(thread.is_alive() for thread in ours)


FAILING = "CREATE TRIGGER failing {} ON {} BEGIN SELECT raise(ABORT, 'x'); END"


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


@pytest.mark.parametrize(
    ("when", "table"), [("BEFORE UPDATE OF score", "traces"), ("BEFORE INSERT", "vectors")]
)
def test_what_was_rolled_back_is_not_remembered(pulse, connection, when, table):
    kp = pulse(sync=True)
    connection.execute(FAILING.format(when, table))
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
    ours = pulse(embedder=SideEffectEmbedder(lambda: theirs.flush(30)), sync=sync)

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

    kp = pulse(embedder=SideEffectEmbedder(take_its_place))
    kp.submit(trace_of("ours"))
    kp.flush(30)

    assert (column_of(db, "id"), column_of(db, "state")) == ([theirs.id], ["scored"])
    assert column_of(db, "key", "vectors") == [theirs.id]
