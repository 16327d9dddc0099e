"""What a pipeline says of itself."""

import pytest
from pipeline_helpers import echo, trace_of

from kp_middleware.recording import shield
from kp_middleware.storage import History


def numbers(stats):
    return {name: value for name, value in stats._asdict().items() if value and name != "swallowed"}


def test_what_is_kept_scored_and_sent_is_counted_and_before_that_all_is_zero(pulse, sending):
    kp = pulse(**sending)
    before = numbers(kp.stats())

    [echo(kp)(word) for word in ("one", "two")]
    kp.flush()

    assert before == {}
    assert numbers(kp.stats()) == {"recorded": 2, "scored": 2, "sent": 2}


@pytest.mark.parametrize(
    ("state", "score"), [("paused", None), ("incomplete", None), ("failed", None), ("scored", 0.5)]
)
def test_each_state_of_the_file_is_counted(pulse, connection, state, score):
    kp = pulse(sync=True)
    echo(kp)("one")

    connection.execute("UPDATE traces SET state = ?, score = ?", (state, score))

    assert numbers(kp.stats()) == {"recorded": 1, state: 1}


def test_failures_that_were_kept_from_the_agent_are_told_by_kind(pulse):
    before = pulse().stats().swallowed.get("stats test: KeyError", 0)

    shield.swallow("stats test", KeyError("x"))

    assert pulse().stats().swallowed["stats test: KeyError"] == before + 1


def test_what_was_dropped_the_file_knows(pulse, connection, db):
    kp = pulse(max_queue_bytes=5000)
    kp.capture(lambda text: text * 20_000)("too large, ")
    echo(kp)("one")
    kp.flush()

    assert History(connection).file_status(db).dropped == 1


def test_the_file_goes_from_its_earliest_run_to_its_latest(pulse, connection, db):
    kp = pulse(sync=True)
    for day in ("2026-11-02", "2026-11-01", "2026-11-03", "2026-11-02"):
        kp.submit(trace_of(metadata={"created_at": f"{day}T00:00:00Z"}))

    found = History(connection).file_status(db)

    assert (found.oldest[:10], found.newest[:10]) == ("2026-11-01", "2026-11-03")


def test_trouble_is_told_where_the_file_can_be_read_but_not_written(pulse):
    kp = pulse(sync=True)
    echo(kp)("one")
    connection = kp._scorer._store._connection
    connection.execute("PRAGMA max_page_count = 1")  # a full disk
    echo(kp)("two" * 10_000)
    told = kp.stats()
    connection.execute("PRAGMA max_page_count = 100000")
    kp.flush()

    assert (told.in_memory, told.recorded) == (1, 1)
    assert "free disk space" in told.trouble
    assert numbers(kp.stats()) == {"recorded": 2, "scored": 2}
