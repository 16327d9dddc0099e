"""Read access: the runs of one file as records, and users' SQL queries."""

import heapq
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from kp_middleware.database import DISTINCT, connect, from_row, prefix_range
from kp_middleware.errors import DatabaseError
from kp_middleware.reasons import outbox_reason_text, reason_text
from kp_middleware.storage._export_cursor import EXPORT, CursorState, ExporterStatus
from kp_middleware.storage._learning import EstimateTable, RecallTable, ScoredHistory
from kp_middleware.storage._listing import FROM, Filters, whole_id
from kp_middleware.storage._maintenance import Maintenance
from kp_middleware.storage._outbox import Entry, OutboxAdmin, Queue, due_s
from kp_middleware.storage._overview import RECENT, UNJUDGED, Overviews
from kp_middleware.storage._records import (
    FeedbackRecord,
    OutboxItemSummary,
    OutboxRecord,
    Run,
    RunDocument,
    RunSummary,
    StepRecord,
    document_sql,
    scoring_of,
)
from kp_middleware.storage._shared_runs import SharedBacklog, SharedRuns

_ALL: Final = Filters()
_OF_STATES: Final = ":states = '[]' OR o.state IN (SELECT value FROM json_each(:states))"


_MAX_LINES: Final = 10
_BEGINNING: Final = 4
_LINE: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A run to review, with what a reviewer needs to know.

    Attributes:
        trace_id: The id of its trace, for `KnowledgePulse.feedback`.
        why: ``forwarded``: it passed the gate; ``uncertain``: its outcome is in doubt.
        is_forwarded: True if it was sent, waits to be, or would be sent with an API key.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        domain: Its domain.
        objective: What was asked.
        way: Its steps, in at most ten lines.
        result: Its result; empty if there is none.
        score: Its score, from 0 to 1.
        threshold: The score that its gate required, 0 to 1; None if it required none.
        p_success: The estimated probability of success; None without an estimate.
        p_reasons: The main reasons for it: a feature, its distance from the usual in standard
            deviations, and its effect on the log-odds.
    """

    trace_id: str
    why: Literal["forwarded", "uncertain"]
    is_forwarded: bool
    started_at: str
    domain: str
    objective: str
    way: tuple[str, ...]
    result: str
    score: float | None
    threshold: float | None
    p_success: float | None = None
    p_reasons: tuple[tuple[str, float, float], ...] = ()


class History(Overviews, Maintenance, ScoredHistory):
    """The stored runs of one file. Use it as a context manager, or close it."""

    @classmethod
    def open(cls, path: str | Path, *, wait_s: float | None = None) -> Self:
        """Open an existing file for reading; None waits for a lock as usual."""
        return cls(connect(path, read_only=True, wait_s=wait_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def run(self, seq: int) -> Run:
        (row,) = self._named(
            "SELECT t.*, coalesce(n.id, t.nearest_id) AS nearest_id,"
            " n.objective AS nearest_objective, t.scored_ms AS took_ms"
            " FROM traces t LEFT JOIN traces n ON n.seq = t.nearest_seq WHERE t.seq = ?",
            (seq,),
        )
        steps = "SELECT *, step_id AS number FROM steps WHERE trace_seq = ? ORDER BY step_id"
        queued = self._named("SELECT * FROM outbox WHERE trace_seq = ?", (seq,))
        given = self._named("SELECT * FROM feedback WHERE trace_seq = ? ORDER BY seq", (seq,))
        items = (from_row(OutboxRecord, i, reason=outbox_reason_text(i["reason"])) for i in queued)
        return from_row(
            Run,
            row,
            reason=reason_text(row["reason_code"], row["reason_args"]),
            scoring=None if row["score"] is None else scoring_of(row),
            steps=tuple(from_row(StepRecord, step) for step in self._named(steps, (seq,))),
            outbox=next(items, None),
            feedback=tuple(from_row(FeedbackRecord, one) for one in given),
            estimate=EstimateTable(self._connection).for_run(seq),
        )

    def document(self, seq: int) -> str | None:
        """Return the recorded ReasoningTrace as JSON; None if it was lost in a damaged file."""
        return next((found.document for found in self.documents([seq])), None)

    def documents(self, seqs: Sequence[int]) -> Iterator[RunDocument]:
        """Yield the documents of these runs in this order, without removed runs."""
        sql = f"""
            SELECT t.seq, {document_sql("d.body")}, t.success,
                   coalesce(t.success_source, 'assumed'), t.score, t.model, t.redactions
            FROM json_each(?) j CROSS JOIN traces t ON t.seq = j.value
            LEFT JOIN documents d ON d.trace_seq = t.seq ORDER BY j.key
        """
        return self._each(RunDocument, sql, (json.dumps(seqs),))

    def adjacent(self, seq: int) -> tuple[str | None, str | None]:
        """Return the ids of the runs recorded just before and after a run."""
        earlier, later = (
            self._text(f"SELECT id FROM traces WHERE seq {way} LIMIT 1", (seq,))
            for way in ("< ? ORDER BY seq DESC", "> ? ORDER BY seq")
        )
        return earlier, later

    def to_review(self, filters: Filters = _ALL, *, limit: int) -> list[ReviewItem]:
        """Return the runs to review: forwarded ones, the newest first, then doubtful ones."""
        where, values = self._where(filters)
        sql = f"""
            SELECT t.seq, t.decision = 'forward' AND t.visibility <> 'private',
                   abs(coalesce(t.p_success, 0.5) - 0.5)
            {FROM} WHERE t.state = 'scored' AND {UNJUDGED} AND {where}
            ORDER BY t.seq DESC LIMIT {RECENT}
        """
        found = self._run(sql, values).fetchall()
        doubtful = [row for row in found if not row[1]]
        going = [row for row in found if row[1]]
        if len(going) >= limit:
            going = going[: max((limit + 1) // 2, limit - len(doubtful))]
        chosen = [*going, *sorted(doubtful, key=lambda row: row[2])[: limit - len(going)]]
        return [_review_item(self.run(seq), is_forwarded=bool(goes)) for seq, goes, _ in chosen]

    def similar(
        self, seq: int, *, limit: int, reach: Callable[[int, int], None] = lambda *_: None
    ) -> list[tuple[float, RunSummary]] | None:
        """Return the runs most similar to a run, with the cosines; None if it has no embedding.

        ``reach`` is called with the number of runs compared so far, and of all.
        """
        import numpy as np

        own = self.embeddings([seq]).get(seq)
        if own is None:
            return None
        others = "SELECT trace_seq, vector FROM vectors WHERE trace_seq <> ? AND embedder = ?"
        values = seq, own.embedder, len(own.vector)
        rows = iter(self._run(f"{others} AND length(vector) = ? ORDER BY seq", values))
        total = self._value("SELECT count(*) FROM vectors WHERE trace_seq IS NOT NULL")
        wanted, found, done = np.frombuffer(own.vector, "<f4"), list[tuple[float, int]](), 0
        while batch := [*islice(rows, 1024)]:  # vectors of 384 numbers: 1.5 MB
            seqs, vectors = zip(*batch, strict=True)
            matrix = np.frombuffer(b"".join(vectors), "<f4").reshape(len(batch), -1)
            similarities = np.clip(matrix @ wanted, -1.0, 1.0).tolist()
            found = heapq.nlargest(limit, [*found, *zip(similarities, seqs, strict=True)])
            reach(done := done + len(batch), total)
        runs = {run.seq: run for run in self.runs_at([seq for _, seq in found])}
        return [(similarity, runs[seq]) for similarity, seq in found]

    def exporters(self) -> list[ExporterStatus]:
        """Return the status of each exporter besides the outbox, by name."""
        sql = "SELECT key, value FROM meta WHERE key GLOB ? ORDER BY key"
        return [
            ExporterStatus(key.removeprefix(EXPORT), *CursorState(*json.loads(value))[-3:])
            for key, value in self._run(sql, (f"{EXPORT}*",))
        ]

    def recall_table(self) -> RecallTable:
        return RecallTable(self._connection)

    def has_owners(self) -> bool:
        return bool(self._value("SELECT EXISTS (SELECT 1 FROM traces WHERE owner IS NOT NULL)"))

    def best(self, limit: int, *, first: int = 0) -> list[int]:
        """Return the ``seq`` of the best-scored runs, from the run ``first`` on."""
        return self._column(
            "SELECT seq FROM traces WHERE score IS NOT NULL AND seq >= ?"
            " ORDER BY score DESC, seq DESC LIMIT ?",
            (first, limit),
        )

    def promising(self, seqs: Sequence[int], per_domain: int) -> list[int]:
        """Return the runs of each domain that a share ranks first, known successes before all."""
        sql = """
            SELECT seq FROM (
              SELECT t.seq, row_number() OVER (PARTITION BY t.domain ORDER BY
                coalesce(t.success_source, 'assumed') = 'assumed', t.rank_key DESC) AS place
              FROM json_each(?) j JOIN traces t ON t.seq = j.value
              WHERE t.score IS NOT NULL AND t.success
            ) WHERE place <= ?
        """
        return self._column(sql, (json.dumps(seqs), per_domain))

    def outbox(self, *, limit: int, states: Collection[str] = ()) -> list[OutboxItemSummary]:
        """Return the newest outbox items without their bodies; no states means any state."""
        items = self._all(
            OutboxItemSummary,
            f"""
            SELECT t.id, o.state, o.attempts, length(CAST(o.body AS BLOB)), o.redactions,
                   o.next_attempt_at, o.claimed_until, o.last_error, o.sent_at, o.remote_id,
                   o.registry, o.redactor, o.reason, t.objective
            FROM outbox o JOIN traces t ON t.seq = o.trace_seq
            WHERE {_OF_STATES}
            ORDER BY o.trace_seq DESC LIMIT :limit
            """,
            {"states": json.dumps([*states]), "limit": limit},
        )
        return [item._replace(reason=outbox_reason_text(item.reason)) for item in items]

    def count_outbox(self, states: Collection[str] = ()) -> int:
        """Count the outbox items in these states; no states means any state."""
        sql = f"SELECT count(*) FROM outbox o WHERE {_OF_STATES}"
        return int(self._value(sql, {"states": json.dumps([*states])}))

    def outbox_entry(self, seq: int) -> Entry:
        return OutboxAdmin(self._connection).entry(seq)

    def outbox_body(self, seq: int) -> str | None:
        """Return the exact body that was or would be sent; None without one."""
        return self._text("SELECT body FROM outbox WHERE trace_seq = ?", (seq,))

    def shared_backlog(self) -> SharedBacklog:
        return SharedRuns(self._connection).backlog()

    def backlog(self) -> list[Queue]:
        """Return what waits for each registry; runs pulled from a shared log name none."""
        rows = self._run(
            """
            SELECT registry, count(*), min(coalesce(
                     CASE state WHEN 'sending' THEN claimed_until ELSE next_attempt_at END, '')),
                   max(claimed_until)
            FROM outbox WHERE state IN ('pending', 'sending') AND registry <> ''
            GROUP BY 1 ORDER BY 1
            """
        )
        return [
            Queue(registry, waiting, due_s(due_at), claimed_until)
            for registry, waiting, due_at, claimed_until in rows
        ]


def _review_item(run: Run, *, is_forwarded: bool) -> ReviewItem:
    steps, result = run.steps, run.result_summary
    if len(steps) > 1 and steps[-1].tool is None and steps[-1].content == result:
        steps = steps[:-1]  # it only repeats the result
    return ReviewItem(
        trace_id=run.id,
        why="forwarded" if is_forwarded else "uncertain",
        is_forwarded=is_forwarded,
        started_at=run.started_at,
        domain=run.domain,
        objective=run.objective,
        way=_step_lines(steps),
        result=result or "",
        score=run.score,
        threshold=None if run.scoring is None else run.scoring.threshold,
        p_success=None if run.estimate is None else run.estimate.p,
        p_reasons=() if run.estimate is None else run.estimate.reasons,
    )


def _step_lines(steps: Sequence[StepRecord]) -> tuple[str, ...]:
    """Return a run's steps in at most ten lines: some from its beginning, more of its end."""
    lines: list[str] = []
    called: dict[str, int] = {}
    for step in steps:
        if step.type == "tool_call":
            called[step.tool or ""] = len(lines)
            lines.append(f"{step.tool}({_arguments(step.input)})")
        elif step.tool in called and step.type == "observation":
            at = called.pop(step.tool)
            lines[at] = f"{lines[at]} → {step.output_summary or ''}"
        else:
            text = step.content or step.output_summary or ""
            mark = "! " if step.type == "error_recovery" else ""
            lines.append(f"{mark}{f'{step.tool}: ' if step.tool else ''}{text}")
    cut = [_cut(" ".join(line.split()), _LINE - 1) for line in lines]
    if len(cut) <= _MAX_LINES:
        return (*cut,)
    end = _MAX_LINES - _BEGINNING - 1
    return (*cut[:_BEGINNING], f"… {len(cut) - _BEGINNING - end} more …", *cut[-end:])


