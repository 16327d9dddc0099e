"""Feedback after the end of a run, as the file shows it."""

import logging
import math
from contextlib import closing

import pytest
from feedback_runs import GATE, body, end_of, trace_of
from pipeline_helpers import NotReady, SideEffectEmbedder

from kp_middleware import Settings, current_trace
from kp_middleware.database import connect
from kp_middleware.pipeline import Feedback, Reevaluation
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder


def test_what_was_measured_stays(at_once, stored):
    embedder = StandInEmbedder()
    kp = at_once(embedder=embedder)
    kp.submit(trace_of())
    trace = trace_of()
    kp.submit(trace)
    before, asked = stored(trace.id), len(embedder.asked)

    kp.feedback(trace.id, success=False)

    after = stored(trace.id)
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {
        *("success", "confidence", "outcome_confidence", "score", "base_score", "margin", "above"),
        *("decision", "decided_at", "outbox", "feedback", "rules"),
        *("reason", "reason_code", "reason_args", "verdict", "success_source"),
    }
    assert after["nearest_similarity"] > 0.99
    assert len(embedder.asked) == asked


def test_what_the_gate_chose_at_first_stays_chosen_where_another_one_decides(
    at_once, submit, connection
):
    trace_id = submit()

    at_once(threshold="top 20%").feedback(trace_id, success=False)

    assert connection.execute("SELECT chosen, gate FROM traces").fetchall() == [(1, "top 20%")]


@pytest.mark.parametrize(
    ("stated", "given", "then"),
    [
        (None, [{"success": False}], 0.2),
        (0.6, [{"success": False}], 0.6),
        (0.6, [{"success": True}], 0.6),
        (None, [{"confidence": 0.4}], 0.4),
        (0.6, [{"success": False, "confidence": 0.1}], 0.1),
        (None, [{"confidence": 1}], 1.0),
        (None, [{"confidence": 0.4}, {"success": False}], 0.4),
    ],
    ids=["default", "stated", "as before", "confidence alone", "both", "sure", "told before"],
)
def test_the_confidence_is_what_somebody_said_else_the_default(
    kp, submit, stored, stated, given, then
):
    trace_id = submit(confidence=stated)

    [kp.feedback(trace_id, **feedback) for feedback in given]

    assert stored(trace_id)["confidence"] == then
    assert math.isclose(
        stored(trace_id)["outcome_confidence"], then if stored(trace_id)["success"] else 0.3 * then
    )


def test_all_that_is_reported_is_kept_but_the_same_twice_only_once(
    kp, submit, feedback_rows, connection, stored
):
    trace_id = submit()
    score = stored(trace_id)["score"]

    kp.feedback(trace_id, success=True)

    assert stored(trace_id)["score"] == score
    assert feedback_rows() == [(1, None, 1, 0.8)]

    kp.feedback(trace_id, success=False)
    before = connection.execute("SELECT * FROM traces").fetchall()
    kp.feedback(trace_id, success=False)

    assert connection.execute("SELECT * FROM traces").fetchall() == before
    assert feedback_rows()[1:] == [(0, None, 1, 0.8)]

    kp.feedback(trace_id, success=True)
    kp.feedback(trace_id, success=False)

    assert feedback_rows()[2:] == [(1, None, 0, 0.2), (0, None, 1, 0.8)]


@pytest.mark.parametrize("call", ["feedback", "end_thread"])
@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"confidence": 1.1}, ValueError, "from 0 to 1"),
        ({"confidence": math.nan}, ValueError, "from 0 to 1"),
        ({"confidence": "0.9"}, TypeError, "confidence"),
        ({"success": "false"}, TypeError, "success"),
    ],
    ids=str,
)
def test_a_wrong_outcome_is_reported_at_once(pulse, call, given, error, words):
    with pytest.raises(error, match=words):
        getattr(pulse(enabled=False), call)("kp:trace:x", **given)


def test_feedback_that_says_nothing_or_of_no_run_is_reported_at_once(pulse):
    kp = pulse(enabled=False)

    with pytest.raises(ValueError, match="needs success, confidence or both"):
        kp.feedback("kp:trace:x")
    with pytest.raises(TypeError, match="got int"):
        kp.feedback(12, success=True)


def test_an_id_that_nobody_knows_is_said_once_and_counted(kp, submit, caplog, feedback_rows):
    with caplog.at_level(logging.WARNING):
        [kp.feedback(f"kp:trace:{number}", success=True) for number in range(3)]
    kp.feedback(None, success=True)
    submit()

    assert caplog.text.count("feedback was dropped") == 1
    assert "no run has the id 'kp:trace:0'" in caplog.text
    assert kp.stats().swallowed["feedback on no trace"] == 3
    assert (feedback_rows(), kp.stats().dropped) == ([], 0)


def test_feedback_comes_after_its_run_however_soon_it_is_given(pulse, stored):
    kp = pulse(embedder=None, threshold=GATE)
    ids = []

    @kp.capture
    def agent(text):
        current_trace().thought(text)
        ids.append(current_trace().trace_id)

    for number in range(20):
        agent(f"task {number}")
        kp.feedback(ids[-1], success=False)
    kp.flush()

    assert [stored(trace_id)["success"] for trace_id in ids] == [0] * 20
    assert not kp.stats().swallowed.get("feedback on no trace: TraceNotFoundError")


