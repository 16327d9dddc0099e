"""The SQLite file as the store of runs; a run is first ``recorded``, then ``scored`` once."""

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, closing
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kp_middleware.core.evaluation import Ending, Evaluation
from kp_middleware.core.formula import SIGNALS
from kp_middleware.core.gates import DAY_S
from kp_middleware.database import (
    Connection,
    Database,
    FileIdentity,
    Queries,
    VectorTable,
    permission_warning,
    transaction,
)
from kp_middleware.instants import instant, to_milliseconds
from kp_middleware.outbox_items import OutboxItem
from kp_middleware.recall_text import extract_user_text
from kp_middleware.storage._export_cursor import ExportCandidate, ExportCursor
from kp_middleware.storage._history import History
from kp_middleware.storage._learning import EstimateTable, GateQueries, RecallTable
from kp_middleware.storage._maintenance import Pruning, rescue
from kp_middleware.storage._outbox import OutboxTable
from kp_middleware.storage._past_runs import PastRun, PastRuns
from kp_middleware.storage._records import ENDING, Run, document_sql
from kp_middleware.storage._shared_runs import SharedRuns
from kp_middleware.storage._statistics import BACKLOG, Backlog, Counts, Statistics
from kp_middleware.storage._store import (
    LAST_SEQ,
    PausedRun,
    Rescue,
    StoredOutcome,
    StoredRun,
    StoredVersion,
)

if TYPE_CHECKING:
    from kp_middleware.runs import RecordedRun, StepFacts
    from kp_middleware.traces import Step

logger = logging.getLogger("kp_middleware")