def _arguments(call_input: object) -> str:
    items = call_input.items() if isinstance(call_input, dict) else ()
    arguments = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in items)
    return _cut(", ".join(arguments), _LINE // 2)


def _cut(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[:most]}…"


_OFTEN: Final = 10_000  # virtual instructions: about a millisecond
_TABLES: Final = 'kp-middleware sql "select name, sql from sqlite_master" lists the tables'
_LESS: Final = "query less, or open the file with sqlite3"
_WRITE: Final = "to change it, open it with sqlite3 while no program records"
_USE: Final = "pass one statement without parameters"
_SUBJECT_PRAGMAS: Final = ("table_", "index_", "foreign_key_", "quick_", "integrity_")
"""The beginnings of pragmas whose argument names a subject instead of changing a setting."""


class QueryResult(NamedTuple):
    columns: Sequence[str]  # made unique
    rows: Iterator[dict[str, Any]]  # read lazily


class FreeQuery:
    """A read-only connection for arbitrary SQL, without access to any other file."""

    def __init__(
        self, path: Path, *, limit_s: float = 5.0, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._limit_s = limit_s
        self._timer = timer
        self._connection = connect(path, read_only=True)
        self._connection.execute("PRAGMA query_only = ON")
        # A cast of bytes to text need not be UTF-8.
        self._connection.text_factory = lambda text: text.decode(errors="replace")
        self._connection.set_authorizer(_authorize)
        self._connection.set_progress_handler(self._is_over, _OFTEN)
        self._until = 0.0
        self._stopped = False

    def close(self) -> None:
        self._connection.close()

    def ask(self, sql: str) -> QueryResult:
        self._until, self._stopped = self._timer() + self._limit_s, False
        with self._readable_errors():
            cursor = self._connection.execute(sql)
        columns = list[str]()
        for name, *_ in cursor.description or ():
            others = (f"{name}_{number}" for number in count(2))
            columns.append(next(one for one in chain([name], others) if one not in columns))
        return QueryResult(columns, self._rows(cursor, columns))

    def _rows(self, cursor: sqlite3.Cursor, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        with self._readable_errors():
            for row in cursor:
                asked_at = self._timer()
                yield dict(zip(columns, row, strict=True))
                self._until += self._timer() - asked_at

    def _is_over(self) -> bool:
        self._stopped = self._timer() > self._until
        return self._stopped

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_INTERRUPT and not self._stopped:
                raise KeyboardInterrupt from error  # SQLite swallowed it inside `_is_over`
            misused = isinstance(error, sqlite3.ProgrammingError | sqlite3.Warning)
            problem = str(error).rstrip("."), _USE if misused else _TABLES
            if self._stopped:
                problem = f"the query takes longer than {self._limit_s:g} s", _LESS
            elif code in {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}:
                problem = "only read-only queries are allowed", _WRITE
            raise DatabaseError(self._path, *problem) from error


def _authorize(action: int, what: str | None, setting: str | None, *_: object) -> int:
    """Deny other files and settings; SQLite itself enforces read-only access."""
    is_query = setting is None or (what or "").startswith(_SUBJECT_PRAGMAS)
    if action == sqlite3.SQLITE_ATTACH or (action == sqlite3.SQLITE_PRAGMA and not is_query):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


_COMPLETION_LIMIT_S: Final = 0.2
_OFTEN_ENOUGH: Final = 1_000  # virtual instructions: some microseconds


_IDS: Final = """
    SELECT id, objective FROM traces WHERE seq IN (
      SELECT seq FROM traces WHERE id >= :start AND id < :end ORDER BY seq DESC LIMIT :limit
    ) ORDER BY seq DESC
"""


def trace_ids(path: Path, start: str) -> list[tuple[str, str]]:
    """Return ids and objectives of the newest traces with a prefix; none if it takes too long."""
    return _completions(path, _IDS, whole_id(start))


def domain_names(path: Path, start: str) -> list[str]:
    return _names(path, start, table="traces", column="domain")


def tool_names(path: Path, start: str) -> list[str]:
    return _names(path, start, table="steps", column="tool")


def _names(path: Path, start: str, **where: str) -> list[str]:
    return [name for (name,) in _completions(path, DISTINCT.format(**where), start)]


def _completions(path: Path, sql: str, start: str) -> list[Any]:
    until = time.monotonic() + _COMPLETION_LIMIT_S
    with suppress(sqlite3.Error, OSError, RuntimeError):
        uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_COMPLETION_LIMIT_S)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _OFTEN_ENOUGH)
            return connection.execute(sql, prefix_range(start, limit=50)).fetchall()
    return []
