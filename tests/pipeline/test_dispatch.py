"""Cleared runs are queued as soon as they may be sent, once each, and no others."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from pipeline_helpers import column_of, trace_of, warnings_in
from unsent_store import UnsentStore

from kp_middleware import current_trace
from kp_middleware.database import connect
from kp_middleware.outcomes import Judge

HAVING_A_KEY = {"api_key": "kp_x", "registry_url": "https://registry.example"}
NO_QUEUEING = "CREATE TRIGGER t BEFORE INSERT ON outbox BEGIN SELECT raise(FAIL, 'x'); END"


@pytest.fixture
def pipeline(pulse, db):
    """Makes pipelines that queue what clears, and send nothing."""
    usual = {"store": UnsentStore.at(db), "embedder": None, "sync": True, "threshold": 0}
    return lambda **settings: pulse(**{**usual, **settings})


@pytest.fixture
def cleared(pipeline):
    """Six traces that could not be sent without a key."""
    kp = pipeline()
    [kp.submit(trace_of(f"asked {number}")) for number in range(6)]
    kp.close()


@pytest.fixture
def queued(db):
    return lambda: column_of(db, "trace_seq", "outbox")


@pytest.mark.usefixtures("cleared")
def test_a_trace_that_another_queues_meanwhile_keeps_its_row(pipeline, db):
    theirs = pipeline(**HAVING_A_KEY, agent_id="theirs")

    class Meeting(UnsentStore):
        """Lets another queue what this one has found to queue."""

        def stored(self, seq):
            theirs.flush()
            return super().stored(seq)

    pipeline(store=Meeting.at(db), **HAVING_A_KEY, agent_id="ours").flush()

    assert column_of(db, "body ->> '$.metadata.agent_id'", "outbox") == ["theirs"] * 6


@pytest.mark.usefixtures("cleared")
def test_with_a_key_all_that_cleared_before_is_queued_also_where_a_lock_interrupts(
    pipeline, queued, db
):
    kp = pipeline(**HAVING_A_KEY)

    with closing(connect(db)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        kp.flush(timeout_s=0.2)
        before = queued()
    kp.flush(timeout_s=30)

    assert (before, queued()) == ([], [1, 2, 3, 4, 5, 6])
    assert column_of(db, "reason_args ->> 'delivery'") == [None] * 6


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (
            "UPDATE documents SET body = '{}' WHERE trace_seq = 2",
            ["trace 2 cleared, but cannot be queued"],
        ),
        ("DELETE FROM documents WHERE trace_seq = 2", []),
    ],
    ids=["cannot be read", "is not there"],
)
@pytest.mark.usefixtures("cleared")
def test_one_whose_document_is_of_no_use_holds_up_no_other(
    pipeline, queued, connection, caplog, harm, told
):
    connection.execute(harm)

    pipeline(**HAVING_A_KEY).flush()

    assert queued() == [1, 3, 4, 5, 6]
    assert warnings_in(caplog) == told


def test_what_cannot_be_queued_when_it_clears_is_queued_later(pipeline, queued, connection):
    kp = pipeline(**HAVING_A_KEY)
    kp.flush()
    connection.execute(NO_QUEUEING)
    kp.submit(trace_of())
    before = queued()
    connection.execute("DROP TRIGGER t")

    kp.flush()

    assert (before, queued()) == ([], [1])


@pytest.mark.parametrize("settings", [{"api_key": ""}, {"visibility": "private"}])
@pytest.mark.usefixtures("cleared")
def test_without_a_key_or_where_all_is_private_nothing_is_queued(pipeline, queued, settings):
    pipeline(**{**HAVING_A_KEY, **settings}).flush()

    assert queued() == []


def test_what_gets_into_the_body_after_redaction_blocks_the_row(pipeline, connection):
    pipeline(**HAVING_A_KEY, agent_id="anna@example.org").submit(trace_of())

    state, reason, body = connection.execute("SELECT state, reason, body FROM outbox").fetchone()
    assert (state, body) == ("blocked", None)
    assert "metadata.agent_id" in reason
    assert "email" in reason
    assert "anna" not in json.dumps(reason)


WAITS = "awaiting confirmation that it succeeded"


@pytest.fixture
def kp(pulse, sending):
    return pulse(**sending, embedder=None, forward_only="confirmed")


@pytest.fixture
def submit(kp):
    """Submits a run that clears the gate, and waits; returns its id."""

    def put(*, days_ago=0.0, **facts):
        began = (datetime.now(UTC) - timedelta(days=days_ago)).isoformat().replace("+00:00", "Z")
        trace = trace_of(metadata={"created_at": began}, **facts)
        kp.submit(trace)
        kp.flush()
        return trace.id

    return put


@pytest.mark.parametrize("said", [{}, {"success": True}, {"confidence": 0.99}])
def test_neither_an_assumption_nor_the_agents_own_word_lets_a_run_leave(
    submit, registry, stored, type_command, said
):
    name = submit(**said)

    assert (registry.documents, stored(name)["outbox"]) == ({}, None)
    assert stored(name)["decision"] == "forward"
    assert WAITS in type_command("show", name).output
    assert "not queued" in type_command("list").output
    assert "are private, unconfirmed, or" in type_command("status").output
    assert "kp-middleware review" in type_command("status").output


def test_what_waits_goes_as_soon_as_somebody_says_that_it_succeeded(
    kp, submit, registry, stored, type_command
):
    name, other = submit(), submit()

    kp.feedback(name, success=True)
    kp.flush()

    assert [*registry.documents] == [name]
    assert WAITS not in type_command("show", name).output
    assert WAITS in stored(other)["reason"]


def test_it_goes_after_an_answer_on_the_command_line_as_well(
    kp, submit, registry, stored, type_command, monkeypatch
):
    name = submit()
    kp.close()
    monkeypatch.setenv("KP_FORWARD_ONLY", "confirmed")
    monkeypatch.setenv("KP_THRESHOLD", "0.1")
    monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
    monkeypatch.setenv("KP_API_KEY", registry.api_key)

    answered = type_command("feedback", name, "--success")

    assert answered.exit_code == 0, answered.output
    assert stored(name)["outbox"]["state"] == "pending"


def test_what_somebody_says_has_failed_stays(kp, submit, registry, stored, type_command):
    name = submit()

    kp.feedback(name, success=False)
    kp.feedback(name, confidence=1)
    kp.flush()

    assert registry.documents == {}
    assert "its task is known to have failed" in stored(name)["reason"]
    assert WAITS not in stored(name)["reason"]
    told = "0 of the 1 chosen by the gate"
    assert told in type_command("status").output


def test_a_judge_confirms_a_run(kp, registry):
    @kp.capture(domain="medical", confidence=Judge(lambda _: 0.9))
    def answer(question):
        current_trace().thought(question)
        return "42"

    answer("What is six times seven?")
    kp.flush()

    assert len(registry.documents) == 1


@pytest.mark.parametrize(("days_ago", "goes"), [(29, True), (31, False)])
def test_a_confirmation_after_thirty_days_is_too_late(kp, submit, registry, stored, days_ago, goes):
    name = submit(days_ago=days_ago)

    kp.feedback(name, success=True)
    kp.flush()

    assert (name in registry.documents) == goes
    assert ("it was confirmed too late" in stored(name)["reason"]) != goes


def test_what_waits_stays_with_the_next_process_and_goes_without_the_setting(
    kp, submit, pulse, sending, registry
):
    name = submit()
    kp.close()

    with pulse(**sending, embedder=None, sync=True, forward_only="confirmed") as held:
        held.flush()
    before = [*registry.documents]
    pulse(**sending, embedder=None, sync=True).flush()

    assert (before, [*registry.documents]) == ([], [name])
