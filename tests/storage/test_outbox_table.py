"""Outbox items: claimed by one process, for a limited time, and ended once."""

from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.errors import (
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.export import Receipt
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.storage import History, OutboxTable

REGISTRY = "https://registry.example"
UNREACHABLE = RegistryUnavailableError("no route")
RECEIPT = Receipt("kp:trace:there", 201)


@pytest.fixture
def outbox(connection, clock):
    """The outbox of a process that sees this clock."""
    return OutboxTable(connection, registry=REGISTRY, agent_id="agent-1", clock=clock)


@pytest.fixture
def another(db):
    """The outbox as another process has it."""
    with closing(connect(db)) as opened:
        yield OutboxTable(opened, registry=REGISTRY, agent_id="agent-1")


def test_the_oldest_goes_first_and_each_once_with_exactly_the_bytes_that_were_added(
    outbox, queue, clock, row, connection
):
    body = '{"text": "naïve 日本"}'.encode()
    seqs = [queue(body), queue()]

    first, second, third = (outbox.claim(clock()) for _ in range(3))

    assert (first.trace_seq, first.body, first.attempts) == (seqs[0], body, 0)
    assert first.idempotency_key == idempotency_key(body, agent_id="agent-1")
    assert (second.trace_seq, third) == (seqs[1], None)
    assert (row(seqs[0])["redactor"], row(seqs[0])["redactions"]) == ("rules 1", '{"email": 2}')
    assert (outbox.any_pending(), History(connection).counts().pending) == (True, 2)


@pytest.mark.parametrize(
    ("passed_s", "taken_over"), [(0, False), (39.9, False), (40, True)], ids=str
)
def test_what_one_has_claimed_is_another_s_when_the_lease_has_ended(
    outbox, another, queue, clock, passed_s, taken_over
):
    queue()
    outbox.claim(clock())

    clock.advance(passed_s)

    assert (another.claim(clock()) is not None) is taken_over


def test_whoever_lost_the_lease_changes_nothing(outbox, another, queue, clock, row):
    seq = queue()
    slow = outbox.claim(clock())
    clock.advance(120)
    another.claim(clock())
    before = row(seq)

    outbox.sent(slow, RECEIPT)
    outbox.rejected(slow, RegistryRejectedError(400, "no"))
    outbox.block(slow, "no")
    outbox.postpone(slow, UNREACHABLE, retry_at=clock(), counted=True)

    assert row(seq) == before


def test_what_was_sent_rejected_or_blocked_is_done(outbox, queue, clock, row):
    seqs = [queue(), queue(), queue()]

    outbox.sent(outbox.claim(clock()), RECEIPT)
    outbox.rejected(outbox.claim(clock()), RegistryRejectedError(400, "steps.0.type: invalid"))
    outbox.block(outbox.claim(clock()), "retries_exhausted")

    sent, rejected, blocked = map(row, seqs)
    assert [one["state"] for one in (sent, rejected, blocked)] == ["sent", "rejected", "blocked"]
    assert [one["http_status"] for one in (sent, rejected, blocked)] == [201, 400, None]
    assert sent["remote_id"] == "kp:trace:there"
    assert (sent["attempts"], sent["claimed_by"], sent["claimed_until"]) == (1, None, None)
    assert sent["sent_at"].endswith("Z")
    assert (rejected["reason"], rejected["attempts"]) == ("steps.0.type: invalid", 1)
    assert blocked["reason"] == "retries_exhausted"
    assert (outbox.claim(clock()), outbox.next_due(), outbox.any_pending()) == (None, None, False)


@pytest.mark.parametrize(("counted", "attempts"), [(True, 1), (False, 0)])
def test_what_was_postponed_is_due_at_its_time_and_an_attempt_counts_where_the_row_is_to_blame(
    outbox, queue, clock, row, counted, attempts
):
    seq = queue()

    outbox.postpone(outbox.claim(clock()), UNREACHABLE, retry_at=clock() + 60, counted=counted)

    postponed = row(seq)
    assert (postponed["state"], postponed["attempts"]) == ("pending", attempts)
    assert (postponed["last_error"], postponed["http_status"]) == ("no route", None)
    clock.advance(59.9)
    assert outbox.claim(clock()) is None
    clock.advance(0.1)
    assert outbox.claim(clock()).attempts == attempts


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (UNREACHABLE, False),
        (RegistryUnavailableError("trouble", status=500), False),
        (RegistryUnavailableError("slow down", status=429), True),
        (RegistryForbiddenError(403, "no scope", "ask for it"), True),
    ],
    ids=["no answer", "500", "429", "403"],
)
def test_after_each_4xx_the_idempotency_key_is_another(
    outbox, queue, clock, row, error, is_refusal
):
    seq = queue()

    for times in range(3):
        item = outbox.claim(clock())
        rejections = times if is_refusal else 0
        assert row(seq)["rejections"] == rejections
        assert item.idempotency_key == idempotency_key(
            b'{"a": 1}', agent_id="agent-1", rejections=rejections
        )
        outbox.postpone(item, error, retry_at=clock(), counted=False)