def test_a_run_that_waits_for_the_model_is_scored_as_feedback_said(pulse, stored, feedback_rows):
    waiting = pulse(embedder=NotReady(), sync=True, threshold=GATE)
    trace = trace_of(success=False)
    waiting.submit(trace)
    waiting.feedback(trace.id, success=True, confidence=0.9)
    recorded = stored(trace.id)

    pulse(threshold=GATE).flush()

    assert (recorded["state"], recorded["success"], len(feedback_rows())) == ("recorded", 1, 1)
    assert (stored(trace.id)["state"], stored(trace.id)["decision"]) == ("scored", "forward")
    assert stored(trace.id)["outcome_confidence"] == 0.9


def test_what_another_process_is_reported_while_we_embed_counts(at_once, db, connection, stored):
    trace = trace_of()
    late = Feedback(trace.id, success=False, confidence=0.1, given_at_s=0)

    def give_feedback():
        with closing(connect(db)) as another:
            Reevaluation.from_settings(SqliteStore(another), Settings()).apply(late)

    at_once(embedder=SideEffectEmbedder(give_feedback), threshold=0).submit(trace)

    assert stored(trace.id)["outcome_confidence"] == pytest.approx(0.03)
    assert end_of(body(connection, trace.id)[2]) == (False, 0.1)


@pytest.fixture
def thread(kp):
    """Runs one turn of a conversation, which waits for the next; returns its id."""

    def turn(*, awaits="turn", began_s_ago=0):
        recorder = kp.start_recording("test")
        recorder.started_at_s -= began_s_ago
        recorder.domain, recorder.thread_id = "medical", "T"
        recorder.set_objective("Diagnose")
        recorder.thread_notes.resume()
        recorder.thought("said")
        recorder.thread_notes.awaits = awaits
        recorder.finish()
        return recorder.trace_id

    return turn


@pytest.mark.parametrize(
    ("turns", "end", "then"),
    [(1, {"success": True, "confidence": 0.9}, (1, 0.9)), (0, {}, (0, 0.3))],
    ids=["the end of the thread wins", "where nothing follows it holds"],
)
def test_what_was_told_of_a_run_that_waits_is_kept(
    kp, thread, stored, feedback_rows, turns, end, then
):
    trace_id = thread()
    kp.feedback(trace_id, success=False, confidence=0.3)
    paused = stored(trace_id)

    [thread() for _ in range(turns)]
    kp.end_thread("T", **end)

    ended = stored(trace_id)
    assert (paused["state"], paused["success"], paused["confidence"]) == ("paused", 0, 0.3)
    assert (ended["state"], ended["success"], ended["confidence"]) == ("scored", *then)
    assert feedback_rows() == [(0, 0.3, 1, 0.8)]


@pytest.mark.parametrize("told_of", [0, 1, 2])
def test_the_id_of_each_turn_leads_to_the_one_trace_also_while_it_waits(
    kp, thread, stored, feedback_rows, told_of
):
    ids = [thread() for _ in range(3)]
    kp.feedback(ids[told_of], success=False)
    paused = stored(ids[0])
    kp.end_thread("T", success=True)

    kp.feedback(ids[told_of], success=False)

    assert (paused["state"], paused["success"]) == ("paused", 0)
    assert (stored(ids[0])["state"], stored(ids[0])["success"]) == ("scored", 0)
    assert feedback_rows()[1:] == [(0, None, 1, 0.8)]


def test_where_the_part_that_came_later_began_first_both_ids_lead_to_it(kp, thread, connection):
    second, first = thread(), thread(awaits=None, began_s_ago=60)

    kp.feedback(first, success=False)
    kp.feedback(second, confidence=0.3)

    found = connection.execute("SELECT id, success, confidence FROM traces").fetchall()
    assert found == [(first, 0, 0.3)]
    assert connection.execute("SELECT id FROM aliases").fetchall() == [(second,)]


def test_an_incomplete_run_takes_feedback_and_stays_unscored(kp, thread, stored):
    trace_id = thread(awaits="human")
    kp.end_thread("T")

    kp.feedback(trace_id, success=True)

    assert (stored(trace_id)["state"], stored(trace_id)["success"]) == ("incomplete", 1)
    assert (stored(trace_id)["score"], stored(trace_id)["outbox"]) == (None, None)


@pytest.mark.parametrize(
    ("state", "decision", "warnings"), [("failed", None, 0), ("scored", "forward", 1)]
)
def test_feedback_on_a_run_whose_document_cannot_be_read_is_kept(
    kp, submit, connection, stored, caplog, state, decision, warnings
):
    trace_id = submit(success=False)
    connection.execute("UPDATE documents SET body = '{}'")
    if state == "failed":
        connection.execute("UPDATE traces SET state = 'failed', score = NULL, decision = NULL")

    kp.feedback(trace_id, success=True)

    run = stored(trace_id)
    assert (run["state"], run["success"], run["decision"]) == (state, 1, decision)
    assert caplog.text.count("cleared, but cannot be queued") == warnings


def test_a_process_that_is_killed_in_the_middle_leaves_all_of_it_or_nothing(
    run_child, submit, connection
):
    trace_id = submit()
    tables = ("traces", "documents", "outbox", "feedback")
    before = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables]

    run_child(
        f"""
        import os, signal
        from kp_middleware import KnowledgePulse

        class Killing:
            name = "killing"
            def decide(self, score, history):
                os.kill(os.getpid(), signal.SIGKILL)

        kp = KnowledgePulse(embedder=None, sync=True, gate=Killing())
        kp.feedback({trace_id!r}, success=False)
        """,
        returns=-9,
    )

    after = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables]
    assert after == before


def test_a_closed_pipeline_and_a_disabled_one_take_none(kp, submit, pulse, feedback_rows):
    trace_id = submit()
    pulse(enabled=False).feedback(trace_id, success=False)
    kp.close()

    kp.feedback(trace_id, success=False)

    assert (feedback_rows(), kp.stats().dropped) == ([], 1)
