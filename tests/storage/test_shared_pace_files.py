"""The files of a shared pace: gone, damaged, locked, only to be read, or from the future."""

import sqlite3
from contextlib import closing

import pytest
from paced_processes import (
    DAY_S,
    HOUR_S,
    LEASE_S,
    answered,
    ask,
    limited,
    start_to_ask,
    unanswered,
    wait_of,
    warnings,
)

from kp_middleware.errors import DatabaseError


def test_who_ends_waits_for_no_lock_and_its_turn_ends_by_itself(machine, locked):
    ended = machine.start()
    start_to_ask(ended)

    with locked():
        ended.settle_and_release(unanswered)
    before = machine.start().take()
    machine.sleep(LEASE_S)

    assert 0 < before <= 1
    assert machine.start().take() == 0


def test_a_stop_that_cannot_be_lifted_is_reported_with_what_to_do(machine):
    machine.path.mkdir()

    with pytest.raises(DatabaseError, match="make it writable"):
        machine.user_acts()


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
