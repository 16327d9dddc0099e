"""Traces in the file: written when recorded, updated when scored, read to be scored again."""

import json
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from kp_middleware.asked import said_in
from kp_middleware.core.evaluation import Ending
from kp_middleware.core.formula import SIGNALS
from kp_middleware.database import Connection, Queries
from kp_middleware.instants import instant, to_milliseconds
from kp_middleware.storage._recall import RecallTable
from kp_middleware.storage._records import ENDING, marked
from kp_middleware.storage._store import LAST_SEQ, EarlierReading, StoredRun

if TYPE_CHECKING:
    from kp_middleware.core.evaluation import Evaluation
    from kp_middleware.runs import RecordedRun, StepFacts
    from kp_middleware.traces import Step


_OF_VERDICT: Final = ("gate", "threshold", "decision", "key", "bar", "chosen", "credit")
_SAVE: Final = f"""
    UPDATE traces SET
      state = 'scored', score = :score, rules = :rules, scorer = :scorer, embedder = :embedder,
      scored_ms = coalesce(:took_ms, scored_ms),
      p_success = iif(:key IS NULL, p_success, :p_success),
      {", ".join(f"{name} = :{name}, {name}_weight = :{name}_weight" for name in SIGNALS)},
      nearest_seq = (SELECT seq FROM traces WHERE id = :nearest), nearest_similarity = :similarity,
      nearest_id = iif(EXISTS (SELECT 1 FROM traces WHERE id = :nearest), NULL, :nearest),
      rank_key = coalesce(:key, rank_key), bar = :bar,
      chosen = iif(:key IS NULL AND gate = :gate, chosen, :chosen),
      credit = iif(:key IS NULL AND gate = :gate, credit, :credit),
      gate = :gate, threshold = :threshold, decision = :decision,
      reason_code = :code, reason_args = :args,
      decided_at = CASE WHEN decision = :decision THEN coalesce(decided_at, :now) ELSE :now END
    WHERE seq = :seq AND state = :state
"""
_SHARE_CREDIT: Final = """
    UPDATE traces SET credit = :credit WHERE seq = (
      SELECT seq FROM traces
      WHERE score IS NOT NULL AND domain = (SELECT domain FROM traces WHERE seq = :seq)
        AND seq > :seq AND gate = :gate AND credit IS NOT NULL
      ORDER BY seq DESC LIMIT 1)
"""
_RECORDED: Final = "FROM traces WHERE score IS NULL AND state = 'recorded' AND shared_seq IS NULL"


