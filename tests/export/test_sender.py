import heapq
import logging
import math
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from kp_middleware.errors import (
    DatabaseError,
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.export import Registry, Sender, payload
from kp_middleware.outbox_items import OutboxItem, Receipt
from kp_middleware.rate_limit import LocalPace, Pace
from kp_middleware.testing import FakeClock, ListOutbox, LocalRegistry, Row
from kp_middleware.traces import ReasoningTrace, Step

HOUR_S = 3600.0
DEAD = RegistryForbiddenError(429, "a dead key", "kp-middleware outbox retry --failed")
REJECTED = RegistryRejectedError(400, "steps.0.type: no")
REFUSED = RegistryUnavailableError("connection refused; correct KP_REGISTRY_URL")
TROUBLE = RegistryUnavailableError("the registry answered 500", status=500)
LIMITED = RegistryUnavailableError("over the limit", status=429, retry_after_s=2.0)
BUSY = RegistryUnavailableError("the registry answered 503", status=503, retry_after_s=900.0)


class ScriptedRegistry:
    def __init__(self, clock, answers=(), *, chokes_on=()):
        self.clock, self.answers, self.chokes_on = clock, iter(answers), chokes_on
        self.asked = []

    def hang_up(self):
        return True

    def export(self, item):
        answer = next(self.answers, None)
        self.asked.append((self.clock(), answer))
        if item.trace_seq in self.chokes_on:
            raise TROUBLE
        if answer is not None:
            raise answer
        return Receipt(remote_id=f"kp:trace:{item.trace_seq}", status=201)


def outbox_of(clock, count, *, every_s=0.0):
    items = [OutboxItem(seq, b"{}", f"key-{seq}") for seq in range(1, count + 1)]
    return ListOutbox(Row(item, clock() + n * every_s) for n, item in enumerate(items))


def forwarder_of(outbox, registry, clock, pace=Pace(), luck=0.0):  # noqa: B008 - it is frozen
    keeper = LocalPace(pace, clock)
    return Sender(outbox, registry, pace=keeper, clock=clock, jitter=lambda: luck)


@contextmanager
def forwarding_over_http(outbox, clock, **options):
    with LocalRegistry(clock=clock, **options) as local:
        registry = Registry(local.url, SecretStr(local.api_key))
        yield local, forwarder_of(outbox, registry, clock)
        registry.close()


def live(forwarder, clock, for_s=float("inf")):
    """Do as the pipeline does, without the waiting, until nothing waits or the time is over."""
    until = clock() + for_s
    while (wait_s := forwarder.send_due()) not in {None, math.inf} and clock() + wait_s <= until:
        clock.advance(wait_s)


def documents_for(clock, count):
    """Rows with documents that a registry takes."""
    steps = [Step(step_id=0, type="thought")]
    bodies = [payload(ReasoningTrace.of("x", steps), score=0.9, agent_id="a") for _ in range(count)]
    items = [OutboxItem(seq, body, f"key-{seq}") for seq, body in enumerate(bodies)]
    return ListOutbox(Row(item, clock()) for item in items)


def live_together(forwarders, clock):
    """Let each have its turn when it asks for one, until all is sent; how long it took."""
    began = clock()
    turns = [(began, number) for number in range(len(forwarders))]
    while turns:
        at, number = heapq.heappop(turns)
        clock.advance(max(0.0, at - clock()))
        wait_s = forwarders[number].send_due()
        if wait_s is not None:
            heapq.heappush(turns, (clock() + wait_s, number))
    return clock() - began


def most_within_an_hour(times):
    return max((sum(0 <= at - first < HOUR_S for at in times) for first in times), default=0)


def test_everything_that_is_due_arrives(clock):
    outbox = documents_for(clock, 3)

    with forwarding_over_http(outbox, clock) as (local, forwarder):
        more_in_s = forwarder.send_due()

    assert more_in_s is None
    assert [row.news.remote_id for row in outbox.rows] == [*local.documents]
    assert [request.body for request in local.requests] == [row.item.body for row in outbox.rows]


@pytest.mark.parametrize(
    ("homes", "count"), [(1, 100), (2, 100), (8, 30)], ids=["one", "two", "eight"]
)
def test_homes_that_share_a_key_and_nothing_else_meet_no_429(clock, homes, count):
    with LocalRegistry(clock=clock) as local:
        registries = [Registry(local.url, SecretStr(local.api_key)) for _ in range(homes)]
        forwarders = [
            forwarder_of(documents_for(clock, count), registry, clock) for registry in registries
        ]

        took_s = live_together(forwarders, clock)
        [registry.close() for registry in registries]

    assert (local.refused_at, local.revoked) == ((), False)
    assert len(local.documents) == homes * count
    assert took_s <= 2.3 * homes * count


def test_a_home_that_wakes_up_meets_what_the_others_have_left(clock):
    with LocalRegistry(clock=clock) as local:
        registries = [Registry(local.url, SecretStr(local.api_key)) for _ in range(2)]
        outboxes = [documents_for(clock, 60) for _ in range(2)]
        for row in outboxes[1].rows[1:]:
            row.due_at += 100.0
        forwarders = [
            forwarder_of(outbox, registry, clock)
            for outbox, registry in zip(outboxes, registries, strict=True)
        ]

        live_together(forwarders, clock)
        [registry.close() for registry in registries]

    assert (local.refused_at, len(local.documents)) == ((), 120)


@pytest.mark.parametrize(
    ("per_minute", "took_s"), [(200, 22), (30, 396), (6, 2156)], ids=["pro", "free", "slow"]
)
def test_the_pace_is_what_the_registry_says_it_takes_in_a_minute(clock, per_minute, took_s):
    with LocalRegistry(burst=per_minute, refill_s=60 / per_minute, clock=clock) as local:
        registry = Registry(local.url, SecretStr(local.api_key))

        took = live_together([forwarder_of(documents_for(clock, 200), registry, clock)], clock)
        registry.close()

    assert local.refused_at == ()
    assert took == pytest.approx(took_s, rel=0.05)


@pytest.mark.parametrize(
    ("every_s", "answers", "interval_s", "more_in_s", "states"),
    [
        (90.0, [], 2.2, 90.0, ["sent", "pending", "pending"]),
        (0.0, [], 22.0, 22.0, ["sent", "sent", "pending"]),
        (0.0, [BUSY], 2.2, 900.0, ["pending", "pending", "pending"]),
        (90.0, [REJECTED], 2.2, 90.0, ["rejected", "pending", "pending"]),
    ],
    ids=["not due yet", "after a burst", "a registry that asks for time", "rejected"],
)
def test_it_tells_how_long_there_is_nothing_to_send(
    clock, every_s, answers, interval_s, more_in_s, states
):
    outbox, registry = outbox_of(clock, 3, every_s=every_s), ScriptedRegistry(clock, answers)
    forwarder = forwarder_of(outbox, registry, clock, Pace(interval_s=interval_s))

    assert forwarder.send_due() == pytest.approx(more_in_s)
    assert outbox.states() == states


@pytest.mark.parametrize("options", [{"may_write": False}, {}], ids=["403", "a dead key"])
def test_once_refused_a_key_is_not_tried_again(clock, options):
    outbox = outbox_of(clock, 5)

    with LocalRegistry(clock=clock, **options) as local:
        registry = Registry(local.url, SecretStr(local.api_key if options else "kp_dead"))
        forwarder = forwarder_of(outbox, registry, clock)
        waits = [(forwarder.send_due(), clock.advance(25 * HOUR_S))[0] for _ in range(5)]
        registry.close()

    assert (len(local.requests), waits) == (1, [math.inf] * 5)
    assert outbox.states() == ["pending"] * 5


def test_a_row_that_met_a_dead_key_is_due_when_the_user_has_acted(clock):
    outbox = outbox_of(clock, 1)
    forwarder_of(outbox, ScriptedRegistry(clock, [DEAD]), clock).send_due()

    forwarder_of(outbox, ScriptedRegistry(clock), clock).send_due()

    assert outbox.states() == ["sent"]
    assert outbox.rows[0].item.attempts == 0


def test_after_a_429_nothing_is_sent_for_longer_than_was_asked_and_no_attempt_counts(clock):
    outbox, registry = outbox_of(clock, 2), ScriptedRegistry(clock, [LIMITED])
    forwarder = forwarder_of(outbox, registry, clock)

    more_in_s = forwarder.send_due()

    assert more_in_s > 2.0
    assert len(registry.asked) == 1

    live(forwarder, clock)

    assert outbox.states() == ["sent", "sent"]
    assert [row.item.attempts for row in outbox.rows] == [0, 0]


@given(
    st.lists(st.sampled_from([LIMITED, LIMITED, TROUBLE, REJECTED, None]), max_size=60),
    st.floats(0, 600),
    st.floats(0, 1),
)
def test_no_three_429s_fall_within_one_hour(answers, every_s, luck):
    clock = FakeClock()
    registry = ScriptedRegistry(clock, answers)
    forwarder = forwarder_of(outbox_of(clock, 40, every_s=every_s), registry, clock, luck=luck)

    live(forwarder, clock, for_s=200 * HOUR_S)

    assert most_within_an_hour([at for at, answer in registry.asked if answer is LIMITED]) <= 2


@pytest.mark.parametrize("trouble", [REFUSED, TROUBLE], ids=["refused", "500"])
def test_an_outage_uses_up_no_attempts_and_everything_is_sent_after_it(clock, trouble):
    outbox, registry = outbox_of(clock, 30), ScriptedRegistry(clock, [trouble] * 100)
    forwarder = forwarder_of(outbox, registry, clock)

    live(forwarder, clock, for_s=5 * HOUR_S)

    assert [row.item.attempts for row in outbox.rows] == [0] * 30
    assert set(outbox.states()) == {"pending"}

    live(forwarder, clock)

    assert set(outbox.states()) == {"sent"}


@pytest.mark.parametrize("luck", [0.0, 1.0])
@pytest.mark.parametrize("rows", [1, 100])
def test_days_of_trouble_are_some_dozens_of_requests(clock, luck, rows):
    outbox, registry = outbox_of(clock, rows), ScriptedRegistry(clock, [REFUSED] * 5000)

    live(forwarder_of(outbox, registry, clock, luck=luck), clock, for_s=5 * 24 * HOUR_S)

    assert 1200 <= registry.asked[-1][0] - registry.asked[-2][0] <= HOUR_S
    assert len(registry.asked) < 5 * 24 * 3 + 12


def test_the_first_sign_of_life_ends_all_waits_of_an_outage(clock):
    outbox, registry = outbox_of(clock, 3), ScriptedRegistry(clock, [REFUSED] * 40)
    forwarder = forwarder_of(outbox, registry, clock)

    live(forwarder, clock)

    lives_again_at = registry.asked[40][0]
    assert outbox.states() == ["sent"] * 3
    assert registry.asked[-1][0] - lives_again_at < 10


def test_a_document_that_the_registry_chokes_on_holds_up_others_for_minutes_at_most(clock):
    outbox, registry = outbox_of(clock, 1), ScriptedRegistry(clock, chokes_on={1})
    forwarder = forwarder_of(outbox, registry, clock)
    live(forwarder, clock, for_s=24 * HOUR_S)

    outbox.rows.append(Row(OutboxItem(2, b"{}", "key-2"), clock()))
    live(forwarder, clock, for_s=150)

    assert outbox.states() == ["pending", "sent"]


def test_a_document_that_the_registry_chokes_on_does_not_hold_up_those_that_wait_with_it(clock):
    outbox, registry = outbox_of(clock, 10), ScriptedRegistry(clock, chokes_on={1})

    live(forwarder_of(outbox, registry, clock), clock, for_s=60)

    assert outbox.states() == ["pending"] + ["sent"] * 9


def test_a_document_that_fails_beside_others_success_is_blocked_after_eight_attempts(clock, caplog):
    outbox, registry = outbox_of(clock, 100, every_s=600), ScriptedRegistry(clock, chokes_on={1})

    live(forwarder_of(outbox, registry, clock), clock)

    assert outbox.states() == ["blocked"] + ["sent"] * 99
    assert outbox.rows[0].news == "retries_exhausted"
    assert "stays local after 8 attempts" in caplog.text


class CountedTurns(LocalPace):
    """Counts how often its turn was let go."""

    released = 0

    def release(self, **_):
        self.released += 1


class TakenTurn(CountedTurns):
    """Lets another process be first between our turn and our request."""

    def take(self):
        return 1.0 if self.released else 0.0

    def spend(self):
        self.released += 1


def test_a_turn_that_another_process_has_taken_costs_the_row_nothing(clock):
    outbox, registry, pace = outbox_of(clock, 1), ScriptedRegistry(clock), TakenTurn(Pace(), clock)

    more_in_s = Sender(outbox, registry, pace=pace, clock=clock).send_due()

    assert (more_in_s, registry.asked, outbox.states()) == (1.0, [], ["pending"])
    assert outbox.rows[0].item.attempts == 0


def test_a_row_that_another_process_has_claimed_just_now_is_left_to_it(clock):
    class Claimed(ListOutbox):
        def claim(self, _now):
            self.rows[0].due_at = clock() + 120

    outbox, registry = Claimed([Row(OutboxItem(1, b"{}", "key"), clock())]), ScriptedRegistry(clock)

    more_in_s = forwarder_of(outbox, registry, clock).send_due()

    assert (more_in_s, registry.asked) == (120, [])


class Locked(ListOutbox):
    """Cannot be written from the first answer on, until it is unlocked."""

    locked = True

    def sent(self, item, receipt):
        self._refuse()
        super().sent(item, receipt)

    def postpone(self, item, error, **facts):
        self._refuse()
        super().postpone(item, error, **facts)

    def rejected(self, item, error):
        self._refuse()
        super().rejected(item, error)

    def _refuse(self):
        if self.locked:
            raise DatabaseError("kp.db", "is locked", "close the program that has locked it")


@pytest.mark.parametrize(
    ("answer", "states"),
    [(None, ["sent", "sent"]), (REJECTED, ["rejected", "sent"]), (DEAD, ["pending", "pending"])],
    ids=["sent", "rejected", "a dead key"],
)
def test_an_answer_that_cannot_be_written_down_is_kept_with_the_turn_and_not_asked_for_again(
    clock, answer, states
):
    outbox, registry = Locked(outbox_of(clock, 2).rows), ScriptedRegistry(clock, [answer])
    pace = CountedTurns(Pace(), clock)
    forwarder = Sender(outbox, registry, pace=pace, clock=clock)

    for _ in range(3):
        with pytest.raises(DatabaseError):
            forwarder.send_due()
    asked, released = len(registry.asked), pace.released
    outbox.locked = False
    forwarder.send_due()

    assert (asked, released, outbox.states()) == (1, 0, states)
    assert pace.released == 1


class Hanging(ScriptedRegistry):
    """While it is asked, another thread ends the process; answers all the same."""

    def __init__(self, clock, *, reached):
        super().__init__(clock)
        self.reached = reached
        self.end = None

    def export(self, item):
        self.gave_back = self.end()
        return super().export(item)

    def hang_up(self):
        return self.reached


@pytest.mark.parametrize(("reached", "lost_at"), [(True, 1_790_000_000.0), (False, -math.inf)])
def test_what_is_asked_when_the_process_ends_is_due_again_as_it_was(clock, reached, lost_at):
    outbox, registry = outbox_of(clock, 2), Hanging(clock, reached=reached)
    forwarder = forwarder_of(outbox, registry, clock)
    registry.end = forwarder.abandon
    before = [row.item for row in outbox.rows]

    forwarder.send_due()

    assert registry.gave_back
    assert (outbox.states(), len(registry.asked)) == (["pending", "pending"], 1)
    assert [row.item for row in outbox.rows] == before
    assert forwarder._pace.pace.lost_at == lost_at


def test_who_ends_before_the_request_makes_none_and_begins_nothing_more(clock):
    outbox, registry = outbox_of(clock, 1), ScriptedRegistry(clock)
    forwarder = forwarder_of(outbox, registry, clock)
    claim, gave_back = outbox.claim, []
    outbox.claim = lambda now: (gave_back.append(forwarder.abandon()), claim(now))[1]

    forwarder.send_due()
    forwarder.send_due()

    assert (gave_back, outbox.states(), registry.asked) == ([False], ["pending"], [])
    assert forwarder._pace.pace.asked_at == -math.inf


def test_others_have_their_turn_even_if_the_file_of_traces_breaks(clock):
    pace = TakenTurn(Pace(), clock)

    class Broken(ListOutbox):
        def next_due(self):
            raise DatabaseError("kp.db", "is gone", "do something")

    with pytest.raises(DatabaseError):
        Sender(Broken([]), ScriptedRegistry(clock), pace=pace, clock=clock).send_due()

    assert pace.released == 1


def test_stopped_in_the_middle_it_ends_the_parcel_that_is_under_way_and_begins_nothing(clock):
    outbox, stop = outbox_of(clock, 3), threading.Event()

    with forwarding_over_http(outbox, clock, answers=lambda _: stop.set() or 400) as (_, forwarder):
        forwarder.send_due(stop)
        assert forwarder.send_due(stop) == 0.0

    assert outbox.states() == ["rejected", "pending", "pending"]


@pytest.mark.parametrize(
    ("answers", "words", "remedy"),
    [
        ([REJECTED] * 3, "stays local", "kp-middleware outbox --failed"),
        ([DEAD], "nothing more is sent", "kp-middleware outbox retry --failed"),
        ([LIMITED] * 3, "sending pauses", "no action is needed"),
        ([REFUSED, TROUBLE, REFUSED], "is sent later", "correct KP_REGISTRY_URL"),
    ],
    ids=["rejected", "forbidden", "limited", "in trouble"],
)
def test_each_kind_of_trouble_is_told_once_with_what_to_do(clock, caplog, answers, words, remedy):
    caplog.set_level(logging.WARNING)
    forwarder = forwarder_of(outbox_of(clock, 5), ScriptedRegistry(clock, answers), clock)

    live(forwarder, clock)

    (record,) = caplog.records
    assert words in record.getMessage()
    assert remedy in record.getMessage()
