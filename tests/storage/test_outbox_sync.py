"""The outbox's row of a run follows what the run's row says."""

import json
import time

import pytest

from kp_middleware import ReasoningTrace
from kp_middleware.errors import RegistryUnavailableError
from kp_middleware.export import Receipt, payload
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.storage import MAY_HAVE_BEEN_SENT

WITHHELD = {"decision": "withhold", "reason_code": "custom", "reason_args": '{"words": "too low"}'}


@pytest.fixture
def seq(keep, outbox, store):
    """Of a run that cleared and waits."""
    seq = keep("naïve 日本 \u0001", score=0.9, decision="forward")
    trace = ReasoningTrace.model_validate_json(store.stored(seq).document)
    outbox.add(seq, payload(trace, score=0.9, agent_id=None), redactor="rules 1", redactions={})
    return seq


@pytest.fixture
def learn(connection):
    """Changes what the run's row says; the outbox is not told."""

    def change(**facts):
        columns = ", ".join(f"{name} = ?" for name in facts)
        connection.execute(f"UPDATE traces SET {columns}", [*facts.values()])

    return change


def test_a_body_that_says_what_is_true_keeps_every_byte(outbox, seq, row):
    before = row(seq)

    outbox.sync(seq)

    assert row(seq) == before


@pytest.mark.parametrize("state", ["pending", "blocked", "rejected"])
def test_what_was_not_sent_gets_the_facts_of_its_run(outbox, connection, seq, row, learn, state):
    connection.execute("UPDATE outbox SET state = ?, rejections = 1", (state,))
    before = json.loads(row(seq)["body"])
    learn(success=0, confidence=1 / 3, score=2 / 3)

    outbox.sync(seq)

    after = json.loads(row(seq)["body"])
    assert after["metadata"] == {**before["metadata"], "success": False, "quality_score": 2 / 3}
    assert after["outcome"] == {**before["outcome"], "confidence": 1 / 3}
    assert [*after] == [*before]
    assert (after["task"], after["steps"]) == (before["task"], before["steps"])
    key = idempotency_key(row(seq)["body"].encode(), agent_id="agent-1", rejections=1)
    assert (row(seq)["idempotency_key"], row(seq)["state"]) == (key, state)


@pytest.mark.parametrize(
    ("state", "then"),
    [("pending", "cancelled"), *((same, same) for same in ("blocked", "cancelled", "rejected"))],
)
def test_what_waits_and_is_withheld_is_cancelled(outbox, connection, seq, row, learn, state, then):
    connection.execute("UPDATE outbox SET state = ?", (state,))
    learn(**WITHHELD)

    outbox.sync(seq)

    assert row(seq)["state"] == then
    assert (row(seq)["body"] is None) == (then == "cancelled" != state)


@pytest.mark.parametrize(
    ("state", "reason"), [("sent", None), ("sending", None), ("blocked", MAY_HAVE_BEEN_SENT)]
)
def test_what_left_or_may_have_left_stays_as_it_is(
    outbox, connection, seq, row, learn, state, reason
):
    connection.execute("UPDATE outbox SET state = ?, reason = ?", (state, reason))
    before = row(seq)
    learn(success=0, confidence=0.1, score=0.1, **WITHHELD)

    outbox.sync(seq)

    assert row(seq) == before


def test_a_row_that_comes_back_from_its_way_follows_its_run(outbox, seq, row, learn):
    item = outbox.claim(time.time())
    learn(**WITHHELD)

    outbox.postpone(item, RegistryUnavailableError("no route"), retry_at=0, counted=True)

    found = row(seq)
    assert (found["state"], found["attempts"], found["body"]) == ("cancelled", 1, None)
    assert outbox.claim(time.time()) is None


def test_a_row_that_is_given_back_says_what_was_learned_meanwhile(outbox, seq, row, learn):
    item = outbox.claim(time.time())
    learn(success=0, score=0.8)

    outbox.release(item)

    assert row(seq)["state"] == "pending"
    assert json.loads(row(seq)["body"])["metadata"]["quality_score"] == 0.8


def test_a_row_that_arrived_has_the_bytes_that_arrived(outbox, seq, row, learn):
    item = outbox.claim(time.time())
    learn(success=0, decision="withhold")

    outbox.sent(item, Receipt("kp:trace:there", 201))

    assert (row(seq)["state"], row(seq)["body"].encode()) == ("sent", item.body)
