"""What waits to be sent: claimed by one, for a while, and ended once."""

from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.errors import (
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.instants import instant
from kp_middleware.outbox_items import Receipt, idempotency_key
from kp_middleware.storage import History, OutboxTable

REGISTRY = "https://registry.example"
UNREACHABLE = RegistryUnavailableError("no route")
RECEIPT = Receipt("kp:trace:there", 201)


@pytest.fixture
def queue(outbox, keep):
    """Puts a trace with these bytes into the outbox."""
    return lambda body=b'{"a": 1}': queued(outbox, keep(score=0.9, decision="forward"), body)


@pytest.fixture
def another(db):
    """The outbox as another process has it."""
    with closing(connect(db)) as opened:
        yield OutboxTable(opened, registry=REGISTRY, agent_id="agent-1")


@pytest.fixture
def row(connection):
    return lambda seq: named_row(connection, seq)


def queued(outbox, seq, body):
    outbox.add(seq, body, redactor="rules 1", redactions={"email": 2})
    return seq


def named_row(connection, seq):
    cursor = connection.execute("SELECT * FROM outbox WHERE trace_seq = ?", (seq,))
    names = [column[0] for column in cursor.description]
    return dict(zip(names, cursor.fetchone(), strict=True))


def test_a_parcel_holds_exactly_the_bytes_that_were_added(outbox, queue, clock, row):
    body = '{"text": "naïve 日本"}'.encode()
    seq = queue(body)

    item = outbox.claim(clock())

    assert (item.trace_seq, item.body, item.attempts) == (seq, body, 0)
    assert item.idempotency_key == idempotency_key(body, agent_id="agent-1")
    assert (row(seq)["redactor"], row(seq)["redactions"]) == ("rules 1", '{"email": 2}')


def test_the_oldest_goes_first_and_each_once(outbox, queue, clock):
    seqs = [queue(), queue()]

    claims = [outbox.claim(clock()) for _ in range(3)]

    assert [claim and claim.trace_seq for claim in claims] == [*seqs, None]


def test_of_two_claimants_one_gets_it(outbox, another, queue, clock):
    queue()

    claims = outbox.claim(clock()), another.claim(clock())

    assert (claims[0] is None, claims[1] is None) == (False, True)


@pytest.mark.parametrize(("passed_s", "taken_over"), [(39.9, False), (40, True)])
def test_a_lease_that_has_ended_is_another_s(outbox, another, queue, clock, passed_s, taken_over):
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


def test_what_was_sent_is_done(outbox, queue, clock, row):
    seq = queue()

    outbox.sent(outbox.claim(clock()), RECEIPT)

    sent = row(seq)
    assert (sent["state"], sent["remote_id"], sent["http_status"]) == (
        "sent",
        "kp:trace:there",
        201,
    )
    assert (sent["attempts"], sent["claimed_by"], sent["claimed_until"]) == (1, None, None)
    assert sent["sent_at"].endswith("Z")
    assert (outbox.claim(clock()), outbox.next_due(), outbox.any_pending()) == (None, None, False)


def test_what_was_rejected_is_done_with_the_reason(outbox, queue, clock, row):
    seq = queue()

    outbox.rejected(outbox.claim(clock()), RegistryRejectedError(400, "steps.0.type: invalid"))

    rejected = row(seq)
    assert (rejected["state"], rejected["reason"]) == ("rejected", "steps.0.type: invalid")
    assert (rejected["http_status"], rejected["attempts"]) == (400, 1)
    assert outbox.claim(clock()) is None


def test_what_was_blocked_is_not_tried_again(outbox, queue, clock, row):
    seq = queue()

    outbox.block(outbox.claim(clock()), "retries_exhausted")

    assert (row(seq)["state"], row(seq)["reason"]) == ("blocked", "retries_exhausted")
    assert outbox.claim(clock()) is None


def test_what_may_not_be_clean_never_leaves(outbox, keep, clock, row):
    seq = keep(score=0.9, decision="forward")

    why = "residual_secret at steps.0.content"
    outbox.add(seq, None, redactor="rules 1", redactions={}, reason=why)

    assert (row(seq)["state"], row(seq)["body"]) == ("blocked", None)
    assert row(seq)["reason"] == why
    assert (outbox.claim(clock()), outbox.any_pending()) == (None, False)


@pytest.mark.parametrize(("passed_s", "due"), [(59.9, False), (60, True)])
def test_what_was_postponed_is_due_at_its_time(outbox, queue, clock, passed_s, due):
    queue()
    outbox.postpone(outbox.claim(clock()), UNREACHABLE, retry_at=clock() + 60, counted=True)

    clock.advance(passed_s)

    assert (outbox.claim(clock()) is not None) is due


@pytest.mark.parametrize(("counted", "attempts"), [(True, 1), (False, 0)])
def test_an_attempt_counts_where_the_row_is_to_blame(outbox, queue, clock, row, counted, attempts):
    seq = queue()

    outbox.postpone(outbox.claim(clock()), UNREACHABLE, retry_at=clock(), counted=counted)

    postponed = row(seq)
    assert (postponed["state"], postponed["attempts"]) == ("pending", attempts)
    assert (postponed["last_error"], postponed["http_status"]) == ("no route", None)
    assert outbox.claim(clock()).attempts == attempts


@pytest.mark.parametrize(
    ("error", "rejections"),
    [
        (UNREACHABLE, 0),
        (RegistryUnavailableError("trouble", status=500), 0),
        (RegistryUnavailableError("slow down", status=429), 1),
        (RegistryForbiddenError(403, "no scope", "ask for it"), 1),
    ],
    ids=["no answer", "500", "429", "403"],
)
def test_after_a_4xx_the_idempotency_key_is_another(outbox, queue, clock, row, error, rejections):
    seq = queue()
    item = outbox.claim(clock())

    outbox.postpone(item, error, retry_at=clock(), counted=False)

    again = outbox.claim(clock())
    assert again.idempotency_key == idempotency_key(
        item.body, agent_id="agent-1", rejections=rejections
    )
    assert (again.body, row(seq)["rejections"]) == (item.body, rejections)


def test_each_4xx_changes_the_key_once_more(outbox, queue, clock):
    queue()
    keys = [postponed_key(outbox, clock) for _ in range(3)]

    assert len(set(keys)) == 3


def postponed_key(outbox, clock):
    item = outbox.claim(clock())
    slow_down = RegistryUnavailableError("slow down", status=429)
    outbox.postpone(item, slow_down, retry_at=clock(), counted=False)
    return item.idempotency_key


def test_a_row_that_is_deleted_while_it_is_sent_is_gone(outbox, connection, queue, clock):
    queue()
    item = outbox.claim(clock())
    connection.execute("DELETE FROM traces")

    outbox.postpone(item, UNREACHABLE, retry_at=clock(), counted=True)
    outbox.sent(item, RECEIPT)

    assert outbox.next_due() is None


def test_the_next_row_is_due_at_once_or_later_and_what_another_has_is_looked_at_soon(
    timed, queue, clock
):
    queue()
    at_once = timed.next_due()
    item = timed.claim(clock())
    claimed = timed.next_due()
    timed.postpone(item, UNREACHABLE, retry_at=clock() + 5, counted=True)

    assert (at_once, claimed) == (0.0, clock() + 1)
    assert timed.next_due() == clock() + 5


def test_what_is_for_another_registry_is_left_alone(outbox, connection, keep, clock):
    other = OutboxTable(connection, registry="https://other.example", agent_id=None)
    queued(other, keep(score=0.9, decision="forward"), b"{}")

    assert (outbox.claim(clock()), outbox.next_due(), outbox.any_pending()) == (None, None, False)
    assert other.claim(clock()).idempotency_key == idempotency_key(b"{}", agent_id=None)


def test_what_waits_is_counted(outbox, connection, queue, clock):
    queue()
    queue()
    outbox.claim(clock())

    assert outbox.any_pending()
    assert History(connection).counts().pending == 2


def test_instants_keep_milliseconds():
    assert instant(1_790_000_000.1234) == "2026-09-21T14:13:20.123Z"


@pytest.fixture
def timed(connection, clock):
    """The outbox of whoever sees this clock."""
    return OutboxTable(connection, registry=REGISTRY, agent_id="agent-1", clock=clock)


@pytest.mark.parametrize(
    ("wait_s", "set_back_s", "is_due"),
    [(300, 0, False), (300, 60, False), (86_430, 0, False), (300, 200_000, True)],
    ids=["its time", "a minute back", "the longest wait", "days back"],
)
def test_a_clock_that_is_set_back_freezes_no_row(timed, queue, clock, wait_s, set_back_s, is_due):
    queue()
    item = timed.claim(clock())
    timed.postpone(item, UNREACHABLE, retry_at=clock() + wait_s, counted=True)

    clock.advance(-set_back_s)

    assert (timed.next_due() <= clock()) == is_due
    assert (timed.claim(clock()) is not None) == is_due


@pytest.mark.parametrize(("set_back_s", "is_due"), [(30, False), (3600, True)])
def test_a_clock_that_is_set_back_prolongs_no_lease_for_long(
    timed, queue, clock, set_back_s, is_due
):
    queue()
    timed.claim(clock())

    clock.advance(-set_back_s)

    assert (timed.claim(clock()) is not None) == is_due


def test_a_clock_that_jumps_forward_makes_all_that_waits_due(timed, queue, clock):
    queue()
    timed.postpone(timed.claim(clock()), UNREACHABLE, retry_at=clock() + 300, counted=True)

    clock.advance(10 * 365 * 86_400)

    assert timed.claim(clock()).attempts == 1


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


def test_what_other_rules_had_prepared_waits_for_a_person(outbox, queue, connection, row):
    seq = queue()
    redactor = "kp-middleware 1+stricter"
    cancelled = "UPDATE outbox SET state = 'cancelled', body = NULL, redactor = ?"
    connection.execute(cancelled, (redactor,))

    outbox.add(seq, b'{"a": 2}', redactor="kp-middleware 2+ours", redactions={})

    found = row(seq)
    assert (found["state"], found["body"], found["redactor"]) == ("blocked", None, redactor)
    assert "outbox rescan --force" in found["reason"]


def test_what_the_same_rules_had_prepared_is_queued_again(outbox, queue, connection, row):
    seq = queue()
    connection.execute(
        "UPDATE outbox SET state = 'cancelled', body = NULL, next_attempt_at = '2999',"
        " redactor = 'kp-middleware 1+ours'"
    )

    outbox.add(seq, b'{"a": 2}', redactor="kp-middleware 2+ours", redactions={})

    assert (row(seq)["state"], row(seq)["body"]) == ("pending", '{"a": 2}')
