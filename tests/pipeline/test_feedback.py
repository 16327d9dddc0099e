"""What is learned of a run after its end: the file says it, and so does what leaves."""

import json
import logging
import math
from contextlib import closing
from dataclasses import replace

import pytest
from pipeline_helpers import Meanwhile, NotReady, column_of
from pipeline_helpers import trace_of as made_of
from unsent import UnsentStore

from kp_middleware import Step, current_trace
from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.database import connect, transaction
from kp_middleware.pipeline import Feedback, Reevaluation
from kp_middleware.recording import shield
from kp_middleware.settings import Settings
from kp_middleware.storage import CANCELLED_BY_USER, SqliteStore
from kp_middleware.testing import StandInEmbedder

GATE = 0.5
DEAD = {"api_key": "kp_x", "registry_url": "http://127.0.0.1:9"}


@pytest.fixture
def at_once(pulse, db):
    """Makes pipelines that do all at once, and send nothing: what waits, waits."""

    def make(**settings):
        usual = {"embedder": None, "sync": True, "threshold": GATE, "store": UnsentStore.at(db)}
        return pulse(**{**usual, **DEAD, **settings})

    return make


@pytest.fixture
def kp(at_once):
    return at_once()


@pytest.fixture
def submit(kp):
    """Submits a run; returns its id."""

    def put(success=True, **facts):
        trace = trace_of(success=success, **facts)
        kp.submit(trace)
        return trace.id

    return put


@pytest.fixture
def told(connection):
    """The feedback of the file, in order."""
    return lambda: connection.execute(
        "SELECT success, confidence, success_before, confidence_before FROM feedback ORDER BY seq"
    ).fetchall()


def trace_of(*, success=True, confidence=None, recoveries=0):
    kinds = ["thought", *["error_recovery"] * recoveries, "observation"]
    steps = [Step(step_id=at, type=kind, content="x") for at, kind in enumerate(kinds)]
    facts = {"domain": "medical", "success": success, "confidence": confidence}
    return made_of("Diagnose", steps=steps, **facts)


def body(connection, trace_id):
    """The outbox row of a trace: its state, its reason, its document and its key."""
    ((state, reason, document, key),) = connection.execute(
        "SELECT o.state, o.reason, o.body, o.idempotency_key FROM outbox o"
        " JOIN traces t ON t.seq = o.trace_seq WHERE t.id = ?",
        (trace_id,),
    ).fetchall()
    return state, reason, json.loads(document or "null"), key


def end_of(document):
    return document["metadata"]["success"], document["outcome"]["confidence"]


def test_a_failed_run_that_really_succeeded_is_sent_after_all(pulse, sending, registry, stored):
    kp = pulse(**{**sending, "threshold": GATE}, embedder=None)
    trace = trace_of(success=False)
    kp.submit(trace)
    kp.flush()
    before = stored(trace.id)

    kp.feedback(trace.id, success=True, confidence=0.95)
    kp.flush()

    assert (before["decision"], before["outbox"]) == ("withhold", None)
    (sent,) = registry.documents.values()
    assert end_of(json.loads(sent.model_dump_json())) == (True, 0.95)
    assert sent.metadata.quality_score == stored(trace.id)["score"] > before["score"]
    assert stored(trace.id)["outbox"]["state"] == "sent"


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


def test_what_waits_is_cancelled_where_it_clears_no_more_and_waits_again_where_it_does(
    kp, submit, connection, stored, db
):
    trace_id = submit()
    connection.execute("UPDATE outbox SET rejections = 2, attempts = 5")
    _, _, document, key = body(connection, trace_id)

    kp.feedback(trace_id, success=False)

    reason = f"it cleared the gate before it was re-evaluated: {stored(trace_id)['reason']}"
    assert body(connection, trace_id)[:3] == ("cancelled", reason, None)
    [kept] = column_of(db, "body", "documents")
    assert end_of(json.loads(kept)) == (False, 0.2)

    kp.feedback(trace_id, success=True)

    *again, other_key = body(connection, trace_id)
    assert again == ["pending", None, document]
    assert other_key != key  # a registry has answered 4xx to that one
    assert connection.execute("SELECT attempts, rejections FROM outbox").fetchone() == (0, 2)


