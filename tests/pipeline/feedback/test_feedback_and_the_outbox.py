"""Feedback after the end of a run, as it changes what is sent."""

import json
from dataclasses import replace

import pytest
from feedback_runs import GATE, UNREACHABLE, body, end_of, trace_of
from pipeline_helpers import column_of
from unsent_store import UnsentStore

from kp_middleware import Settings
from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.database import transaction
from kp_middleware.pipeline import Reevaluation
from kp_middleware.storage import CANCELLED_BY_USER, SqliteStore


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
    [
        ({}, "there is no API key"),
        ({**UNREACHABLE, "visibility": "private"}, "visibility is private"),
    ],
    ids=["no key", "private"],
)
def test_what_clears_and_may_not_leave_says_so(pulse, stored, settings, words):
    kp = pulse(embedder=None, sync=True, threshold=GATE, **settings)
    trace = trace_of(success=False)
    kp.submit(trace)

    kp.feedback(trace.id, success=True)

    assert (stored(trace.id)["decision"], stored(trace.id)["outbox"]) == ("forward", None)
    assert words in stored(trace.id)["reason"]


def test_what_another_process_is_reported_while_we_redact_counts(pulse, at_once, db, connection):
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
        SqliteStore(connection), Settings(db=db, threshold=GATE, **UNREACHABLE)
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


def test_what_another_program_has_prepared_keeps_its_rules_and_registry(at_once, connection):
    rules = "SELECT registry, redactor, redactions FROM outbox"
    ours, trace = at_once(redact_deny=["Diagnose"]), trace_of()
    ours.submit(trace)
    before = connection.execute(rules).fetchall()

    at_once(registry_url="http://127.0.0.1:10").feedback(trace.id, confidence=0.9)

    assert connection.execute(rules).fetchall() == before
    _, _, leaving, _ = body(connection, trace.id)
    assert (end_of(leaving), "Diagnose" in leaving["task"]["objective"]) == ((True, 0.9), False)
