"""Synchronization of outbox items with their traces."""

import json
from typing import Final

from kp_middleware.database import Connection
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.reasons import reason_text
from kp_middleware.storage._rescue import LOST_ON_ITS_WAY

_NOT_SENT: Final = ("pending", "blocked", "rejected")
_PUT_RIGHT: Final = """
    UPDATE outbox SET body = json_set(
      body, '$.metadata.success', json(:success_json), '$.outcome.confidence',
      json(:confidence_json), '$.metadata.quality_score', json(:score_json))
    WHERE trace_seq = :seq AND (
      json_extract(body, '$.metadata.success') <> :success
      OR json_extract(body, '$.outcome.confidence') <> :confidence
      OR json_extract(body, '$.metadata.quality_score') <> :score)
    RETURNING body
"""


def sync_outbox_to_trace(connection: Connection, seq: int, *, agent_id: str | None) -> None:
    """Update the outbox item of a trace, if there is one, after the trace has changed.

    A pending item that no longer clears is cancelled; a blocked one stays blocked, because it might
    be queued again with weaker redaction rules. The body of an unsent item gets the trace's
    success, confidence and score, which need no redaction. An item that was sent, is being sent, or
    may have been sent before its file was damaged, is not changed.

    Args:
        connection: The connection, in the transaction that has changed the trace.
        seq: The ``seq`` of the trace.
        agent_id: The agent that the API key is registered for, or None.
    """
    row = connection.execute(
        """
        SELECT o.state, o.reason, o.rejections, t.decision, t.reason_code, t.reason_args, t.success,
               t.confidence, t.score
        FROM outbox o JOIN traces t ON t.seq = o.trace_seq WHERE o.trace_seq = ?
        """,
        (seq,),
    ).fetchone()
    if row is None or row[0] not in _NOT_SENT or row[1] == LOST_ON_ITS_WAY:
        return
    state, _, rejections, decision, code, args, *facts = row
    if decision == "withhold" and state == "pending":
        _cancel(connection, seq, reason_text(code, args))
    else:
        _put_right(connection, seq, tuple(facts), agent_id=agent_id, rejections=rejections)


def _cancel(connection: Connection, seq: int, why: str | None) -> None:
    connection.execute(
        "UPDATE outbox SET state = 'cancelled', reason = ?, body = NULL, redactions = '{}',"
        " next_attempt_at = NULL, last_error = NULL WHERE trace_seq = ?",
        (f"it cleared before it was decided anew: {why}", seq),
    )


def _put_right(
    connection: Connection,
    seq: int,
    facts: tuple[int, float, float],
    *,
    agent_id: str | None,
    rejections: int,
) -> None:
    success, confidence, score = facts
    told = {
        "seq": seq,
        "success": success,
        "confidence": confidence,
        "score": score,
        "success_json": json.dumps(bool(success)),
        "confidence_json": json.dumps(confidence),  # SQLite's own conversion rounds
        "score_json": json.dumps(score),
    }
    row = connection.execute(_PUT_RIGHT, told).fetchone()
    if row is not None:
        key = idempotency_key(row[0].encode(), agent_id=agent_id, rejections=rejections)
        connection.execute("UPDATE outbox SET idempotency_key = ? WHERE trace_seq = ?", (key, seq))
