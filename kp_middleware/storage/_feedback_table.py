"""Feedback on runs after their end, stored with the previous outcome."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from kp_middleware.database import Connection

_COLUMNS: Final = "seq, trace_seq, given_at, success, confidence, success_before, confidence_before"


class Belief(NamedTuple):
    """The stored outcome of a run.

    Attributes:
        seq: The ``seq`` of its trace.
        state: The state of its trace.
        success: Whether its task was done.
        confidence: The confidence in that, 0 to 1.
        confidence_source: The source of the confidence, or ``assumed``.
        last_told: The success and confidence of the last feedback; None if there was none.
    """

    seq: int
    state: str
    success: bool
    confidence: float
    confidence_source: str
    last_told: tuple[bool | None, float | None] | None


class FeedbackTable:
    """The feedback in one file; use it inside a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def belief(self, trace_id: str) -> Belief | None:
        """Return the stored outcome of a run, by id or alias; None if the id is unknown."""
        row = self._connection.execute(
            "SELECT seq, state, success, confidence, confidence_source FROM traces WHERE id = :id"
            " OR seq = (SELECT trace_seq FROM aliases WHERE id = :id)",
            {"id": trace_id},
        ).fetchone()
        if row is None:
            return None
        seq, state, success, confidence, source = row
        told = self._connection.execute(
            "SELECT success, confidence FROM feedback WHERE trace_seq = ? ORDER BY seq", (seq,)
        ).fetchall()
        last = _told(*told[-1]) if told else None
        return Belief(seq, state, bool(success), confidence, source, last)

    def add(
        self,
        before: Belief,
        *,
        given_at: str,
        told: tuple[bool | None, float | None],
        success: bool,
        confidence: float,
    ) -> None:
        """Store feedback, and update the trace's row and document.

        Args:
            before: The outcome before.
            given_at: The instant of the feedback, in the format of the columns.
            told: The success and confidence that were given; None for each that was not.
            success: The new success.
            confidence: The new confidence, 0 to 1.
        """
        seq = before.seq
        self._connection.execute(
            "INSERT INTO feedback (trace_seq, given_at, success, confidence, success_before,"
            " confidence_before) VALUES (?, ?, ?, ?, ?, ?)",
            (seq, given_at, *told, before.success, before.confidence),
        )
        sources = ["feedback" if said is not None else None for said in told]
        if told[1] is None and confidence != before.confidence:
            sources[1] = "assumed"
        self._connection.execute(
            "UPDATE traces SET success = ?, confidence = ?,"
            " success_source = coalesce(?, success_source),"
            " confidence_source = coalesce(?, confidence_source) WHERE seq = ?",
            (success, confidence, *sources, seq),
        )
        self._connection.execute(
            "UPDATE documents SET body = json_set(body, '$.metadata.success', json(?),"
            " '$.outcome.confidence', json(?)) WHERE trace_seq = ?",
            (json.dumps(success), json.dumps(confidence), seq),  # SQLite's own conversion rounds
        )

    @contextmanager
    def outliving(self, seq: int) -> Iterator[None]:
        """Preserve the feedback of a trace while its row is replaced under the same ``seq``."""
        kept = self._connection.execute(
            f"SELECT {_COLUMNS} FROM feedback WHERE trace_seq = ?",  # noqa: S608 - our own names
            (seq,),
        ).fetchall()
        yield
        self._connection.executemany(
            f"INSERT OR IGNORE INTO feedback ({_COLUMNS}) SELECT ?, ?, ?, ?, ?, ?, ?"  # noqa: S608
            " WHERE EXISTS (SELECT 1 FROM traces WHERE seq = ?)",
            ((*row, seq) for row in kept),
        )


def _told(success: int | None, confidence: float | None) -> tuple[bool | None, float | None]:
    return None if success is None else bool(success), confidence
