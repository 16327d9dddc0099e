"""Old traces go by themselves, if that is wished."""

import pytest

from kp_middleware.instants import instant
from kp_middleware.storage import Retention, SqliteStore
from kp_middleware.testing import FakeClock

DAY_S = 86_400.0


@pytest.fixture
def steady():
    return FakeClock(0.0)


@pytest.fixture
def keep(connection, clock):
    """Keeps so many scored traces that began some days ago."""
    return lambda days_ago, count=1: [
        connection.execute(
            "INSERT INTO traces (id, state, started_at, domain, objective, success, confidence,"
            " privacy_level, visibility, step_count, tool_count, recovery_count) VALUES"
            " (hex(randomblob(9)), 'scored', ?, 'd', 'o', 1, 1, 'private', 'private', 1, 0, 0)",
            (instant(clock() - days_ago * DAY_S),),
        )
        for _ in range(count)
    ]


@pytest.fixture
def retention(connection, clock, steady):
    return Retention(SqliteStore(connection), 30, clock=clock, monotonic=steady)


def stored(connection):
    return connection.execute("SELECT count(*) FROM traces").fetchone()[0]


def test_what_is_too_old_goes_in_several_batches_and_again_after_an_hour(
    retention, connection, keep, steady
):
    keep(31, 20)
    keep(29)
    assert not Retention(SqliteStore(connection), None).remove_batch()  # without a limit

    batches = sum(iter(retention.remove_batch, False))

    assert batches > 1
    assert stored(connection) == 1

    keep(31)
    at_once = retention.remove_batch()
    steady.advance(3601)

    assert (at_once, retention.remove_batch(), stored(connection)) == (False, True, 1)


@pytest.mark.parametrize("jump_s", [10 * 365 * DAY_S, -10 * 365 * DAY_S], ids=["forward", "back"])
def test_a_clock_that_jumps_while_we_run_removes_nothing(
    retention, connection, keep, clock, jump_s
):
    keep(28)

    clock.advance(jump_s)

    assert not retention.remove_batch()
    assert stored(connection) == 1


@pytest.mark.parametrize("sync", [True, False])
def test_a_pipeline_removes_what_is_too_old_while_it_is_idle(pulse, connection, keep, sync):
    keep(4000, 5)
    kp = pulse(sync=sync, retention_days=30)

    kp.capture(lambda text: text)("one")
    kp.close()

    assert stored(connection) == 1


def test_a_file_that_is_locked_costs_neither_the_worker_nor_a_run(pulse, connection, keep):
    keep(4000)
    kp = pulse(sync=True, retention_days=30)
    connection.execute(
        "CREATE TRIGGER keeps BEFORE DELETE ON traces BEGIN SELECT raise(FAIL, 'x'); END"
    )

    agent = kp.capture(lambda text: text)

    assert [agent("one"), agent("two")] == ["one", "two"]
    assert kp.stats().scored == 2
