"""What people do about the outbox; what is on its way or arrived stays as it is."""

import pytest

from kp_middleware.errors import (
    RegistryRejectedError,
    RegistryUnavailableError,
    TraceNotFoundError,
)
from kp_middleware.outbox_items import Receipt, idempotency_key
from kp_middleware.storage import OutboxAdmin

BODY = '{"text": "naïve 日本"}'.encode()
NOW = 2e9


@pytest.fixture
def care(connection):
    return OutboxAdmin(connection)


@pytest.fixture
def queue(outbox, keep):
    """Puts a trace into the outbox."""

    def put(body=BODY):
        seq = keep(score=0.9, decision="forward")
        if body is None:
            why = "too_deep at steps[0]"
            outbox.add(seq, None, redactor="rules 1", redactions={}, reason=why)
        else:
            outbox.add(seq, body, redactor="rules 1", redactions={"email": 2})
        return seq

    return put


@pytest.fixture
def row(connection):
    def named(seq):
        cursor = connection.execute("SELECT * FROM outbox WHERE trace_seq = ?", (seq,))
        names = [column[0] for column in cursor.description]
        return dict(zip(names, cursor.fetchone(), strict=True))

    return named


@pytest.fixture
def sent(outbox, queue):
    """A row that arrived."""
    seq = queue()
    outbox.sent(outbox.claim(NOW), Receipt("kp:trace:there", 201))
    return seq


@pytest.fixture
def rejected(outbox, queue):
    seq = queue()
    outbox.rejected(outbox.claim(NOW), RegistryRejectedError(422, "no"))
    return seq


def renewed(care, seq, body):
    return care.renew(seq, body, redactor="rules 2", redactions={"phone": 1}, agent_id="agent-1")


def test_items_are_listed_newest_first_without_their_bodies(care, history, queue, sent):
    blocked = queue(None)

    items = history.outbox(limit=10)

    assert [item.state for item in items] == ["blocked", "sent"]
    assert (items[1].size_bytes, items[1].redactions) == (len(BODY), {"email": 2})
    assert (items[0].size_bytes, items[0].reason) == (None, "too_deep at steps[0]")
    assert care.seqs("sent", "blocked") == [sent, blocked]


@pytest.mark.usefixtures("sent")
def test_items_can_be_narrowed_by_state(history, queue):
    queue(None)

    items = history.outbox(limit=10, states=["sent", "pending"])
    assert [item.state for item in items] == ["sent"]
    assert (history.count_outbox(), history.count_outbox(["blocked"])) == (2, 1)
    assert len(history.outbox(limit=1)) == 1


def test_an_entry_holds_the_exact_bytes(care, queue):
    entry = care.entry(queue())

    assert (entry.state, entry.body, entry.score) == ("pending", BODY, 0.9)
    assert '"objective":"add 1 and 2"' in entry.document


def test_a_trace_that_is_not_in_the_outbox_is_not_found(care, keep):
    with pytest.raises(TraceNotFoundError, match="not in the outbox"):
        care.entry(keep(score=0.1))


def test_what_was_rejected_is_tried_again_under_another_key(care, outbox, rejected, row):
    before = row(rejected)

    assert care.retry(rejected, agent_id="agent-1")

    after = row(rejected)
    assert (after["state"], after["attempts"], after["reason"]) == ("pending", 0, None)
    assert after["idempotency_key"] != before["idempotency_key"]
    assert after["idempotency_key"] == idempotency_key(BODY, agent_id="agent-1", rejections=1)
    assert outbox.claim(NOW).body == BODY


def test_each_time_the_registry_has_refused_the_key_is_another(care, outbox, rejected, row):
    care.retry(rejected, agent_id="agent-1")
    outbox.rejected(outbox.claim(NOW), RegistryRejectedError(422, "no"))

    care.retry(rejected, agent_id="agent-1")

    assert row(rejected)["rejections"] == 2


def test_what_was_given_up_is_tried_again_under_the_same_key(care, outbox, queue, row):
    seq = queue()
    key = row(seq)["idempotency_key"]
    for _ in range(3):
        outbox.postpone(
            outbox.claim(NOW), RegistryUnavailableError("no route"), retry_at=0, counted=True
        )
    outbox.block(outbox.claim(NOW), "retries_exhausted")

    assert care.retry(seq, agent_id="agent-1")

    assert (row(seq)["attempts"], row(seq)["idempotency_key"]) == (0, key)
    assert outbox.claim(NOW).attempts == 0


@pytest.mark.parametrize("body", [BODY, None], ids=["pending", "blocked"])
def test_of_what_a_person_cancels_nothing_leaves(care, outbox, queue, row, body):
    seq = queue(body)

    assert care.cancel(seq, NOW)

    assert (row(seq)["state"], row(seq)["reason"]) == ("cancelled", "by hand")
    assert (outbox.claim(NOW), outbox.next_due(), outbox.any_pending()) == (None, None, False)


