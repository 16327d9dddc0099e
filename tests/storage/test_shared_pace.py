"""One pace for all: keepers on one file, on a clock that stands still until told."""

import math
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_middleware.errors import DatabaseError, Problem, ProblemKind
from kp_middleware.rate_limit import Allowance, Pace
from kp_middleware.storage import PacingTable, SharedPace, lift_stops
from kp_middleware.testing import FakeClock

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
LEASE_S = 40.0


class Machine:
    """Starts processes that share a folder and a clock."""

    def __init__(self, folder):
        self.path = Path(folder) / "pacing.db"
        self.beside = Path(folder) / "kp.db.pacing"
        self.clock = FakeClock()

    def start(self, **whose):
        agent = {"registry": "https://registry.example", "agent_id": "agent-1", "key_hash": "key-1"}
        usual, fallback = (
            PacingTable(path, **{**agent, **whose}, patience_s=0.01)
            for path in (self.path, self.beside)
        )
        return SharedPace(usual, fallback=fallback, longest_request_s=10.0, clock=self.clock)

    def user_acts(self):
        """As kp-middleware outbox retry does."""
        lift_stops(self.path)

    def sleep(self, seconds):
        self.clock.advance(seconds)


def answered(pace, _now):
    return pace.answered()


def unheard(pace, _now):
    return pace.answer_lost()


def limited(pace, now):
    return pace.limited(now, 2.0)


def saying(**allowance):
    return lambda pace, now: pace.answered().with_allowance(now, Allowance(**allowance))


def ask(keeper, answer=answered):
    """One whole request; returns the wait after it."""
    start_to_ask(keeper)
    wait_s = keeper.settle(answer)
    keeper.release()
    return wait_s


def start_to_ask(keeper):
    assert keeper.take() == 0
    assert keeper.spend() is not None


