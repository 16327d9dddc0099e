"""A registry that has lost what it had is filled again."""

from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.testing import LocalRegistry


@pytest.fixture
def registry(monkeypatch):
    with LocalRegistry(agent_id="agent-1", replays=True) as local:
        monkeypatch.setenv("KP_REGISTRY_URL", local.url)
        monkeypatch.setenv("KP_API_KEY", local.api_key)
        monkeypatch.setenv("KP_AGENT_ID", "agent-1")
        yield local


def outbox_rows(db):
    """All that the file knows of what was sent."""
    with closing(connect(db)) as connection:
        return connection.execute("SELECT * FROM outbox").fetchall()


def test_what_was_sent_goes_again_by_force_alone(record, registry, type_command):
    record("one", "another")
    stored = dict(registry.documents)
    registry.forget()

    without = type_command("outbox", "retry", "@last"), type_command("outbox", "retry", "--sent")
    forced = type_command("outbox", "retry", "@last", "--force")
    record()
    one = dict(registry.documents)
    type_command("outbox", "retry", "--sent", "--force")
    record()

    assert [result.exit_code for result in without] == [1, 2]
    assert "the item is sent; --force sends it again" in without[0].stderr
    assert forced.stdout == "1 waiting\n"
    assert len(one) == 1
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


def test_what_is_missing_there_is_counted_and_sent_again(record, registry, as_json, type_command):
    record("one", "another")
    before = as_json("outbox", "reconcile")
    registry.forget()
    record("the third")

    lost, printed = as_json("outbox", "reconcile"), type_command("outbox", "reconcile")
    queued = as_json("outbox", "reconcile", "--send")
    record()
    after = as_json("outbox", "reconcile")

    assert (before["there"], before["missing"], before["unknown"]) == (2, 0, 0)
    assert (lost["there"], lost["missing"], lost["queued"]) == (1, 2, {})
    assert printed.stdout == f"{registry.url}, agent agent-1: 1 stored, 2 missing\n"
    assert printed.stderr == "--send requeues the missing runs\n"
    assert queued["queued"] == {"waiting": 2}
    assert (after["there"], after["missing"]) == (3, 0)


@pytest.mark.usefixtures("registry")
def test_what_another_file_or_agent_has_sent_is_distinguished(record, as_json, db, tmp_path):
    record("one of another file")
    db.rename(tmp_path / "other.db")
    record("one")
    record("two", agent_id="another-agent")

    found = as_json("outbox", "reconcile")

    assert (found["there"], found["missing"]) == (1, 0)
    assert (found["unknown"], found["of_others"]) == (1, 1)


@pytest.mark.usefixtures("registry")
def test_the_same_id_twice_is_no_trace_of_another_agent(record, as_json, db):
    record("one", "another")
    with closing(connect(db)) as connection:
        connection.execute(
            "UPDATE outbox SET remote_id = (SELECT max(remote_id) FROM outbox)"
        ).connection.commit()

    assert as_json("outbox", "reconcile")["of_others"] == 0


BREAKS = (
    "CREATE TRIGGER full BEFORE UPDATE ON outbox WHEN new.state = 'pending'"
    " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
)


@pytest.mark.parametrize(
    ("change", "engines", "ended"),
    [
        ("UPDATE traces SET decision = 'withhold'", "", ("1 still sent\n", 6)),
        ("", "gitleaks:/none.toml", ("1 still sent\n", 6)),
        (BREAKS, "", ("", 1)),
    ],
    ids=["no longer clears", "cannot be redacted any more", "breaks off on the way"],
)
def test_what_cannot_go_again_stays_sent(
    record, registry, type_command, db, monkeypatch, change, engines, ended
):
    record("one")
    with closing(connect(db)) as connection:
        connection.execute(change)
    before = outbox_rows(db)
    monkeypatch.setenv("KP_REDACT_ENGINES", engines)

    results = [type_command("outbox", "retry", name, "--force") for name in ("@last", "--sent")]

    assert [(result.stdout, result.exit_code) for result in results] == [ended, ended]
    assert ("not requeued: no longer clears" in results[0].stderr) == (ended[1] == 6)
    assert outbox_rows(db) == before
    assert len(registry.documents) == 1


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("name", "value", "words", "code"),
    [
        ("KP_API_KEY", "", "set KP_API_KEY", 1),
        ("KP_AGENT_ID", "", "set KP_AGENT_ID", 1),
        ("KP_AGENT_ID", "somebody", "can only export your own data", 1),
        ("KP_REGISTRY_URL", "http://127.0.0.1:9", "connection refused", 5),
    ],
    ids=["no key", "no agent", "another agent", "nobody there"],
)
def test_why_nothing_can_be_compared_is_reported(
    record, type_command, monkeypatch, name, value, words, code
):
    record("one")
    monkeypatch.setenv(name, value)

    result = type_command("outbox", "reconcile")

    assert result.exit_code == code
    assert words in result.stderr