def test_nobody_queues_anew_what_a_person_has_cancelled(care, outbox, queue, row):
    seq = queue()
    care.cancel(seq, NOW)
    before = row(seq)

    outbox.add(seq, b"{}", redactor="rules 2", redactions={})

    assert row(seq) == before
    assert outbox.next_unqueued(after=0) is None


def test_what_a_person_has_cancelled_is_tried_again_if_that_person_says_so(care, outbox, queue):
    seq = queue()
    care.cancel(seq, NOW)

    assert care.retry(seq, agent_id="agent-1")

    assert outbox.claim(NOW).body == BODY


def test_it_is_made_anew_by_the_rules_of_that_day(care, queue, row):
    first, second = queue(), queue()
    care.cancel(first, NOW)
    care.cancel(second, NOW)

    assert renewed(care, first, b"{}") == "rewritten"
    care.block(second, "residual_secret", redactor="rules 2")

    assert (row(first)["state"], row(first)["body"]) == ("cancelled", "{}")
    assert (row(second)["state"], row(second)["body"]) == ("blocked", None)


def test_it_stays_cancelled_if_it_no_longer_clears(care, queue, row, connection):
    seq = queue()
    care.cancel(seq, NOW)
    connection.execute(
        "UPDATE traces SET decision = 'withhold', reason_code = 'custom',"
        " reason_args = json_object('words', 'below 0.95')"
    )

    care.retry(seq, agent_id="agent-1")

    assert row(seq)["state"] == "cancelled"
    assert row(seq)["reason"] == "it cleared the gate before it was re-evaluated: below 0.95"


def test_what_the_registry_refused_gets_another_key_all_the_same(care, rejected, row):
    before = row(rejected)["idempotency_key"]
    care.cancel(rejected, NOW)

    care.retry(rejected, agent_id="agent-1")

    assert (row(rejected)["rejections"], row(rejected)["idempotency_key"] != before) == (1, True)


def test_what_arrived_or_is_on_its_way_is_not_cancelled(care, outbox, sent, queue, row):
    queue()
    on_its_way = outbox.claim(NOW).trace_seq

    assert not care.cancel(sent, NOW)
    assert not care.cancel(on_its_way, NOW)

    assert (row(sent)["state"], row(on_its_way)["state"]) == ("sent", "sending")


def test_what_a_process_that_died_was_sending_is_cancelled(care, outbox, queue, row):
    seq = queue()
    outbox.claim(NOW)

    assert care.cancel(seq, NOW + 1000)

    assert (row(seq)["state"], outbox.claim(NOW + 2000)) == ("cancelled", None)


def test_without_a_body_there_is_nothing_to_try(care, queue, row):
    seq = queue(None)

    assert not care.retry(seq, agent_id=None)
    assert row(seq)["state"] == "blocked"


def test_what_arrived_is_not_touched(care, sent, row):
    before = row(sent)

    care.retry(sent, agent_id=None)
    care.block(sent, "residual_secret", redactor="rules 2")
    assert renewed(care, sent, b"{}") == "unchanged"

    assert row(sent) == before


def test_what_is_on_its_way_is_not_touched(care, outbox, queue, row):
    seq = queue()
    outbox.claim(NOW)
    before = row(seq)

    care.retry(seq, agent_id=None)
    care.block(seq, "residual_secret", redactor="rules 2")
    assert renewed(care, seq, b"{}") == "unchanged"

    assert row(seq) == before


def test_a_body_that_is_the_same_keeps_its_key(care, queue, row):
    seq = queue()
    key = row(seq)["idempotency_key"]

    assert renewed(care, seq, BODY) == "unchanged"

    assert row(seq)["idempotency_key"] == key
    assert (row(seq)["redactor"], row(seq)["redactions"]) == ("rules 2", '{"phone": 1}')


def test_a_body_that_is_another_gets_another_key(care, outbox, queue):
    seq = queue()

    assert renewed(care, seq, b'{"a": 2}') == "rewritten"

    item = outbox.claim(NOW)
    assert item.body == b'{"a": 2}'
    assert item.idempotency_key == idempotency_key(b'{"a": 2}', agent_id="agent-1")


def test_what_could_not_be_redacted_is_released(care, outbox, queue, row):
    seq = queue(None)

    assert renewed(care, seq, BODY) == "released"

    assert (row(seq)["state"], row(seq)["reason"]) == ("pending", None)
    assert outbox.claim(NOW).body == BODY


def test_what_was_given_up_stays_so_with_its_new_body(care, outbox, queue, row):
    seq = queue()
    outbox.block(outbox.claim(NOW), "retries_exhausted")

    assert renewed(care, seq, b"{}") == "rewritten"

    assert (row(seq)["state"], row(seq)["reason"]) == ("blocked", "retries_exhausted")


def test_nothing_is_kept_of_a_body_that_is_not_clean(care, outbox, queue, row):
    seq = queue()

    care.block(seq, "residual_secret at a (denied, 3 chars)", redactor="rules 2")

    assert (row(seq)["state"], row(seq)["body"]) == ("blocked", None)
    assert outbox.claim(NOW) is None