def test_what_waits_and_still_clears_says_what_is_true(kp, submit, connection, stored):
    trace_id = submit()
    *_, before, key = body(connection, trace_id)

    kp.feedback(trace_id, confidence=0.9123456789012345)

    state, _, after, other_key = body(connection, trace_id)
    assert (state, other_key != key) == ("pending", True)
    assert end_of(after) == (True, 0.9123456789012345)
    assert after["metadata"]["quality_score"] == stored(trace_id)["score"]
    after["outcome"]["confidence"] = before["outcome"]["confidence"]
    after["metadata"]["quality_score"] = before["metadata"]["quality_score"]
    assert after == before


def test_what_was_cancelled_by_hand_stays_here(kp, submit, connection, stored):
    trace_id = submit()
    connection.execute(
        "UPDATE outbox SET state = 'cancelled', body = NULL, reason = ?", (CANCELLED_BY_USER,)
    )

    kp.feedback(trace_id, success=False)
    kp.feedback(trace_id, success=True)

    assert body(connection, trace_id)[:2] == ("cancelled", CANCELLED_BY_USER)
    assert stored(trace_id)["decision"] == "forward"


def test_what_was_sent_stays_sent_and_is_not_sent_again(
    pulse, sending, registry, stored, connection
):
    kp = pulse(**{**sending, "threshold": GATE}, embedder=None)
    trace = trace_of()
    kp.submit(trace)
    kp.flush()
    before = connection.execute("SELECT * FROM outbox").fetchall()

    kp.feedback(trace.id, success=False)
    kp.flush()
    withheld = stored(trace.id)
    kp.feedback(trace.id, success=True, confidence=1)
    kp.flush()

    assert (withheld["decision"], withheld["success"]) == ("withhold", 0)
    assert withheld["reason"].endswith("is below 0.5; it was already sent")
    assert stored(trace.id)["reason"].endswith("is at least 0.5; it was already sent")
    assert connection.execute("SELECT * FROM outbox").fetchall() == before
    assert registry.times_received == {trace.id: 1}


def test_what_is_being_sent_stays_as_it_is(kp, submit, connection, stored):
    trace_id = submit()
    connection.execute("UPDATE outbox SET state = 'sending', claimed_by = 'somebody'")
    before = connection.execute("SELECT * FROM outbox").fetchall()

    kp.feedback(trace_id, success=False)

    assert connection.execute("SELECT * FROM outbox").fetchall() == before
    assert stored(trace_id)["reason"].endswith("it was already being sent")


@pytest.mark.parametrize(
    ("settings", "words"),
    [({}, "there is no API key"), ({**DEAD, "visibility": "private"}, "visibility is private")],
    ids=["no key", "private"],
)
def test_what_clears_and_may_not_leave_says_so(pulse, stored, settings, words):
    kp = pulse(embedder=None, sync=True, threshold=GATE, **settings)
    trace = trace_of(success=False)
    kp.submit(trace)

    kp.feedback(trace.id, success=True)

    assert (stored(trace.id)["decision"], stored(trace.id)["outbox"]) == ("forward", None)
    assert words in stored(trace.id)["reason"]


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


