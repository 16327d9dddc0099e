"""A registry that has lost what it had is filled again."""

import json
from contextlib import closing

import pytest

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.testing import LocalRegistry


@pytest.fixture
def registry(monkeypatch):
    with LocalRegistry(agent_id="agent-1", replays=True) as local:
        monkeypatch.setenv("KP_REGISTRY_URL", local.url)
        monkeypatch.setenv("KP_API_KEY", local.api_key)
        monkeypatch.setenv("KP_AGENT_ID", "agent-1")
        yield local


@pytest.fixture
def record(db):
    """Records runs of an agent, each worth sending, and waits until they are there."""

    def runs(*questions, **settings):
        with KnowledgePulse(db=db, embedder=None, threshold=0, **settings) as kp:
            for question in questions:
                kp.capture(_thinking)(question)
            kp.flush(20)

    return runs


@pytest.fixture
def reconcile(type_command):
    return lambda *words: json.loads(type_command("outbox", "reconcile", "--json", *words).stdout)


def outbox_rows(db):
    """All that the file knows of what was sent."""
    with closing(connect(db)) as connection:
        return connection.execute("SELECT * FROM outbox").fetchall()


def _thinking(question):
    current_trace().thought(question)
    return "done"


def test_what_was_sent_goes_again_by_force_alone(record, registry, type_command):
    record("one")
    registry.forget()

    without = type_command("outbox", "retry", "@last")
    forced = type_command("outbox", "retry", "@last", "--force")
    record()

    assert without.exit_code == 1
    assert "the item is sent; --force sends it again" in without.stderr
    assert forced.stdout == "1 waiting\n"
    assert len(registry.documents) == 1


def test_all_that_was_sent_goes_again_by_force(record, registry, type_command):
    record("one", "another")
    stored = dict(registry.documents)
    registry.forget()

    without = type_command("outbox", "retry", "--sent")
    type_command("outbox", "retry", "--sent", "--force")
    record()

    assert without.exit_code == 2
    assert dict(registry.documents) == stored


def test_what_is_taken_out_today_stays_out_of_what_goes_again(
    record, registry, type_command, monkeypatch
):
    record("Project Bluebird", redact_deny=["Project"])
    monkeypatch.setenv("KP_REDACT_DENY", "Bluebird")

    type_command("outbox", "retry", "@last", "--force")
    record()

    (document,) = registry.documents.values()
    assert "Bluebird" not in document.model_dump_json()
    assert "Project" not in document.model_dump_json()


def test_what_is_missing_there_is_counted_and_sent_again(record, registry, reconcile):
    record("one", "another")
    before = reconcile()
    registry.forget()
    record("the third")

    lost, queued = reconcile(), reconcile("--send")
    record()
    after = reconcile()

    assert (before["there"], before["missing"], before["unknown"]) == (2, 0, 0)
    assert (lost["there"], lost["missing"], lost["queued"]) == (1, 2, {})
    assert queued["queued"] == {"waiting": 2}
    assert (after["there"], after["missing"]) == (3, 0)


@pytest.mark.usefixtures("registry")
def test_what_another_file_has_sent_is_unknown(record, reconcile, tmp_path):
    record("one")
    with KnowledgePulse(db=tmp_path / "other.db", embedder=None, threshold=0) as kp:
        kp.capture(_thinking)("another")
        kp.flush(20)

    found = reconcile()

    assert (found["there"], found["missing"], found["unknown"]) == (1, 0, 1)


@pytest.mark.usefixtures("registry")
def test_what_was_sent_for_another_agent_is_not_compared(record, reconcile):
    record("one", agent_id="another-agent")

    found = reconcile()

    assert (found["there"], found["missing"], found["of_others"]) == (0, 0, 1)


@pytest.mark.usefixtures("registry")
def test_the_same_id_twice_is_no_trace_of_another_agent(record, reconcile, db):
    record("one", "another")
    with closing(connect(db)) as connection:
        connection.execute(
            "UPDATE outbox SET remote_id = (SELECT max(remote_id) FROM outbox)"
        ).connection.commit()

    assert reconcile()["of_others"] == 0


def test_what_no_longer_clears_stays_sent(record, registry, type_command, db):
    record("one")
    with closing(connect(db)) as connection:
        connection.execute("UPDATE traces SET decision = 'withhold'").connection.commit()
    before = outbox_rows(db)

    result = type_command("outbox", "retry", "@last", "--force")

    assert (result.stdout, result.exit_code) == ("1 still sent\n", 6)
    assert "no longer clears" in result.stderr
    assert outbox_rows(db) == before
    assert len(registry.documents) == 1


@pytest.mark.usefixtures("registry")
def test_what_cannot_be_redacted_any_more_stays_sent(record, type_command, db, monkeypatch):
    record("one")
    before = outbox_rows(db)
    monkeypatch.setenv("KP_REDACT_ENGINES", "gitleaks:/none.toml")

    result = type_command("outbox", "retry", "--sent", "--force")

    assert (result.stdout, result.exit_code) == ("1 still sent\n", 6)
    assert outbox_rows(db) == before


@pytest.mark.usefixtures("registry")
def test_what_breaks_off_on_the_way_stays_sent(record, type_command, db):
    record("one")
    with closing(connect(db)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON outbox WHEN new.state = 'pending'"
            " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        ).connection.commit()
    before = outbox_rows(db)

    result = type_command("outbox", "retry", "@last", "--force")

    assert result.exit_code != 0
    assert outbox_rows(db) == before


def test_people_read_one_sentence(record, registry, type_command):
    record("one", "another")
    registry.forget()

    result = type_command("outbox", "reconcile")

    assert result.stdout == f"{registry.url}, agent agent-1: 0 stored, 2 missing\n"
    assert result.stderr == "--send requeues the missing runs\n"


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("KP_API_KEY", "", "set KP_API_KEY"),
        ("KP_AGENT_ID", "", "set KP_AGENT_ID"),
        ("KP_AGENT_ID", "somebody", "can only export your own data"),
        ("KP_REGISTRY_URL", "http://127.0.0.1:9", "connection refused"),
    ],
    ids=["no key", "no agent", "another agent", "nobody there"],
)
def test_why_nothing_can_be_compared_is_told(record, type_command, monkeypatch, name, value, words):
    record("one")
    monkeypatch.setenv(name, value)

    result = type_command("outbox", "reconcile")

    assert result.exit_code == 1
    assert words in result.stderr
