"""The outbox's row of a trace follows what the trace's row says."""

import json
import time

import pytest

from kp_middleware.errors import RegistryUnavailableError
from kp_middleware.export import payload
from kp_middleware.outbox_items import Receipt, idempotency_key
from kp_middleware.storage import MAY_HAVE_BEEN_SENT, OutboxTable
from kp_middleware.traces import ReasoningTrace

ALL = "SELECT * FROM outbox"


def sync(connection, seq, agent_id):
    OutboxTable(connection, registry="https://registry.example", agent_id=agent_id).sync(seq)


@pytest.fixture
def seq(keep, outbox, connection):
    """Of a trace that cleared and waits."""
    seq = keep("naïve 日本 \u0001", score=0.9, decision="forward")
    (document,) = connection.execute("SELECT body FROM documents").fetchone()
    trace = ReasoningTrace.model_validate_json(document)
    outbox.add(seq, payload(trace, score=0.9, agent_id=None), redactor="rules 1", redactions={})
    return seq


@pytest.fixture
def learn(connection):
    """Changes what the trace says; the outbox is not told."""

    def change(**facts):
        columns = ", ".join(f"{name} = ?" for name in facts)
        connection.execute(f"UPDATE traces SET {columns}", [*facts.values()])

    return change


@pytest.fixture
def row(connection):
    """The row of the outbox."""

    def read():
        cursor = connection.execute(ALL)
        return dict(
            zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True)
        )

    return read


def test_a_body_that_says_what_is_true_keeps_every_byte(connection, seq, row):
    before = row()

    sync(connection, seq, "agent-1")

    assert row() == before


@pytest.mark.parametrize("state", ["pending", "blocked", "rejected"])
def test_what_was_not_sent_gets_the_facts_of_its_trace(connection, seq, row, learn, state):
    connection.execute("UPDATE outbox SET state = ?, rejections = 1", (state,))
    before = json.loads(row()["body"])
    learn(success=0, confidence=1 / 3, score=2 / 3)

    sync(connection, seq, "agent-1")

    after = json.loads(row()["body"])
    assert after["metadata"] == {**before["metadata"], "success": False, "quality_score": 2 / 3}
    assert after["outcome"] == {**before["outcome"], "confidence": 1 / 3}
    assert [*after] == [*before]
    assert (after["task"], after["steps"]) == (before["task"], before["steps"])
    key = idempotency_key(row()["body"].encode(), agent_id="agent-1", rejections=1)
    assert (row()["idempotency_key"], row()["state"]) == (key, state)


@pytest.mark.parametrize(
    ("state", "then"),
    [
        *(("pending", "cancelled"), ("blocked", "blocked"), ("cancelled", "cancelled")),
        *(("sending", "sending"), ("sent", "sent"), ("rejected", "rejected")),
    ],
)
def test_what_waits_and_is_withheld_is_cancelled(connection, seq, row, learn, state, then):
    connection.execute("UPDATE outbox SET state = ?", (state,))
    learn(decision="withhold", reason_code="custom", reason_args='{"words": "too low"}')

    sync(connection, seq, "agent-1")

    assert row()["state"] == then
    assert (row()["body"] is None) == (then == "cancelled" != state)


@pytest.mark.parametrize("state", ["sent", "sending"])
def test_what_left_stays_as_it_left(connection, seq, row, learn, state):
    connection.execute("UPDATE outbox SET state = ?", (state,))
    before = row()
    learn(success=0, confidence=0.1, score=0.1)

    sync(connection, seq, "agent-1")

    assert row() == before


def test_what_may_have_left_before_its_file_was_damaged_stays_blocked(connection, seq, row, learn):
    connection.execute("UPDATE outbox SET state = 'blocked', reason = ?", (MAY_HAVE_BEEN_SENT,))
    learn(decision="withhold")

    sync(connection, seq, "agent-1")

    assert (row()["state"], row()["reason"]) == ("blocked", MAY_HAVE_BEEN_SENT)


@pytest.mark.usefixtures("seq")
def test_a_row_that_comes_back_from_its_way_follows_its_trace(outbox, row, learn):
    item = outbox.claim(time.time())
    learn(decision="withhold", reason_code="custom", reason_args='{"words": "too low"}')

    outbox.postpone(item, RegistryUnavailableError("no route"), retry_at=0, counted=True)

    assert (row()["state"], row()["attempts"], row()["body"]) == ("cancelled", 1, None)
    assert outbox.claim(time.time()) is None


@pytest.mark.usefixtures("seq")
def test_a_row_that_is_given_back_says_what_was_learned_meanwhile(outbox, row, learn):
    item = outbox.claim(time.time())
    learn(success=0, score=0.8)

    outbox.release(item)

    assert row()["state"] == "pending"
    assert json.loads(row()["body"])["metadata"]["quality_score"] == 0.8


@pytest.mark.usefixtures("seq")
def test_a_row_that_arrived_has_the_bytes_that_arrived(outbox, row, learn):
    item = outbox.claim(time.time())
    learn(success=0, decision="withhold")

    outbox.sent(item, Receipt("kp:trace:there", 201))

    assert (row()["state"], row()["body"].encode()) == ("sent", item.body)


def test_a_cancelled_row_begins_anew_and_no_other_does(connection, outbox, seq, row):
    outbox.add(seq, b'{"a": 1}', redactor="rules 2", redactions={})
    untouched = row()["redactor"]
    connection.execute("UPDATE outbox SET state = 'cancelled', body = NULL, rejections = 3")

    outbox.add(seq, b'{"a": 1}', redactor="rules 2", redactions={"email": 1})

    assert (untouched, row()["redactor"], row()["state"]) == ("rules 1", "rules 2", "pending")
    assert row()["idempotency_key"] == idempotency_key(
        b'{"a": 1}', agent_id="agent-1", rejections=3
    )


def test_a_trace_without_a_row_needs_none(connection, keep):
    sync(connection, keep(score=0.9, decision="withhold"), None)

    assert connection.execute(ALL).fetchall() == []