def wait_of(keeper):
    wait_s = keeper.take()
    keeper.release()
    return wait_s


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def locked(machine):
    """Another program that has locked the usual file."""

    @contextmanager
    def hold():
        with closing(sqlite3.connect(machine.path)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            yield

    return hold


def test_all_processes_share_one_burst_whenever_they_start(machine):
    one, other = machine.start(), machine.start()

    [ask(keeper) for _ in range(10) for keeper in (one, other)]

    assert wait_of(one) == wait_of(other) == wait_of(machine.start()) == pytest.approx(2.2)


def test_what_one_process_learns_of_the_rate_and_of_what_is_left_the_others_know(machine):
    ask(machine.start(), saying(per_minute=200))
    later = machine.start()
    [ask(later) for _ in range(132)]

    assert 0 < wait_of(machine.start()) <= 0.33

    machine.sleep(HOUR_S)
    ask(machine.start(), saying(per_minute=30, remaining=12))
    ask(later)

    assert 0 < ask(later) < 2.3


@pytest.mark.parametrize("remaining", [0, 1, 5, 10])
def test_who_finds_little_left_waits_the_longer_and_a_minute_at_most(machine, remaining):
    wait_s = ask(machine.start(), saying(remaining=remaining))

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
        ended.settle_and_release(unheard)
        machine.sleep(60)

    assert HOUR_S - 120 < wait_of(machine.start()) < HOUR_S
    assert len(warnings(caplog)) == 1
    assert "two programs exited while waiting" in warnings(caplog)[0]


def test_who_ends_while_it_sends_leaves_the_turn_to_the_next_at_once_and_has_no_say_any_more(
    machine,
):
    ended, other = machine.start(), machine.start()
    start_to_ask(ended)
    ended.settle_and_release(unheard)
    start_to_ask(other)

    ended.release()

    assert machine.start().take() > 0


def test_who_ends_waits_for_no_lock_and_its_turn_ends_by_itself(machine, locked):
    ended = machine.start()
    start_to_ask(ended)

    with locked():
        ended.settle_and_release(unheard)
    before = machine.start().take()
    machine.sleep(LEASE_S)

    assert 0 < before <= 1
    assert machine.start().take() == 0


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


def test_a_stop_that_cannot_be_lifted_is_told_with_what_to_do(machine):
    machine.path.mkdir()

    with pytest.raises(DatabaseError, match="make it writable"):
        machine.user_acts()


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


@pytest.mark.parametrize("years", [1, 100])
def test_a_clock_set_back_stops_sending_for_a_day_at_most(machine, years):
    ask(machine.start(), lambda pace, now: pace.limited(now, 60.0))

    machine.clock.advance(-years * 365 * DAY_S)
    [(wait_of(machine.start()), machine.sleep(HOUR_S)) for _ in range(24)]
    machine.sleep(40)

    assert wait_of(machine.start()) == 0


def test_a_clock_set_back_does_not_prolong_a_turn(machine):
    machine.start().take()

    machine.clock.advance(-DAY_S)
    machine.start().take()
    machine.sleep(LEASE_S)

    assert machine.start().take() == 0


def test_a_file_that_is_gone_is_written_again_by_who_knew_it(machine):
    keeper = machine.start()
    ask(keeper, limited)
    machine.path.unlink()

    wait_s = wait_of(keeper)

    assert wait_s > 30
    assert wait_of(machine.start()) == pytest.approx(wait_s)


def test_after_damage_there_is_no_burst_and_files_of_traces_still_share_one_pace(
    machine, tmp_path, caplog
):
    first = machine.start()
    ask(first)
    machine.path.write_bytes(b"no database" * 999)

    wait_s = ask(machine.start())
    machine.beside = tmp_path / "another.db.pacing"

    assert wait_s == wait_of(machine.start()) == pytest.approx(2.2)
    assert len(warnings(caplog)) == 1

    machine.path.write_bytes(b"no database" * 999)
    wait_s = ask(first, limited)
    machine.beside = tmp_path / "a third.db.pacing"

    assert wait_s > 30
    assert wait_of(machine.start()) == pytest.approx(wait_s)


@pytest.fixture
def cannot_be_written(machine):
    """Makes the usual file one that can only be read."""

    def spoil():
        with closing(sqlite3.connect(machine.path)) as connection:
            connection.execute("PRAGMA user_version = 9")

    return spoil


def test_where_no_file_can_be_used_nothing_is_sent_and_it_is_said_once(machine, caplog):
    machine.path.mkdir()
    machine.beside.mkdir()
    keeper = machine.start()

    waits = [keeper.take(), keeper.take(), keeper.spend()]

    assert waits == [0.5, 0.5, None]
    assert len(warnings(caplog)) == 2
    assert str(machine.path) in warnings(caplog)[0]
    assert str(machine.beside) in warnings(caplog)[1]
    assert all("XDG_STATE_HOME" in words for words in warnings(caplog))


def test_what_has_no_answer_in_a_file_that_can_only_be_read_counts(machine, cannot_be_written):
    ask(machine.start(), limited)
    machine.sleep(60)
    start_to_ask(machine.start())
    cannot_be_written()
    machine.sleep(LEASE_S)

    assert wait_of(machine.start()) > HOUR_S - 120


def test_beside_the_traces_the_stricter_of_two_files_holds(machine, cannot_be_written):
    machine.path.mkdir()
    ask(machine.start(), lambda pace, now: pace.limited(now, 600.0))
    machine.path.rmdir()
    keeper = machine.start()
    ask(keeper)
    cannot_be_written()

    assert wait_of(keeper) > 600


def test_a_file_that_breaks_during_a_request_costs_no_answer(machine, cannot_be_written):
    keeper = machine.start()
    start_to_ask(keeper)
    cannot_be_written()

    keeper.settle(limited)
    keeper.release()

    assert wait_of(machine.start()) > 30


def test_while_the_file_is_locked_nothing_is_sent(machine, locked, caplog):
    keeper = machine.start()
    ask(keeper)

    with locked():
        refused = [keeper.take(), keeper.take(), keeper.spend()]

    assert refused == [0.5, 0.5, None]
    assert len(warnings(caplog)) == 1
    assert keeper.take() == 0


def test_an_answer_that_comes_while_the_file_is_locked_is_written_later_and_is_not_lost(
    machine, locked
):
    keeper = machine.start()
    start_to_ask(keeper)
    with locked():
        keeper.settle(answered)
    wait_of(keeper)
    start_to_ask(machine.start())
    machine.sleep(LEASE_S)
    assert wait_of(machine.start()) == 0

    start_to_ask(keeper)
    with locked():
        keeper.settle(limited)
        keeper.release()

    assert wait_of(keeper) > 30
    assert wait_of(machine.start()) > 30


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
            self.keepers[number].settle_and_release(unheard)
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
