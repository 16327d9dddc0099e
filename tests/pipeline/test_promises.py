"""What a process promises of its runs: across locks, folders, second thoughts and its end."""

import json
import threading
from contextlib import closing

import pytest
from pipeline_helpers import Meanwhile, column_of, echo, trace_of
from unsent import UnsentStore

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.errors import EmbedderUnavailableError


class Missing:
    """There is no model; counts how often it was asked for."""

    name = "missing"
    asked = 0

    def embed(self, _text, /):
        self.asked += 1
        raise EmbedderUnavailableError("nowhere")


def test_what_a_lock_kept_from_being_scored_is_scored_when_the_lock_goes(pulse, db):
    kp = pulse()
    agent = echo(kp)
    agent("one")
    kp.flush()

    with closing(connect(db)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        agent("two")
        during = kp.flush(timeout_s=0.2)

    assert during.unscored == 1
    assert kp.flush(timeout_s=30) == (0, 0)
    assert column_of(db, "state") == ["scored"] * 2


def test_a_document_that_cannot_be_read_fails_alone(pulse, db, connection):
    kp = pulse()
    echo(kp)("one")
    kp.flush()
    connection.execute("UPDATE traces SET state = 'recorded'")
    connection.execute("UPDATE documents SET body = '{}'")

    echo(kp)("two")
    kp.flush()

    assert column_of(db, "state")[1] == "scored"


def test_a_run_that_ends_while_another_is_scored_in_the_same_thread_waits_its_turn(pulse, db):
    embedder = Meanwhile()
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


def test_a_missing_model_is_asked_for_once_a_run(pulse):
    embedder = Missing()

    echo(pulse(embedder=embedder, sync=True))("one")

    assert embedder.asked == 1


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
