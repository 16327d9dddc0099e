"""Runs in the file: written as they were recorded, completed when they are scored."""

import json
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from kp_middleware.database import Connection, transaction
from kp_middleware.instants import instant, to_milliseconds

if TYPE_CHECKING:  # read-only commands load this module, and none of these
    from kp_middleware.core.evaluation import Verdict
    from kp_middleware.core.formula import Score
    from kp_middleware.runs import RecordedRun, StepFacts
    from kp_middleware.traces import Step

CANCELLED_BY_HAND: Final = "by hand"
"""The reason of an outbox row that a person has cancelled: nothing queues it but that person."""

_LAST: Final = 2**63 - 1  # the largest that SQLite knows


class TraceStore:
    """The traces of one file. A run is ``recorded`` first, and ``scored`` once, by one process."""

    def __init__(self, connection: Connection, *, scorer: str) -> None:
        """``scorer`` is the name and version that is stored with each score."""
        self._connection = connection
        self._scorer = scorer

    def record(self, run: "RecordedRun", *, seq: int | None = None) -> int:
        """Keep a run, whatever becomes of it; returns its ``seq``.

        A trace that is stored already (the same id) is not stored again.

        Args:
            run: What was recorded.
            seq: Its place, where it had one before; None means a new one.
        """
        with transaction(self._connection):
            known = self._connection.execute(
                "SELECT seq FROM traces WHERE id = ?", (run.trace.id,)
            ).fetchone()
            return int(known[0]) if known else self._insert(run, seq)

    def holds(self, trace_id: str) -> bool:
        """Whether a trace of this id is stored."""
        row = self._connection.execute("SELECT 1 FROM traces WHERE id = ?", (trace_id,)).fetchone()
        return row is not None

    def holds_run(self, run: "RecordedRun") -> bool:
        """Whether this very run is stored: one that was written, and is given once more."""
        row = self._connection.execute(
            "SELECT 1 FROM traces WHERE id = ? AND started_at = ? AND step_count = ?"
            " AND duration_ms IS ?",
            (
                run.trace.id,
                to_milliseconds(run.trace.metadata.created_at),
                run.shape.steps,
                run.duration_ms,
            ),
        ).fetchone()
        return row is not None

    def last_objective(self, thread_id: str, agent_name: str | None) -> str | None:
        """What the last run of an agent in a thread was for, or None where there is none."""
        row = self._connection.execute(
            "SELECT objective FROM traces WHERE thread_id = ? AND agent_name IS ?"
            " ORDER BY seq DESC LIMIT 1",
            (thread_id, agent_name),
        ).fetchone()
        return None if row is None else str(row[0])

    def next_recorded(self, first: int = 0, last: int = _LAST) -> int | None:
        """The oldest run that waits to be scored, of those in these places, both included."""
        row = self._connection.execute(
            "SELECT seq FROM traces WHERE state = 'recorded' AND seq BETWEEN ? AND ?"
            " ORDER BY seq LIMIT 1",
            (first, last),
        ).fetchone()
        return None if row is None else int(row[0])

    def last_recorded(self) -> int | None:
        """The newest run that waits to be scored."""
        row = self._connection.execute(
            "SELECT seq FROM traces WHERE state = 'recorded' ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return None if row is None else int(row[0])

    def is_recorded(self, seq: int) -> bool:
        """Whether a run waits to be scored; inside a transaction this holds to its end."""
        row = self._connection.execute(
            "SELECT 1 FROM traces WHERE seq = ? AND state = 'recorded'", (seq,)
        ).fetchone()
        return row is not None

    def document(self, seq: int) -> str:
        """The ReasoningTrace as it was recorded, as JSON."""
        row = self._connection.execute(
            "SELECT body FROM documents WHERE trace_seq = ?", (seq,)
        ).fetchone()
        return str(row[0])

    def counts(self, seq: int) -> tuple[int, int, int]:
        """How many steps, tools and recoveries the run really had."""
        row = self._connection.execute(
            "SELECT step_count, tool_count, recovery_count FROM traces WHERE seq = ?", (seq,)
        ).fetchone()
        return int(row[0]), int(row[1]), int(row[2])

    def save_score(self, seq: int, score: "Score", verdict: "Verdict", *, took_ms: float) -> None:
        """Complete a recorded run with its score and what the gate said."""
        self._save(seq, score, verdict, state="recorded", took_ms=round(took_ms, 3))

    def save_score_again(self, seq: int, score: "Score", verdict: "Verdict") -> None:
        """Replace the score of a scored run, and what the gate said.

        What was let through before, and is so now, keeps its place in that day's room.
        """
        self._save(seq, score, verdict, state="scored", took_ms=None)

    def _save(
        self, seq: int, score: "Score", verdict: "Verdict", *, state: str, took_ms: float | None
    ) -> None:
        signals, weights, nearest = score.signals, score.weights, score.nearest
        now = instant(time.time())
        self._connection.execute(
            """
            UPDATE traces SET
              state = 'scored', score = ?, rules = ?, scorer = ?, embedder = ?,
              scored_ms = coalesce(?, scored_ms),
              complexity = ?, novelty = ?, tool_diversity = ?, outcome_confidence = ?,
              complexity_weight = ?, novelty_weight = ?,
              tool_diversity_weight = ?, outcome_confidence_weight = ?,
              nearest_seq = (SELECT seq FROM traces WHERE id = ?), nearest_similarity = ?,
              gate = ?, threshold = ?, decision = ?, reason_code = ?, reason_args = ?,
              decided_at = CASE WHEN decision = ? THEN coalesce(decided_at, ?) ELSE ? END
            WHERE seq = ? AND state = ?
            """,
            (
                score.value,
                json.dumps([adjustment._asdict() for adjustment in score.adjustments]),
                self._scorer,
                score.embedder,
                took_ms,
                *(signals.complexity, signals.novelty),
                *(signals.tool_diversity, signals.outcome_confidence),
                *(weights.complexity, weights.novelty),
                *(weights.tool_diversity, weights.outcome_confidence),
                *((nearest.id, nearest.similarity) if nearest else (None, None)),
                *(verdict.gate, verdict.threshold, verdict.decision),
                *(verdict.reason.code, json.dumps(verdict.reason.args, ensure_ascii=False)),
                *(verdict.decision, now, now),
                *(seq, state),
            ),
        )

    def fail(self, seq: int, code: str, error: object) -> None:
        """Keep a run that cannot be scored, with why: see `FAILURES`."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE traces SET state = 'failed', reason_code = ?, reason_args = ?"
                " WHERE seq = ? AND state = 'recorded'",
                (code, json.dumps({"error": str(error)}), seq),
            )

    def count_dropped(self, count: int) -> None:
        """So many more runs never came so far."""
        self._connection.execute(
            "INSERT INTO meta (key, value) VALUES ('dropped', ?)"
            " ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + excluded.value",
            (str(count),),
        )

    def next_cleared_but_not_queued(self, *, after: int) -> int | None:
        """The next run that the gate let through, and that nobody put into the outbox since."""
        row = self._connection.execute(
            """
            SELECT t.seq FROM traces t JOIN documents d ON d.trace_seq = t.seq
            LEFT JOIN outbox o ON o.trace_seq = t.seq
            WHERE t.seq > ? AND t.decision = 'forward' AND t.visibility <> 'private'
              AND coalesce(o.state, 'cancelled') = 'cancelled' AND o.reason IS NOT ?
            ORDER BY t.seq LIMIT 1
            """,
            (after, CANCELLED_BY_HAND),
        ).fetchone()
        return None if row is None else int(row[0])

    def outcome(self, seq: int) -> tuple[bool, float]:
        """Whether a run's task was done, and how sure of it, as is known now."""
        row = self._connection.execute(
            "SELECT success, confidence FROM traces WHERE seq = ?", (seq,)
        ).fetchone()
        return bool(row[0]), float(row[1])

    def score_of(self, seq: int) -> float:
        """The score of a scored run."""
        row = self._connection.execute("SELECT score FROM traces WHERE seq = ?", (seq,)).fetchone()
        return float(row[0])

    def say_why(self, seq: int, code: str) -> None:
        """Replace the reason."""
        self._connection.execute(
            "UPDATE traces SET reason_code = ?, reason_args = NULL WHERE seq = ?", (code, seq)
        )

    def may_leave(self, seq: int) -> None:
        """Forget that a run stayed for want of an API key, or for a wrong setting."""
        self._connection.execute(
            "UPDATE traces SET reason_args = json_remove(reason_args, '$.delivery')"
            " WHERE seq = ? AND reason_args ->> 'delivery' IN ('no_key', 'wrong_setting')",
            (seq,),
        )

    def _insert(self, run: "RecordedRun", seq: int | None) -> int:
        fields = {"seq": seq, **_row(run)}
        cursor = self._connection.execute(
            f"INSERT INTO traces ({', '.join(fields)}) VALUES ({', '.join('?' * len(fields))})",  # noqa: S608 - our own names
            [*fields.values()],
        )
        seq = int(cursor.lastrowid or 0)
        self._connection.executemany(
            "INSERT INTO steps (trace_seq, step_id, type, tool, mcp_server, content, input,"
            " output_summary, latency_ms, started_at, agent, call_id, parent, model, input_tokens,"
            " output_tokens, model_latency_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (seq, number, *_step_row(step), *_facts_row(facts))
                for number, (step, facts) in enumerate(zip_longest(run.trace.steps, run.facts))
            ),  # numbered anew: a document's own ids need not differ
        )
        self._connection.execute(
            "INSERT INTO documents (trace_seq, body) VALUES (?, ?)",
            (seq, run.trace.model_dump_json()),
        )
        return seq