def test_all_that_is_told_is_kept_but_the_same_twice_only_once(
    kp, submit, told, connection, stored
):
    trace_id = submit()
    score = stored(trace_id)["score"]

    kp.feedback(trace_id, success=True)

    assert stored(trace_id)["score"] == score
    assert told() == [(1, None, 1, 0.8)]

    kp.feedback(trace_id, success=False)
    before = connection.execute("SELECT * FROM traces").fetchall()
    kp.feedback(trace_id, success=False)

    assert connection.execute("SELECT * FROM traces").fetchall() == before
    assert told()[1:] == [(0, None, 1, 0.8)]

    kp.feedback(trace_id, success=True)
    kp.feedback(trace_id, success=False)

    assert told()[2:] == [(1, None, 0, 0.2), (0, None, 1, 0.8)]


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
def test_a_wrong_outcome_is_told_at_once(pulse, call, given, error, words):
    with pytest.raises(error, match=words):
        getattr(pulse(enabled=False), call)("kp:trace:x", **given)


def test_feedback_that_says_nothing_or_of_no_run_is_told_at_once(pulse):
    kp = pulse(enabled=False)

    with pytest.raises(ValueError, match="needs success, confidence or both"):
        kp.feedback("kp:trace:x")
    with pytest.raises(TypeError, match="got int"):
        kp.feedback(12, success=True)


def test_an_id_that_nobody_knows_is_said_once_and_counted(kp, submit, caplog, told):
    before = kp.stats().swallowed.get("feedback on no trace", 0)
    shield.failures.pop("feedback on no trace", None)

    with caplog.at_level(logging.WARNING):
        [kp.feedback(f"kp:trace:{number}", success=True) for number in range(3)]
    kp.feedback(None, success=True)
    submit()

    assert caplog.text.count("feedback was dropped") == 1
    assert "no run has the id 'kp:trace:0'" in caplog.text
    assert kp.stats().swallowed["feedback on no trace"] == 3
    assert (before >= 0, told(), kp.stats().dropped) == (True, [], 0)


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


def test_a_run_that_waits_for_the_model_is_scored_as_feedback_said(pulse, stored, told):
    waiting = pulse(embedder=NotReady(), sync=True, threshold=GATE)
    trace = trace_of(success=False)
    waiting.submit(trace)
    waiting.feedback(trace.id, success=True, confidence=0.9)
    recorded = stored(trace.id)

    pulse(threshold=GATE).flush()

    assert (recorded["state"], recorded["success"], len(told())) == ("recorded", 1, 1)
    assert (stored(trace.id)["state"], stored(trace.id)["decision"]) == ("scored", "forward")
    assert stored(trace.id)["outcome_confidence"] == 0.9


def test_what_another_process_is_told_while_we_embed_counts(at_once, db, connection, stored):
    trace = trace_of()
    told = Feedback(trace.id, success=False, confidence=0.1, given_at_s=0)

    def tell():
        with closing(connect(db)) as another:
            Reevaluation.from_settings(SqliteStore(another), Settings()).apply(told)

    at_once(embedder=Meanwhile(tell), threshold=0).submit(trace)

    assert stored(trace.id)["outcome_confidence"] == pytest.approx(0.03)
    assert end_of(body(connection, trace.id)[2]) == (False, 0.1)


def test_what_another_process_is_told_while_we_redact_counts(pulse, at_once, db, connection):
    trace, elsewhere = trace_of(), pulse(embedder=None, sync=True, threshold=GATE)

    class Meeting(UnsentStore):
        """Lets the other process learn of the run when it is scored, and not in the outbox."""

        is_scored = False

        def save_evaluation(self, *args, **facts):
            super().save_evaluation(*args, **facts)
            self.is_scored = True

        def transaction(self):
            if self.is_scored:
                self.is_scored = False
                elsewhere.feedback(trace.id, success=False)
            return super().transaction()

    at_once(store=Meeting.at(db)).submit(trace)

    assert body(connection, trace.id)[0] == "cancelled"


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
def test_what_was_told_of_a_run_that_waits_is_kept(kp, thread, stored, told, turns, end, then):
    trace_id = thread()
    kp.feedback(trace_id, success=False, confidence=0.3)
    paused = stored(trace_id)

    [thread() for _ in range(turns)]
    kp.end_thread("T", **end)

    ended = stored(trace_id)
    assert (paused["state"], paused["success"], paused["confidence"]) == ("paused", 0, 0.3)
    assert (ended["state"], ended["success"], ended["confidence"]) == ("scored", *then)
    assert told() == [(0, 0.3, 1, 0.8)]


