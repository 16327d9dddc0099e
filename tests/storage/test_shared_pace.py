"""One pace for all: keepers on one file, on a clock that stands still until told."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paced_processes import (
    DAY_S,
    HOUR_S,
    LEASE_S,
    Machine,
    allowing,
    answered,
    ask,
    limited,
    start_to_ask,
    unanswered,
    wait_of,
    warnings,
)

from kp_middleware.errors import Problem, ProblemKind
from kp_middleware.rate_limit import Pace


def test_all_processes_share_one_burst_whenever_they_start(machine):
    one, other = machine.start(), machine.start()

    [ask(keeper) for _ in range(10) for keeper in (one, other)]

    assert wait_of(one) == wait_of(other) == wait_of(machine.start()) == pytest.approx(2.2)


def test_what_one_process_learns_of_the_rate_and_of_what_is_left_the_others_know(machine):
    ask(machine.start(), allowing(per_minute=200))
    later = machine.start()
    [ask(later) for _ in range(132)]

    assert 0 < wait_of(machine.start()) <= 0.33

    machine.sleep(HOUR_S)
    ask(machine.start(), allowing(per_minute=30, remaining=12))
    ask(later)

    assert 0 < ask(later) < 2.3


@pytest.mark.parametrize("remaining", [0, 1, 5, 10])
def test_who_finds_little_left_waits_the_longer_and_a_minute_at_most(machine, remaining):
    wait_s = ask(machine.start(), allowing(remaining=remaining))

    assert wait_s == pytest.approx(min(60.0, 2.2 * (10 / max(1, remaining)) ** 2))


def test_one_process_sends_at_a_time(machine):
    one, other = machine.start(), machine.start()

    assert one.take() == 0
    assert 0 < other.take() <= 1
    assert other.spend() is None

    one.release()
    assert other.take() == 0


def test_who_dies_or_sleeps_holds_up_the_others_for_its_turn_at_most_and_may_not_ask_then(machine):
    slept, other = machine.start(), machine.start()
    slept.take()

    machine.sleep(LEASE_S - 1)
    before = other.take()
    machine.sleep(1)

    assert 0 < before <= 1
    assert other.take() == 0
    assert slept.spend() is None


def test_each_step_of_who_is_alive_prolongs_its_turn(machine):
    one, other = machine.start(), machine.start()

    for step in (one.take, one.spend, lambda: one.settle(answered)):
        step()
        machine.sleep(LEASE_S - 1)
        assert other.take() > 0


def test_what_an_overtaken_process_was_answered_counts(machine):
    slept, other = machine.start(), machine.start()
    start_to_ask(slept)
    machine.sleep(LEASE_S)
    other.take()

    slept.settle(lambda pace, now: pace.limited(now, 600.0))
    other.release()

    assert wait_of(other) > 600


def test_an_overtaken_process_does_not_answer_for_the_one_that_asks_now(machine):
    slept, *killed = machine.start(), machine.start(), machine.start()
    start_to_ask(slept)
    machine.sleep(LEASE_S)
    start_to_ask(killed[0])

    slept.settle(answered)
    machine.sleep(LEASE_S)
    start_to_ask(killed[1])
    machine.sleep(LEASE_S)

    assert wait_of(machine.start()) > HOUR_S - 3 * LEASE_S


def test_two_processes_that_die_while_they_send_cost_an_hour_not_the_key(machine):
    for _ in range(2):
        killed = machine.start()
        start_to_ask(killed)
        machine.sleep(LEASE_S)

    assert wait_of(machine.start()) > HOUR_S - 2 * LEASE_S


def test_two_that_end_while_they_send_may_have_met_two_429s_and_it_is_said(machine, caplog):
    for _ in range(2):
        ended = machine.start()
        start_to_ask(ended)
        ended.settle_and_release(unanswered)
        machine.sleep(60)

    assert HOUR_S - 120 < wait_of(machine.start()) < HOUR_S
    assert len(warnings(caplog)) == 1
    assert "two programs exited while waiting" in warnings(caplog)[0]


def test_who_ends_while_it_sends_leaves_the_turn_to_the_next_at_once_and_has_no_say_any_more(
    machine,
):
    ended, other = machine.start(), machine.start()
    start_to_ask(ended)
    ended.settle_and_release(unanswered)
    start_to_ask(other)

    ended.release()

    assert machine.start().take() > 0


def test_trouble_is_everybodys(machine):
    ask(machine.start(), lambda pace, now: pace.failed(now, 100.0))
    machine.sleep(100)
    other = machine.start()
    other.take()

    pace = other.spend()

    assert (pace.failures, pace.answering) == (1, False)


def test_a_dead_key_is_used_by_nobody_until_the_user_acts(machine):
    machine.user_acts()  # there is nothing to lift
    assert not machine.path.exists()
    ask(machine.start(), Pace.forbidden)
    alive = machine.start()

    machine.sleep(400 * DAY_S)
    ask(machine.start(agent_id="agent-2"))  # long ago does not mean forgotten
    before = [wait_of(machine.start()), wait_of(alive)]
    machine.user_acts()

    assert before == [math.inf, math.inf]
    assert wait_of(machine.start()) == wait_of(alive) == 0
    ask(machine.start())
    assert wait_of(machine.start()) == 0


def test_a_dead_key_is_said_once_by_each_process_but_the_one_that_met_it(machine, caplog):
    problem = Problem(ProblemKind.FORBIDDEN, "100% of 50%s")
    keeper = machine.start()
    ask(keeper, lambda pace, now: pace.forbidden(now, problem))
    wait_of(keeper)
    assert warnings(caplog) == []  # the sender says it
    other = machine.start()

    [wait_of(other) for _ in range(3)]

    (words,) = warnings(caplog)
    assert "KP_API_KEY" in words
    assert "outbox retry" in words
    assert "(100% of 50%s)" in words


def test_an_hour_of_patience_is_said_once_by_each_process(machine, caplog):
    ask(machine.start(), lambda pace, now: pace.limited(now, HOUR_S))
    other = machine.start()

    [wait_of(other) for _ in range(3)]

    assert len(warnings(caplog)) == 1
    assert "the rate limit is exceeded" in warnings(caplog)[0]


@pytest.mark.parametrize(
    "another",
    [
        *({"key_hash": "key-2"}, {"agent_id": "agent-2"}, {"agent_id": None}),
        {"registry": "https://other.example"},
    ],
    ids=["key", "agent", "unknown agent", "registry"],
)
def test_with_another_key_agent_or_registry_sending_goes_on_at_once(machine, another):
    ask(machine.start(), Pace.forbidden)

    ask(machine.start(**another))

    assert wait_of(machine.start()) == math.inf


def test_a_new_key_of_the_same_agent_inherits_its_429s(machine):
    ask(machine.start(), limited)
    machine.sleep(60)
    ask(machine.start(), Pace.forbidden)

    assert ask(machine.start(key_hash="key-2"), limited) > HOUR_S


class Fleet:
    """Processes that ask, are answered, are frozen or killed in any order."""

    def __init__(self, folder, count, answer):
        self.machine = Machine(folder)
        self.keepers = [self.machine.start() for _ in range(count)]
        self.asking = set()
        self.answer = answer
        self.asked_at = []

    def ask(self, number):
        if number in self.asking:
            self.answered(number)
        keeper = self.keepers[number]
        if keeper.take() == 0 and keeper.spend():
            self.asking.add(number)
            self.asked_at.append(self.machine.clock())

    def answered(self, number):
        if number in self.asking:
            self.keepers[number].settle(self.answer)
        self.keepers[number].release()
        self.asking.discard(number)

    def ask_and_be_answered(self, number):
        self.ask(number)
        self.answered(number)

    def end(self, number):
        if number in self.asking:
            self.keepers[number].settle_and_release(unanswered)
        self.be_killed(number)

    def be_killed(self, number):
        self.keepers[number] = self.machine.start()
        self.asking.discard(number)


def fleets(longest_pause_s):
    event = st.sampled_from(["ask_and_be_answered"] * 4 + ["ask", "answered", "end", "be_killed"])
    return st.lists(st.tuples(st.integers(0, 3), event, st.floats(0, longest_pause_s)), max_size=70)


def run(events, answer, *, can_share=True):
    with TemporaryDirectory() as folder:
        if not can_share:
            (Path(folder) / "pacing.db").mkdir()
        fleet = Fleet(folder, 4, answer)
        for number, event, pause_s in events:
            fleet.machine.sleep(pause_s)
            getattr(fleet, event)(number)
        return fleet.asked_at


@settings(max_examples=30, deadline=None)
@given(fleets(longest_pause_s=2.0), st.booleans())
def test_all_processes_together_never_ask_faster_than_one_may_also_beside_their_runs(
    events, can_share
):
    asked_at = run(events, answered, can_share=can_share)

    windows = [
        (later - first, number_2 - number + 1)
        for number, first in enumerate(asked_at)
        for number_2, later in enumerate(asked_at[number:], number)
    ]
    assert all(count <= 20 + seconds / 2.2 + 1 for seconds, count in windows)


@settings(max_examples=30, deadline=None)
@given(fleets(longest_pause_s=900.0))
def test_a_registry_that_always_answers_429_is_not_asked_thrice_within_an_hour(events):
    asked_at = run(events, limited)

    assert (
        max((sum(0 <= at - first < HOUR_S for at in asked_at) for first in asked_at), default=0)
        <= 2
    )