def test_a_row_that_is_deleted_while_it_is_sent_is_gone(outbox, connection, queue, clock):
    queue()
    item = outbox.claim(clock())
    connection.execute("DELETE FROM traces")

    outbox.postpone(item, UNREACHABLE, retry_at=clock(), counted=True)
    outbox.sent(item, RECEIPT)

    assert outbox.next_due() is None


def test_the_next_row_is_due_at_once_or_later_and_what_another_has_is_looked_at_soon(
    outbox, queue, clock
):
    queue()
    at_once = outbox.next_due()
    item = outbox.claim(clock())
    claimed = outbox.next_due()
    outbox.postpone(item, UNREACHABLE, retry_at=clock() + 5, counted=True)

    assert (at_once, claimed) == (0.0, clock() + 1)
    assert outbox.next_due() == clock() + 5


def test_what_is_for_another_registry_is_left_alone(outbox, connection, keep, clock):
    other = OutboxTable(connection, registry="https://other.example", agent_id=None)
    other.add(keep(score=0.9, decision="forward"), b"{}", redactor="rules 1", redactions={})

    assert (outbox.claim(clock()), outbox.next_due(), outbox.any_pending()) == (None, None, False)
    assert other.claim(clock()).idempotency_key == idempotency_key(b"{}", agent_id=None)


@pytest.mark.parametrize(
    ("wait_s", "passed_s", "is_due"),
    [
        *((300, 0, False), (300, -60, False), (86_430, 0, False)),
        *((300, -200_000, True), (300, 10 * 365 * 86_400, True)),
    ],
    ids=["its time", "a minute back", "the longest wait", "days back", "years on"],
)
def test_a_clock_that_jumps_freezes_no_row(outbox, queue, clock, wait_s, passed_s, is_due):
    queue()
    item = outbox.claim(clock())
    outbox.postpone(item, UNREACHABLE, retry_at=clock() + wait_s, counted=True)

    clock.advance(passed_s)

    assert (outbox.next_due() <= clock()) == is_due
    assert (outbox.claim(clock()) is not None) == is_due


@pytest.mark.parametrize(("set_back_s", "is_due"), [(30, False), (3600, True)])
def test_a_clock_that_is_set_back_prolongs_no_lease_for_long(
    outbox, queue, clock, set_back_s, is_due
):
    queue()
    outbox.claim(clock())

    clock.advance(-set_back_s)

    assert (outbox.claim(clock()) is not None) == is_due


def test_what_clears_no_more_is_withdrawn_where_its_sender_died(
    outbox, another, queue, clock, connection, row
):
    withdrawn, next_one = queue(), queue(b'{"b": 2}')
    outbox.claim(clock())
    connection.execute("UPDATE traces SET decision = 'withhold' WHERE seq = ?", (withdrawn,))
    clock.advance(121)

    item = another.claim(clock())

    assert item.trace_seq == next_one
    assert (row(withdrawn)["state"], row(withdrawn)["body"]) == ("cancelled", None)


@pytest.mark.parametrize(
    ("prepared_by", "found"),
    [
        ("kp-middleware 1+stricter", ("blocked", None, "kp-middleware 1+stricter")),
        ("kp-middleware 1+ours", ("pending", '{"a": 2}', "kp-middleware 2+ours")),
    ],
    ids=["others", "the same"],
)
def test_what_other_rules_had_prepared_waits_for_a_person(
    outbox, queue, connection, row, prepared_by, found
):
    seq = queue()
    connection.execute(
        "UPDATE outbox SET state = 'cancelled', body = NULL, next_attempt_at = '2999',"
        " rejections = 3, redactor = ?",
        (prepared_by,),
    )

    outbox.add(seq, b'{"a": 2}', redactor="kp-middleware 2+ours", redactions={})

    after = row(seq)
    key = idempotency_key((after["body"] or "").encode(), agent_id="agent-1", rejections=3)
    assert (after["state"], after["body"], after["redactor"]) == found
    assert after["idempotency_key"] == key
    assert ("outbox rescan --force" in str(after["reason"])) == (after["state"] == "blocked")
