"""A judge of the user's own says how runs ended: in the background, with a deadline."""

import asyncio
import threading

import pytest
from pipeline_helpers import wait_until

from kp_middleware import current_trace
from kp_middleware.outcomes import Judge
from kp_middleware.recording import shield


@pytest.fixture
def outcome(pulse, stored):
    """Return the stored outcome of a run with this judge, after a flush."""

    def run(judge, body=lambda _: "42", **settings):
        kp = pulse(**settings)
        kp.capture(confidence=judge)(body)("What is six times seven?")
        assert kp.flush(20).unscored == 0
        trace = stored()
        assert trace["outcome_confidence"] == trace["confidence"]
        return [trace[name] for name in ("success", "confidence", "success_source")]

    return run


@pytest.fixture
def counted():
    return lambda: dict(shield.failures)


@pytest.mark.parametrize("sync", [True, False])
def test_it_is_asked_before_the_run_is_scored(outcome, sync):
    asked = []

    def judge(trace):
        source = trace.metadata.success_source
        asked.append((trace.outcome.result_summary, source, threading.current_thread().name))
        return False

    assert outcome(Judge(judge), sync=sync) == [0, 0.0, "extracted"]
    assert asked == [("42", "assumed", "kp-judge")]


def test_an_async_function_is_a_judge(outcome):
    async def judge(trace):
        await asyncio.sleep(0)
        return 0.7 if trace.task.objective else None

    assert outcome(judge) == [1, 0.7, "extracted"]


@pytest.mark.parametrize(("judged", "then"), [(0.1, 0.8), (0.6, 0.6)])
def test_who_knows_better_is_as_sure_as_anybody_and_who_agrees_as_it_was(
    pulse, stored, judged, then
):
    kp = pulse(sync=True)
    kp.capture(confidence=Judge(lambda _: judged))(lambda text: text)("one")
    assert kp.flush(20).unscored == 0

    kp.feedback(stored()["id"], success=True)

    assert (stored()["success"], stored()["confidence"]) == (1, then)


@pytest.mark.parametrize("sync", [True, False])
def test_one_that_fails_has_said_nothing(outcome, counted, sync):
    def judge(_):
        raise LookupError("no rubric")

    assert outcome(Judge(judge), sync=sync) == [None, 0.8, "assumed"]
    assert counted() == {"judge: LookupError": 1}


def test_one_that_exits_as_a_test_runner_does_is_asked_about_the_next_run(pulse, stored, counted):
    exits = iter([SystemExit(1), None])

    def judge(_):
        if exit_ := next(exits):
            raise exit_
        return True

    kp = pulse()
    agent = kp.capture(confidence=Judge(judge))(lambda text: text)
    agent("one")
    agent("two")
    assert kp.flush(20).unscored == 0

    assert counted() == {"judge: SystemExit": 1}
    assert stored()["success_source"] == "extracted"


@pytest.mark.parametrize("answer", [None, 2, "yes"])
def test_what_is_no_answer_says_nothing(outcome, answer):
    assert outcome(Judge(lambda _: answer)) == [None, 0.8, "assumed"]


def test_one_that_is_late_has_said_nothing_and_others_go_on(pulse, stored, counted):
    may_go_on, asked = threading.Event(), []

    def judge(trace):
        asked.append(trace.task.objective)
        may_go_on.wait(30)

    kp = pulse()
    agent = kp.capture(confidence=Judge(judge, timeout_s=0.05))(lambda text: text)
    agent("one")
    agent("two")
    assert kp.flush(20).unscored == 0

    may_go_on.set()
    assert asked == ["one"]  # one that hangs leaves one thread behind
    assert counted() == {"judge: no answer in time": 2}
    assert stored()["success_source"] == "assumed"


def test_a_late_async_judge_is_cancelled(outcome, counted):
    cancelled = threading.Event()

    async def judge(_):
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    assert outcome(Judge(judge, timeout_s=0.05)) == [None, 0.8, "assumed"]
    assert cancelled.wait(10)
    assert sum(counted().values()) == 1


def test_the_agent_does_not_wait_and_runs_are_kept_meanwhile(pulse, stored):
    may_go_on = threading.Event()
    kp = pulse()
    agent = kp.capture(confidence=Judge(lambda _: may_go_on.wait(30)))(lambda text: text)

    agent("one")
    agent("two")
    wait_until(lambda: kp.stats().recorded == 2)

    assert (kp.stats().recorded, kp.stats().scored) == (2, 0)
    may_go_on.set()
    assert kp.flush(20).unscored == 0
    assert stored()["success_source"] == "extracted"


def test_a_run_whose_end_is_known_needs_no_judge(outcome, stored):
    def say(_):
        current_trace().outcome(success=True)
        return "42"

    def fail(_):
        raise KeyError("gone")

    assert outcome(Judge(lambda _: False), say) == [1, 0.8, "said"]
    with pytest.raises(KeyError):
        outcome(Judge(lambda _: True), fail, sync=True)
    assert stored()["success"] == 0


def test_feedback_counts_more_than_a_judge(pulse, stored):
    may_go_on, ids = threading.Event(), []

    def judge(trace):
        ids.append(trace.id)
        may_go_on.wait(30)
        return False

    kp = pulse()
    kp.capture(confidence=Judge(judge))(lambda text: text)("x")
    wait_until(lambda: ids)
    kp.feedback(ids[0], success=True, confidence=0.6)
    may_go_on.set()
    kp.flush(20)

    trace = stored()
    assert (trace["success"], trace["confidence"], trace["success_source"]) == (1, 0.6, "feedback")


def test_what_a_judge_does_is_not_recorded(pulse):
    kp = pulse()
    helper = kp.capture(lambda text: text == "42")
    judge = Judge(lambda trace: helper(trace.outcome.result_summary))
    agent = kp.capture(confidence=judge)(lambda _: "42")

    agent("x")
    kp.flush(20)

    assert [run.success for run in kp.runs()] == [True]


def test_a_deadline_is_above_0():
    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        Judge(bool, timeout_s=0)