_NONE_FORWARDED: Final = """
    SELECT count(*) >= 100 AND total(verdict = 'forwarded') = 0 AND 2 * total(private) < count(*)
    FROM (SELECT verdict, visibility = 'private' AS private FROM traces
          WHERE score IS NOT NULL ORDER BY seq DESC LIMIT 100)
"""
_CLAIM_WARNING: Final = """
    INSERT INTO meta (key, value) VALUES ('said_that_none_cleared_at_s', :now)
    ON CONFLICT (key) DO UPDATE SET value = :now
      WHERE CAST(value AS REAL) NOT BETWEEN :now - :day AND :now
    RETURNING 1
"""
_PAUSED: Final = """
    SELECT w.trace_seq, w.run, d.body, w.is_left,
           json_object('success_source', coalesce(t.success_source, 'assumed'),
                       'confidence_source', coalesce(t.confidence_source, 'assumed'))
    FROM waiting w JOIN documents d USING (trace_seq) JOIN traces t ON t.seq = w.trace_seq
"""
_SAVE: Final = f"""
    UPDATE traces SET
      state = 'scored', score = :score, rules = :rules, scorer = :scorer, embedder = :embedder,
      scored_ms = coalesce(:took_ms, scored_ms),
      p_success = iif(:rank_key IS NULL, p_success, :p_success),
      {", ".join(f"{name} = :{name}, {name}_weight = :{name}_weight" for name in SIGNALS)},
      nearest_seq = (SELECT seq FROM traces WHERE id = :nearest),
      nearest_id = iif(EXISTS (SELECT 1 FROM traces WHERE id = :nearest), NULL, :nearest),
      nearest_similarity = :nearest_similarity,
      rank_key = coalesce(:rank_key, rank_key), bar = :bar,
      chosen = iif(:rank_key IS NULL, chosen, :chosen),
      credit = iif(:rank_key IS NULL AND gate = :gate, credit, :credit),
      gate = :gate, threshold = :threshold, decision = :decision,
      reason_code = :reason_code, reason_args = :reason_args,
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
    SELECT {document_sql("d.body")}, t.step_count, t.tool_count, t.recovery_count, t.score,
           coalesce(a.said, ''), coalesce(t.thread_id, t.id)
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


class SqliteStore(Queries):
    """The runs in one SQLite file, shared by all processes that use it. See `Store`."""

    def __init__(
        self, connection: Connection, path: Path | None = None, *, scorer: str | None = None
    ) -> None:
        super().__init__(connection)
        self._path = path or Path()
        self._file: FileIdentity | None = None
        self._scorer = scorer or f"kp-middleware {version('kp-middleware')}"

    @classmethod
    def at(cls, path: Path) -> Self:
        return cls(Database(path), path)

    def open(self) -> FileIdentity | None:
        if isinstance(self._connection, Database):
            with self._connection:
                before, self._file = self._file, self._connection.file
            if before != self._file and (message := permission_warning(self._path)):
                logger.warning("%s", message)
        return self._file

    def close(self) -> None:
        self._connection.close()

    def clone(self) -> Self:
        return self.at(self._path)

    def transaction(self) -> AbstractContextManager[None]:
        return transaction(self._connection)

    def repair(self, *, destination: str, redactor: str) -> Rescue | None:
        return rescue(self._path, registry=destination, redactor=redactor)

    def estimates(self) -> EstimateTable:
        return EstimateTable(self._connection)

    def vectors(self) -> VectorTable:
        return VectorTable(self._connection)

    def outbox(self, destination: str, agent_id: str | None) -> OutboxTable:
        return OutboxTable(self._connection, registry=destination, agent_id=agent_id)

    def history(self, seq: int, domain: str, *, let_through_at: str | None = None) -> GateQueries:
        return GateQueries(self._connection, domain, seq, let_through_at=let_through_at)

    def scored(self, seq: int) -> PastRun | None:
        return PastRuns(self._connection).run(seq)

    def copied(self) -> Self:
        """Return a store on a temporary copy, for changes that are not saved."""
        copy = sqlite3.connect("", isolation_level=None)
        with self._connection as file:
            file.backup(copy)
        return type(self)(copy, self._path)

    def past_runs(self, domain: str | None, since: str | None, embedder: str | None) -> PastRuns:
        return PastRuns(self._connection, domain=domain, since=since, embedder=embedder)

    def shared_runs(self) -> SharedRuns:
        return SharedRuns(self._connection)

    def export_cursor(
        self,
        name: str,
        *,
        choose: Callable[[ExportCandidate], bool | None],
        prepare: Callable[[Run, str, int], OutboxItem | None],
        since: str,
    ) -> ExportCursor:
        connection, history = self._connection, History(self._connection)
        return ExportCursor(
            connection, name, history=history, choose=choose, prepare=prepare, since=since
        )

    def counts(self) -> Counts:
        with closing(Database(self._path, read_only=True)) as connection:
            return Statistics(connection).counts()

    def unfinished(self) -> Backlog:
        """Return the counts of unfinished work, without counting all runs."""
        with closing(Database(self._path, read_only=True)) as connection:
            return Backlog._make(*connection.execute(BACKLOG))

    def prune(self, before: str) -> int:
        pruning = Pruning(self._connection)
        return next(pruning.batches(pruning.select(before=before)), 0)

    def forwarding_warning(self, now_s: float) -> str | None:
        if not self._value(_NONE_FORWARDED):
            return None
        is_due = self._value(_CLAIM_WARNING, {"now": str(now_s), "day": DAY_S})
        return History(self._connection).last_decisions().in_words() if is_due else None

    def record(
        self,
        run: "RecordedRun",
        *,
        seq: int | None = None,
        until: str | None = None,
        aliases: Collection[str] = (),
    ) -> int:
        with transaction(self._connection):
            if seq is not None:
                self._replace(seq, run)
            elif known := self._value("SELECT seq FROM traces WHERE id = ?", (run.trace.id,)):
                return int(known)
            else:
                seq = self._insert(run, None)
            if until is not None and run.part is not None:
                rest = run.model_dump_json(exclude={"trace"})
                self._add("waiting", trace_seq=seq, thread=run.part.thread, until=until, run=rest)
            if aliases:
                self.add_aliases(seq, aliases)
        return seq

    def add_aliases(self, seq: int, ids: Collection[str]) -> None:
        sql = "INSERT OR IGNORE INTO aliases (id, trace_seq) VALUES (?, ?)"
        self._write_each(sql, ((id_, seq) for id_ in ids))

    def _replace(self, seq: int, run: "RecordedRun") -> None:
        aliases = self._column("SELECT id FROM aliases WHERE trace_seq = ?", (seq,))
        feedback = self._named("SELECT * FROM feedback WHERE trace_seq = ?", (seq,))
        self.remove(seq)
        self._insert(run, seq)
        self.add_aliases(seq, aliases)
        for row in feedback:
            self._add("feedback", **row)

    def _insert(self, run: "RecordedRun", seq: int | None) -> int:
        trace, metadata = run.trace, run.trace.metadata
        latest = RecallTable(self._connection).latest_objectives()
        awaits = run.part is not None and run.part.awaits is not None
        state = "paused" if awaits else "recorded" if run.complete else "incomplete"
        seq = self._add(
            "traces",
            seq=seq,
            id=trace.id,
            state=state,
            started_at=to_milliseconds(metadata.created_at),
            domain=metadata.task_domain,
            objective=trace.task.objective,
            result_summary=trace.outcome.result_summary,
            confidence=trace.outcome.confidence,
            tags=json.dumps(run.tags) if run.tags else None,
            step_count=run.shape.steps,
            tool_count=run.shape.tools,
            recovery_count=run.shape.recoveries,
            redactions=json.dumps(run.redactions),
            recalled=json.dumps(run.recalled) if run.recalled else None,
            **{name: getattr(metadata, name) for name in _OF_METADATA},
            **{name: getattr(run, name) for name in _OF_RUN},
        )
        steps = enumerate(zip_longest(trace.steps, run.facts))  # ids may repeat
        rows = ((seq, number, *_step_row(step, facts)) for number, (step, facts) in steps)
        self._connection.executemany(_ADD_STEP, rows)
        self._add("documents", trace_seq=seq, body=trace.model_dump_json())
        if state == "recorded":
            self._add("asked", trace_seq=seq, said=extract_user_text(trace, latest))
        return seq

    def remove(self, seq: int) -> None:
        self._run("DELETE FROM traces WHERE seq = ?", (seq,))

    def stored_version(self, trace_id: str) -> StoredVersion | None:
        return self._one(
            StoredVersion,
            "SELECT seq, started_at, step_count, duration_ms, success,"
            " success_source = 'feedback',"
            " EXISTS (SELECT 1 FROM outbox WHERE trace_seq = seq) FROM traces WHERE id = ?",
            (trace_id,),
        )

    def last_objective(self, thread_id: str, agent_name: str | None) -> str | None:
        sql = "SELECT objective FROM traces WHERE thread_id = ? AND agent_name IS ?"
        return self._text(f"{sql} ORDER BY seq DESC LIMIT 1", (thread_id, agent_name))

    def next_recorded(self, first: int = 0, last: int = LAST_SEQ) -> int | None:
        return self._seq(f"SELECT min(seq) {_RECORDED} AND seq BETWEEN ? AND ?", (first, last))

    def last_recorded(self) -> int | None:
        return self._seq(f"SELECT max(seq) {_RECORDED}")

    def is_recorded(self, seq: int, trace_id: str | None = None) -> bool:
        sql = f"SELECT 1 {_RECORDED} AND seq = ? AND id = coalesce(?, id)"
        return self._value(sql, (seq, trace_id)) is not None

    def stored(self, seq: int) -> StoredRun:
        return StoredRun(*self._row(_STORED, (seq,)))

    def save_evaluation(
        self,
        seq: int,
        evaluation: Evaluation,
        *,
        took_ms: float | None = None,
        p_success: float | None = None,
    ) -> None:
        score = evaluation.score
        values = {
            **dict(zip(SIGNALS, score.signals, strict=True)),
            **{f"{name}_weight": getattr(score.weights, name) for name in SIGNALS},
            **evaluation.as_columns(),
            "took_ms": None if took_ms is None else round(took_ms, 3),
            "p_success": p_success,
            "scorer": self._scorer,
            "now": instant(time.time()),
            "seq": seq,
            "state": "scored" if took_ms is None else "recorded",
        }
        self._run(_SAVE, values)
        if took_ms is not None and evaluation.verdict.credit is not None:
            self._run(_SHARE_CREDIT, values)  # a later run may be ranked already

    def fail(self, seq: int, code: str, error: object) -> None:
        sql = "UPDATE traces SET state = 'failed', reason_code = ?, reason_args = ? WHERE seq = ?"
        self._run(f"{sql} AND state = 'recorded'", (code, json.dumps({"error": str(error)}), seq))

    def set_reason(self, seq: int, code: str) -> None:
        sql = "UPDATE traces SET reason_code = ?, reason_args = NULL WHERE seq = ?"
        self._run(sql, (code, seq))

    def count_dropped(self, count: int) -> None:
        self._run(
            "INSERT INTO meta (key, value) VALUES ('dropped', ?)"
            " ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + excluded.value",
            (str(count),),
        )

    def ending(self, seq: int) -> Ending:
        return self._all(Ending, f"SELECT {ENDING} FROM traces t WHERE seq = ?", (seq,))[0]

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

    def save_recall_vector(self, seq: int, embedder: str, vector: bytes) -> None:
        sql = "UPDATE asked SET embedder = ?, vector = ? WHERE trace_seq = ?"
        self._run(sql, (embedder, vector, seq))

    def paused(self, thread: str) -> list[PausedRun]:
        return self._read_paused(f"{_PAUSED} WHERE w.thread = ? ORDER BY w.trace_seq", thread)

    def overdue(self, now: str) -> list[PausedRun]:
        return self._read_paused(f"{_PAUSED} WHERE w.until <= ? ORDER BY w.until LIMIT 1", now)

    def _read_paused(self, sql: str, value: str) -> list[PausedRun]:
        from kp_middleware.runs import RecordedRun  # read-only commands do not need it

        paused = []
        for seq, rest, body, is_superseded, sources in self._run(sql, (value,)).fetchall():
            document = {**json.loads(rest), **json.loads(sources), "trace": json.loads(body)}
            try:
                run = RecordedRun.model_validate_json(json.dumps(document))
            except ValueError as error:  # raising would block other runs
                logger.warning("paused trace %d cannot be read, and is stored as failed", seq)
                self._run("DELETE FROM waiting WHERE trace_seq = ?", (seq,))
                self._run("UPDATE traces SET state = 'recorded' WHERE seq = ?", (seq,))
                self.fail(seq, "not_resumed", str(error)[:200])
            else:
                paused.append(PausedRun(seq, run, bool(is_superseded)))
        return paused

    def next_overdue(self) -> str | None:
        return self._text("SELECT min(until) FROM waiting")

    def paused_threads(self) -> frozenset[str]:
        return frozenset(self._column("SELECT DISTINCT thread FROM waiting"))

    def mark_superseded(self, seq: int) -> None:
        self._run("UPDATE waiting SET is_left = 1 WHERE trace_seq = ?", (seq,))

    def outcome(self, trace_id: str) -> StoredOutcome | None:
        row = self._row(
            f"SELECT seq, state, {ENDING} FROM traces t WHERE id = :id"
            " OR seq = (SELECT trace_seq FROM aliases WHERE id = :id)",
            {"id": trace_id},
        )
        if row is None:
            return None
        seq, state, success, *rest = row
        last = "SELECT success, confidence FROM feedback WHERE trace_seq = ? ORDER BY seq DESC"
        return StoredOutcome(seq, state, Ending(bool(success), *rest), self._row(last, (seq,)))

    def add_feedback(
        self,
        before: StoredOutcome,
        after: Ending,
        *,
        given_at: str,
        given: tuple[bool | None, float | None],
    ) -> None:
        row = dict(zip(("success", "confidence"), given, strict=True))
        earlier = {f"{name}_before": getattr(before.ending, name) for name in row}
        self._add("feedback", trace_seq=before.seq, given_at=given_at, **row, **earlier)
        self.save_ending(before.seq, after)


def _step_row(step: "Step", facts: "StepFacts | None") -> tuple[Any, ...]:
    started_s, *rest = facts or (None,) * 8  # a submitted document has none
    return (
        step.type,
        step.tool and step.tool.name,
        step.tool and step.tool.mcp_server,
        step.content,
        None if step.input is None else json.dumps(step.input, ensure_ascii=False, default=str),
        step.output_summary,
        step.latency_ms,
        None if started_s is None else instant(started_s),
        *rest,
    )