_STORED: Final = f"""
    SELECT {marked("d.body")}, t.step_count, t.tool_count, t.recovery_count, t.score,
           coalesce(a.said, '')
    FROM traces t JOIN documents d ON d.trace_seq = t.seq
      LEFT JOIN asked a ON a.trace_seq = t.seq
    WHERE t.seq = ?
"""
_ADD_STEP: Final = """
    INSERT INTO steps (trace_seq, step_id, type, tool, mcp_server, content, input, output_summary,
      latency_ms, started_at, agent, call_id, parent, model, input_tokens, output_tokens,
      model_latency_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_OF_METADATA: Final = ("success", "framework", "agent_id", "privacy_level", "visibility")
_OF_RUN: Final = (
    *("duration_ms", "error_type", "agent_name", "model", "thread_id", "owner"),
    *("input_tokens", "output_tokens", "confidence_source", "success_source"),
)


class Traces(Queries):
    """The traces of one file; a run is first ``recorded``, then ``scored`` once by one process."""

    def __init__(self, connection: Connection, *, scorer: str) -> None:
        super().__init__(connection)
        self._scorer = scorer

    def reading(self, trace_id: str) -> EarlierReading | None:
        row = self._row(
            "SELECT seq, started_at, step_count, duration_ms, success,"
            " success_source = 'feedback',"
            " EXISTS (SELECT 1 FROM outbox WHERE trace_seq = seq) FROM traces WHERE id = ?",
            (trace_id,),
        )
        return None if row is None else EarlierReading(*row)

    def remove(self, seq: int) -> None:
        self._run("DELETE FROM traces WHERE seq = ?", (seq,))

    def last_objective(self, thread_id: str, agent_name: str | None) -> str | None:
        objective: str | None = self._value(
            "SELECT objective FROM traces WHERE thread_id = ? AND agent_name IS ?"
            " ORDER BY seq DESC LIMIT 1",
            (thread_id, agent_name),
        )
        return objective

    def next_recorded(self, first: int = 0, last: int = LAST_SEQ) -> int | None:
        seq: int | None = self._value(
            f"SELECT min(seq) {_RECORDED} AND seq BETWEEN ? AND ?",
            (first, last),
        )
        return seq

    def last_recorded(self) -> int | None:
        seq: int | None = self._value(f"SELECT max(seq) {_RECORDED}")
        return seq

    def is_recorded(self, seq: int, trace_id: str | None = None) -> bool:
        sql = f"SELECT 1 {_RECORDED} AND seq = ? AND id = coalesce(?, id)"
        return self._row(sql, (seq, trace_id)) is not None

    def stored(self, seq: int) -> StoredRun:
        return StoredRun(*self._row(_STORED, (seq,)))

    def save_evaluation(
        self,
        seq: int,
        evaluation: "Evaluation",
        *,
        took_ms: float | None = None,
        p_success: float | None = None,
    ) -> None:
        score, verdict = evaluation
        nearest = score.nearest
        values = {
            **{name: getattr(score.signals, name) for name in SIGNALS},
            **{f"{name}_weight": getattr(score.weights, name) for name in SIGNALS},
            **{name: getattr(verdict, name) for name in _OF_VERDICT},
            "took_ms": None if took_ms is None else round(took_ms, 3),
            "p_success": p_success,
            "score": score.value,
            "rules": json.dumps([adjustment._asdict() for adjustment in score.adjustments]),
            "scorer": self._scorer,
            "embedder": score.embedder,
            "nearest": nearest and nearest.id,
            "similarity": nearest and nearest.similarity,
            "code": verdict.reason.code,
            "args": json.dumps(verdict.reason.args, ensure_ascii=False),
            "now": instant(time.time()),
            "seq": seq,
            "state": "scored" if took_ms is None else "recorded",
        }
        self._run(_SAVE, values)
        if took_ms is not None and verdict.credit is not None:
            self._run(_SHARE_CREDIT, values)  # a later run may be ranked already

    def fail(self, seq: int, code: str, error: object) -> None:
        self._write(
            "UPDATE traces SET state = 'failed', reason_code = ?, reason_args = ?"
            " WHERE seq = ? AND state = 'recorded'",
            (code, json.dumps({"error": str(error)}), seq),
        )

    def count_dropped(self, count: int) -> None:
        self._run(
            "INSERT INTO meta (key, value) VALUES ('dropped', ?)"
            " ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + excluded.value",
            (str(count),),
        )

    def ending(self, seq: int) -> Ending:
        success, *rest = self._row(f"SELECT {ENDING} FROM traces t WHERE seq = ?", (seq,))
        return Ending(bool(success), *rest)

    def unsaid(self, seq: int) -> str | None:
        thread: str | None = self._value(
            "SELECT coalesce(thread_id, id) FROM traces WHERE seq = ?"
            " AND success_source = 'assumed'",
            (seq,),
        )
        return thread

    def save_ending(self, seq: int, ending: Ending) -> None:
        self._run(
            "UPDATE traces SET success = ?, confidence = ?, success_source = ?,"
            " confidence_source = ? WHERE seq = ?",
            (*ending, seq),
        )
        self._run(
            "UPDATE documents SET body = json_set(body, '$.metadata.success', json(?),"
            " '$.outcome.confidence', json(?)) WHERE trace_seq = ?",
            (*map(json.dumps, ending[:2]), seq),  # as JSON: SQLite's own conversion rounds
        )

    def save_opening(self, seq: int, embedder: str, vector: bytes) -> None:
        self._run(
            "UPDATE asked SET embedder = ?, vector = ? WHERE trace_seq = ?",
            (embedder, vector, seq),
        )

    def give_reason(self, seq: int, code: str) -> None:
        self._run(
            "UPDATE traces SET reason_code = ?, reason_args = NULL WHERE seq = ?", (code, seq)
        )

    def _insert(self, run: "RecordedRun", seq: int | None) -> int:
        row = _row(run)
        latest = RecallTable(self._connection).latest_objectives()
        seq = self._add("traces", seq=seq, **row)
        self._connection.executemany(
            _ADD_STEP,
            (
                (seq, number, *_step_row(step, facts))
                for number, (step, facts) in enumerate(zip_longest(run.trace.steps, run.facts))
            ),  # renumbered: a document's own ids may repeat
        )
        self._add("documents", trace_seq=seq, body=run.trace.model_dump_json())
        if row["state"] == "recorded":
            self._add("asked", trace_seq=seq, said=said_in(run.trace, latest))
        return seq


def _row(run: "RecordedRun") -> dict[str, Any]:
    trace, metadata = run.trace, run.trace.metadata
    awaits = run.part is not None and run.part.awaits is not None
    return {
        "id": trace.id,
        "state": "paused" if awaits else "recorded" if run.complete else "incomplete",
        "started_at": to_milliseconds(metadata.created_at),
        "domain": metadata.task_domain,
        "objective": trace.task.objective,
        "result_summary": trace.outcome.result_summary,
        "confidence": trace.outcome.confidence,
        "tags": json.dumps(run.tags) if run.tags else None,
        "step_count": run.shape.steps,
        "tool_count": run.shape.tools,
        "recovery_count": run.shape.recoveries,
        "redactions": json.dumps(run.redactions),
        "recalled": json.dumps(run.recalled) if run.recalled else None,
        **{name: getattr(metadata, name) for name in _OF_METADATA},
        **{name: getattr(run, name) for name in _OF_RUN},
    }


def _step_row(step: "Step", facts: "StepFacts | None") -> tuple[Any, ...]:
    tool = step.tool
    started_s, *rest = facts or (None,) * 8  # a submitted document has none
    return (
        step.type,
        None if tool is None else tool.name,
        None if tool is None else tool.mcp_server,
        step.content,
        None if step.input is None else json.dumps(step.input, ensure_ascii=False, default=str),
        step.output_summary,
        step.latency_ms,
        None if started_s is None else instant(started_s),
        *rest,
    )