def _row(run: "RecordedRun") -> dict[str, Any]:
    trace, metadata = run.trace, run.trace.metadata
    return {
        "id": trace.id,
        "state": _state(run),
        "started_at": to_milliseconds(metadata.created_at),
        "duration_ms": run.duration_ms,
        "domain": metadata.task_domain,
        "objective": trace.task.objective,
        "result_summary": trace.outcome.result_summary,
        "success": metadata.success,
        "confidence": trace.outcome.confidence,
        "error_type": run.error_type,
        "framework": metadata.framework,
        "agent_id": metadata.agent_id,
        "agent_name": run.agent_name,
        "model": run.model,
        "thread_id": run.thread_id,
        "tags": json.dumps(run.tags) if run.tags else None,
        "privacy_level": metadata.privacy_level,
        "visibility": metadata.visibility,
        "step_count": run.shape.steps,
        "tool_count": run.shape.tools,
        "recovery_count": run.shape.recoveries,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "redactions": json.dumps(run.redactions),
        "confidence_source": run.confidence_source,
        "success_source": run.success_source,
    }


def _state(run: "RecordedRun") -> str:
    if run.part is not None and run.part.awaits is not None:
        return "paused"
    return "recorded" if run.complete else "incomplete"


def _facts_row(facts: "StepFacts | None") -> tuple[Any, ...]:
    if facts is None:  # of a document that was given
        return (None,) * 8
    started_s, *rest = facts
    return (None if started_s is None else instant(started_s), *rest)


def _step_row(step: "Step") -> tuple[Any, ...]:
    tool = step.tool
    return (
        step.type,
        None if tool is None else tool.name,
        None if tool is None else tool.mcp_server,
        step.content,
        None if step.input is None else json.dumps(step.input, ensure_ascii=False, default=str),
        step.output_summary,
        step.latency_ms,
    )
