"""A sender: what it sends, when, how fast, and what it leaves when it ends."""

import heapq
import math
import threading
from contextlib import contextmanager

import pytest
from pydantic import SecretStr
from scripted_registry import BUSY, DEAD, REJECTED, ScriptedRegistry, outbox_of, sender_of

from kp_middleware import ReasoningTrace, Step
from kp_middleware.errors import DatabaseError
from kp_middleware.export import OutboxItem, Registry, Sender, payload
from kp_middleware.rate_limit import LocalPace, Pace
from kp_middleware.testing import ListOutbox, LocalRegistry, Row


@contextmanager
def sending_over_http(outbox, clock, **options):
    with LocalRegistry(clock=clock, **options) as local:
        registry = Registry(local.url, SecretStr(local.api_key))
        yield local, sender_of(outbox, registry, clock)
        registry.close()


def documents_for(clock, count):
    """Rows with documents that a registry takes."""
    steps = [Step(step_id=0, type="thought")]
    bodies = [payload(ReasoningTrace.of("x", steps), score=0.9, agent_id="a") for _ in range(count)]
    items = [OutboxItem(seq, body, f"key-{seq}") for seq, body in enumerate(bodies)]
    return ListOutbox(Row(item, clock()) for item in items)


def live_together(senders, clock):
    """Let each have its turn when it asks for one, until all is sent; how long it took."""
    began = clock()
    turns = [(began, number) for number in range(len(senders))]
    while turns:
        at, number = heapq.heappop(turns)
        clock.advance(max(0.0, at - clock()))
        wait_s = senders[number].send_due()
        if wait_s is not None:
            heapq.heappush(turns, (clock() + wait_s, number))
    return clock() - began


def test_everything_that_is_due_arrives(clock):
    outbox = documents_for(clock, 3)

    with sending_over_http(outbox, clock) as (local, sender):
        more_in_s = sender.send_due()

    assert more_in_s is None
    assert [row.news.remote_id for row in outbox.rows] == [*local.documents]
    assert [request.body for request in local.requests] == [row.item.body for row in outbox.rows]


@pytest.mark.parametrize(
    ("homes", "count"), [(1, 100), (2, 100), (8, 30)], ids=["one", "two", "eight"]
)
def test_homes_that_share_a_key_and_nothing_else_meet_no_429(clock, homes, count):
    with LocalRegistry(clock=clock) as local:
        registries = [Registry(local.url, SecretStr(local.api_key)) for _ in range(homes)]
        senders = [
            sender_of(documents_for(clock, count), registry, clock) for registry in registries
        ]

        took_s = live_together(senders, clock)
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
        senders = [
            sender_of(outbox, registry, clock)
            for outbox, registry in zip(outboxes, registries, strict=True)
        ]

        live_together(senders, clock)
        [registry.close() for registry in registries]

    assert (local.refused_at, len(local.documents)) == ((), 120)


@pytest.mark.parametrize(
    ("per_minute", "took_s"), [(200, 22), (30, 396), (6, 2156)], ids=["pro", "free", "slow"]
)
def test_the_pace_is_what_the_registry_says_it_takes_in_a_minute(clock, per_minute, took_s):
    with LocalRegistry(burst=per_minute, refill_s=60 / per_minute, clock=clock) as local:
        registry = Registry(local.url, SecretStr(local.api_key))

        took = live_together([sender_of(documents_for(clock, 200), registry, clock)], clock)
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
    sender = sender_of(outbox, registry, clock, Pace(interval_s=interval_s))

    assert sender.send_due() == pytest.approx(more_in_s)
    assert outbox.states() == states


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

    more_in_s = sender_of(outbox, registry, clock).send_due()

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
    sender = Sender(outbox, registry, pace=pace, clock=clock)

    for _ in range(3):
        with pytest.raises(DatabaseError):
            sender.send_due()
    asked, released = len(registry.asked), pace.released
    outbox.locked = False
    sender.send_due()

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

    def abort(self):
        return self.reached


@pytest.mark.parametrize(("reached", "lost_at"), [(True, 1_790_000_000.0), (False, -math.inf)])
def test_what_is_asked_when_the_process_ends_is_due_again_as_it_was(clock, reached, lost_at):
    outbox, registry = outbox_of(clock, 2), Hanging(clock, reached=reached)
    keeper = LocalPace(Pace(), clock)
    sender = Sender(outbox, registry, pace=keeper, clock=clock)
    registry.end = sender.abandon
    before = [row.item for row in outbox.rows]

    sender.send_due()

    assert registry.gave_back
    assert (outbox.states(), len(registry.asked)) == (["pending", "pending"], 1)
    assert [row.item for row in outbox.rows] == before
    assert keeper.pace.lost_at == lost_at


def test_who_ends_before_the_request_makes_none_and_begins_nothing_more(clock):
    outbox, registry = outbox_of(clock, 1), ScriptedRegistry(clock)
    keeper = LocalPace(Pace(), clock)
    sender = Sender(outbox, registry, pace=keeper, clock=clock)
    claim, gave_back = outbox.claim, []
    outbox.claim = lambda now: (gave_back.append(sender.abandon()), claim(now))[1]

    sender.send_due()
    sender.send_due()

    assert (gave_back, outbox.states(), registry.asked) == ([False], ["pending"], [])
    assert keeper.pace.asked_at == -math.inf


def test_others_have_their_turn_even_if_the_file_of_traces_breaks(clock):
    pace = TakenTurn(Pace(), clock)

    class Broken(ListOutbox):
        def next_due(self):
            raise DatabaseError("kp.db", "is gone", "do something")

    with pytest.raises(DatabaseError):
        Sender(Broken([]), ScriptedRegistry(clock), pace=pace, clock=clock).send_due()

    assert pace.released == 1


@pytest.mark.parametrize("answer", [None, REJECTED], ids=["taken", "rejected"])
def test_any_answer_to_a_document_ends_the_trouble(clock, answer):
    pace = LocalPace(Pace(failures=3, problem="silence"), clock)

    Sender(
        outbox_of(clock, 1), ScriptedRegistry(clock, [answer]), pace=pace, clock=clock
    ).send_due()

    assert (pace.pace.failures, pace.pace.problem) == (0, "")


def test_stopped_in_the_middle_it_ends_the_parcel_that_is_under_way_and_begins_nothing(clock):
    outbox, stop = outbox_of(clock, 3), threading.Event()

    with sending_over_http(outbox, clock, answers=lambda _: stop.set() or 400) as (_, sender):
        sender.send_due(stop)
        assert sender.send_due(stop) == 0.0

    assert outbox.states() == ["rejected", "pending", "pending"]


def test_stopped_after_a_claim_it_asks_nothing_and_gives_the_row_back(clock):
    outbox, registry, stop = outbox_of(clock, 1), ScriptedRegistry(clock), threading.Event()
    claim = outbox.claim
    outbox.claim = lambda now: (stop.set(), claim(now))[1]

    sender_of(outbox, registry, clock).send_due(stop)

    assert (outbox.states(), registry.asked) == (["pending"], [])