@pytest.mark.parametrize("told_of", [0, 1, 2])
def test_the_id_of_each_turn_leads_to_the_one_trace_also_while_it_waits(
    kp, thread, stored, told, told_of
):
    ids = [thread() for _ in range(3)]
    kp.feedback(ids[told_of], success=False)
    paused = stored(ids[0])
    kp.end_thread("T", success=True)

    kp.feedback(ids[told_of], success=False)

    assert (paused["state"], paused["success"]) == ("paused", 0)
    assert (stored(ids[0])["state"], stored(ids[0])["success"]) == ("scored", 0)
    assert told()[1:] == [(0, None, 1, 0.8)]


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


def test_a_day_s_room_is_for_who_clears_today_and_others_keep_their_place(
    at_once, connection, stored
):
    limited = at_once(max_per_day=2)
    late, *first = trace_of(success=False), trace_of(), trace_of()
    [limited.submit(trace) for trace in (late, *first)]

    limited.feedback(late.id, success=True)

    assert stored(late.id)["decision"] == "withhold"
    assert "max_per_day = 2 were forwarded" in stored(late.id)["reason"]

    then = "2026-01-01T00:00:00.000Z"
    connection.execute("UPDATE traces SET decided_at = ? WHERE decision = 'forward'", (then,))
    today = trace_of(), trace_of()
    [limited.submit(trace) for trace in today]

    limited.feedback(first[0].id, confidence=0.9)

    assert [stored(one.id)["decision"] for one in (*first, *today)] == ["forward"] * 4
    assert stored(first[0].id)["decided_at"] == then


def test_what_a_process_that_died_had_no_time_to_queue_the_next_one_does(
    pulse, at_once, sending, registry, db, connection
):
    kp, trace = at_once(registry_url=registry.url), trace_of()
    kp.submit(trace)
    kp.feedback(trace.id, success=False)
    second = Reevaluation.from_settings(
        SqliteStore(connection), Settings(db=db, threshold=GATE, **DEAD)
    )
    with transaction(connection):
        connection.execute("UPDATE traces SET success = 1, confidence = 0.8")
        stored = SqliteStore(connection).scored(1)
        better = replace(stored.score, value=0.9)
        cleared = Verdict("better", GATE, "forward", Reason(ReasonCode.CUSTOM, {"words": ""}))
        has_to_be_queued = second.save(1, Evaluation(better, cleared), stored)

    after = pulse(**{**sending, "threshold": GATE}, embedder=None)
    after.submit(trace_of(success=False))
    after.flush()

    assert (has_to_be_queued, [*registry.documents]) == (True, [trace.id])
    assert body(connection, trace.id)[0] == "sent"


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


def test_a_closed_pipeline_and_a_disabled_one_take_none(kp, submit, pulse, told):
    trace_id = submit()
    pulse(enabled=False).feedback(trace_id, success=False)
    kp.close()

    kp.feedback(trace_id, success=False)

    assert (told(), kp.stats().dropped) == ([], 1)


def test_what_another_program_has_prepared_keeps_its_rules_and_registry(at_once, connection):
    rules = "SELECT registry, redactor, redactions FROM outbox"
    ours, trace = at_once(redact_deny=["Diagnose"]), trace_of()
    ours.submit(trace)
    before = connection.execute(rules).fetchall()

    at_once(registry_url="http://127.0.0.1:10").feedback(trace.id, confidence=0.9)

    assert connection.execute(rules).fetchall() == before
    _, _, leaving, _ = body(connection, trace.id)
    assert (end_of(leaving), "Diagnose" in leaving["task"]["objective"]) == ((True, 0.9), False)
