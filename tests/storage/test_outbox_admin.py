"""Outbox commands leave items that are being sent or were sent unchanged."""

import pytest

from kp_middleware.errors import RegistryRejectedError, RegistryUnavailableError
from kp_middleware.export import Receipt
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.storage import OutboxAdmin

BODY = '{"text": "naïve 日本"}'.encode()
NOW = 2e9


@pytest.fixture
def admin(connection):
    return OutboxAdmin(connection)


def renewed(care, seq, body):
    return care.renew(seq, body, redactor="rules 2", redactions={"phone": 1}, agent_id="agent-1")


def test_items_are_listed_newest_first_without_their_bodies_all_or_those_in_some_states(
    admin, history, queue
):
    sent, blocked = queue(BODY, state="sent"), queue(None)

    items = history.outbox(limit=10)

    assert [item.state for item in items] == ["blocked", "sent"]
    assert (items[1].size_bytes, items[1].redactions) == (len(BODY), {"email": 2})
    assert (items[0].size_bytes, items[0].reason) == (None, "too_deep at steps[0]")
    assert admin.seqs("sent", "blocked") == [sent, blocked]
    assert history.outbox(limit=10, states=["sent", "pending"]) == items[1:]
    assert history.outbox(limit=1) == items[:1]
    assert (history.count_outbox(), history.count_outbox(["blocked"])) == (2, 1)


@pytest.mark.parametrize("is_cancelled_first", [False, True])
def test_each_retry_of_what_was_rejected_has_another_key(
    admin, outbox, queue, row, is_cancelled_first
):
    seq = queue(BODY)

    for rejections in range(3):
        item = outbox.claim(NOW)
        key = idempotency_key(BODY, agent_id="agent-1", rejections=rejections)
        assert (item.body, item.attempts, item.idempotency_key) == (BODY, 0, key)
        outbox.rejected(item, RegistryRejectedError(422, "no"))
        if is_cancelled_first:
            admin.cancel(seq, NOW)
        assert admin.retry(seq, agent_id="agent-1")

    assert (row(seq)["rejections"], row(seq)["reason"]) == (3, None)


def test_what_was_given_up_is_tried_again_under_the_same_key(admin, outbox, queue, row):
    seq = queue()
    key = row(seq)["idempotency_key"]
    for _ in range(3):
        outbox.postpone(
            outbox.claim(NOW), RegistryUnavailableError("no route"), retry_at=0, counted=True
        )
    outbox.block(outbox.claim(NOW), "retries_exhausted")

    assert admin.retry(seq, agent_id="agent-1")

    assert (row(seq)["attempts"], row(seq)["idempotency_key"]) == (0, key)
    assert outbox.claim(NOW).attempts == 0


@pytest.mark.parametrize("body", [BODY, None], ids=["pending", "blocked"])
def test_what_a_person_cancels_neither_leaves_nor_is_queued_anew(admin, outbox, queue, row, body):
    seq = queue(body)

    assert admin.cancel(seq, NOW)
    cancelled = row(seq)
    outbox.add(seq, b"{}", redactor="rules 2", redactions={})

    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "by hand")
    assert row(seq) == cancelled
    assert (outbox.claim(NOW), outbox.next_due(), outbox.any_pending()) == (None, None, False)
    assert outbox.next_unqueued(after=0) is None


def test_what_was_cancelled_or_given_up_stays_so_with_its_new_body(admin, outbox, queue, row):
    given_up, cancelled, unclean = queue(), queue(), queue()
    outbox.block(outbox.claim(NOW), "retries_exhausted")
    admin.cancel(cancelled, NOW)
    admin.cancel(unclean, NOW)

    assert renewed(admin, given_up, b"{}") == renewed(admin, cancelled, b"{}") == "rewritten"
    admin.block(unclean, "residual_secret", redactor="rules 2")

    assert (row(given_up)["state"], row(given_up)["reason"]) == ("blocked", "retries_exhausted")
    assert (row(cancelled)["state"], row(cancelled)["body"]) == ("cancelled", "{}")
    assert (row(unclean)["state"], row(unclean)["body"]) == ("blocked", None)


def test_what_is_cancelled_stays_so_if_it_no_longer_clears(admin, queue, row, connection):
    seq = queue()
    admin.cancel(seq, NOW)
    connection.execute(
        "UPDATE traces SET decision = 'withhold', reason_code = 'custom',"
        " reason_args = json_object('words', 'below 0.95')"
    )

    admin.retry(seq, agent_id="agent-1")

    assert row(seq)["state"] == "cancelled"
    assert row(seq)["reason"] == "it cleared the gate before it was re-evaluated: below 0.95"


@pytest.mark.parametrize("has_arrived", [False, True])
def test_what_is_on_its_way_or_arrived_is_not_touched(admin, outbox, queue, row, has_arrived):
    seq = queue()
    item = outbox.claim(NOW)
    if has_arrived:
        outbox.sent(item, Receipt("kp:trace:there", 201))
    before = row(seq)

    assert not admin.cancel(seq, NOW)
    assert not admin.retry(seq, agent_id=None)
    assert renewed(admin, seq, b"{}") == "unchanged"
    admin.block(seq, "residual_secret", redactor="rules 2")

    assert row(seq) == before


def test_what_a_process_that_died_was_sending_is_cancelled(admin, outbox, queue, row):
    seq = queue()
    outbox.claim(NOW)

    assert admin.cancel(seq, NOW + 1000)

    assert (row(seq)["state"], outbox.claim(NOW + 2000)) == ("cancelled", None)


def test_what_could_not_be_redacted_goes_only_when_it_has_a_clean_body(admin, outbox, queue, row):
    seq = queue(None)

    assert not admin.retry(seq, agent_id=None)
    assert (row(seq)["state"], outbox.claim(NOW), outbox.any_pending()) == ("blocked", None, False)

    assert renewed(admin, seq, BODY) == "released"
    assert (row(seq)["state"], row(seq)["reason"]) == ("pending", None)
    assert outbox.claim(NOW).body == BODY


def test_a_body_has_another_key_where_it_is_another(admin, outbox, queue, row):
    seq = queue(BODY)
    key = row(seq)["idempotency_key"]

    assert renewed(admin, seq, BODY) == "unchanged"

    assert row(seq)["idempotency_key"] == key
    assert (row(seq)["redactor"], row(seq)["redactions"]) == ("rules 2", '{"phone": 1}')

    assert renewed(admin, seq, b'{"a": 2}') == "rewritten"

    item = outbox.claim(NOW)
    assert item.body == b'{"a": 2}'
    assert item.idempotency_key == idempotency_key(b'{"a": 2}', agent_id="agent-1")
