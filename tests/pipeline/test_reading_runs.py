from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest

from kp_middleware.errors import TraceNotFoundError


@pytest.fixture
def recorded(kp, agent):
    @kp.capture
    def fail(_question):
        raise LookupError("nobody knows")

    agent("where is the leak")
    with pytest.raises(LookupError):
        fail("who is it")
    return kp


def objectives(runs):
    return [run.objective for run in runs]


def test_the_newest_run_comes_first(recorded):
    runs = recorded.runs()

    assert objectives(runs) == ["who is it", "where is the leak"]
    assert [run.success for run in runs] == [False, True]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"limit": 1}, ["who is it"]),
        ({"domain": "code"}, ["where is the leak"]),
        ({"tool": "shout"}, ["where is the leak"]),
        ({"failed": True}, ["who is it"]),
        ({"text": "leaks"}, ["where is the leak"]),
        ({"state": "sent"}, []),
        ({"since": datetime.now(UTC) + timedelta(days=1)}, []),
    ],
    ids=["limit", "domain", "tool", "failed", "text", "state", "since"],
)
def test_runs_are_chosen_by_what_they_were(recorded, asked, found):
    assert objectives(recorded.runs(**asked)) == found


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


def test_where_nothing_is_recorded_there_are_no_runs(kp, db):
    assert kp.runs() == ()
    with pytest.raises(TraceNotFoundError, match="record a run"):
        kp.run("@last")
    assert not db.exists()


def test_an_id_that_nobody_has_is_not_found(recorded):
    with pytest.raises(TraceNotFoundError):
        recorded.run("kp:trace:0000")
