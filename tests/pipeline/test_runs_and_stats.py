"""``kp.runs``, ``kp.run`` and ``kp.stats``."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest
from pipeline_helpers import echo, trace_of

from kp_middleware.errors import TraceNotFoundError
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


def test_the_file_goes_from_its_earliest_run_to_its_latest(pulse, connection, db):
    kp = pulse(sync=True)
    for day in ("2026-11-02", "2026-11-01", "2026-11-03", "2026-11-02"):
        kp.submit(trace_of(metadata={"created_at": f"{day}T00:00:00Z"}))

    found = History(connection).file_status(db)

    assert (found.oldest[:10], found.newest[:10]) == ("2026-11-01", "2026-11-03")


@pytest.fixture
def recorded(kp, agent):
    @kp.capture
    def fail(_question):
        raise LookupError("nobody knows")

    agent("where is the leak")
    with pytest.raises(LookupError):
        fail("who is it")
    return kp


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["who is it", "where is the leak"]),
        ({"limit": 1}, ["who is it"]),
        ({"domain": "code"}, ["where is the leak"]),
        ({"tool": "shout"}, ["where is the leak"]),
        ({"failed": True}, ["who is it"]),
        ({"text": "leaks"}, ["where is the leak"]),
        ({"state": "sent"}, []),
        ({"since": datetime.now(UTC) + timedelta(days=1)}, []),
    ],
    ids=["the newest first", "limit", "domain", "tool", "failed", "text", "state", "since"],
)
def test_runs_are_chosen_by_what_they_were(recorded, asked, found):
    assert [run.objective for run in recorded.runs(**asked)] == found


def test_a_run_has_its_steps_its_score_and_its_feedback(recorded):
    (summary,) = recorded.runs(domain="code")
    recorded.feedback(summary.id, success=False)
    recorded.flush()

    run = recorded.run(summary.id)

    assert (run.objective, run.result_summary) == ("where is the leak", "WHERE IS THE LEAK")
    assert [(step.type, step.tool) for step in run.steps] == [
        ("thought", None),
        ("tool_call", "shout"),
        ("observation", "shout"),
    ]
    assert run.steps[1].call_id == run.steps[2].call_id
    assert (run.success_source, run.confidence_source) == ("feedback", "said")
    assert run.score == run.scoring.score
    assert run.scoring.signals.tool_diversity == 1.0
    assert run.reason_code in {"above_threshold", "below_threshold"}
    (told,) = run.feedback
    assert (told.success, told.success_before) == (False, True)
    assert run.outbox is None


def test_what_was_read_cannot_be_changed(recorded):
    run = recorded.run("@last")

    with pytest.raises(FrozenInstanceError):
        run.success = True


def test_where_nothing_is_recorded_there_are_no_runs_and_no_file_is_made(kp, db):
    assert kp.runs() == ()
    with pytest.raises(TraceNotFoundError, match="record a run"):
        kp.run("@last")
    assert not db.exists()


def test_a_state_that_no_run_has_is_refused(recorded):
    with pytest.raises(ValueError, match=r"one of blocked, .*, got 'scored'"):
        recorded.runs(state="scored")


def test_an_id_that_nobody_has_is_not_found(recorded):
    with pytest.raises(TraceNotFoundError):
        recorded.run("kp:trace:0000")
