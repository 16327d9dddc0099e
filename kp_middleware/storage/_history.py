"""The door for reading: the runs of one file as records."""

import heapq
import json
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, Self

from kp_middleware.core.formula import Weights
from kp_middleware.core.replay import ScoredRun
from kp_middleware.database import Connection, connect
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.storage import _maintenance, _outbox_admin, _outbox_table, _overview, _statistics
from kp_middleware.storage._estimates import read_estimate
from kp_middleware.storage._last_decisions import LastDecisions, read_last_decisions
from kp_middleware.storage._listing import COUNTED, Choices, Filters, Listing, RunsPage
from kp_middleware.storage._recall import RecallTable
from kp_middleware.storage._records import (
    AdjacentTraces,
    DecidedRun,
    Embedding,
    OutboxItemSummary,
    Run,
    RunSummary,
    SimilarRun,
    marked,
    rescored,
    run_of,
)
from kp_middleware.storage._review import (
    RECENT,
    ReviewItem,
    SuccessRecord,
    Unjudged,
    asked_first,
    read_success_record,
    read_unjudged,
    review_item,
)
from kp_middleware.storage._similar import similarities
from kp_middleware.storage._statistics import Highlights, highlights
from kp_middleware.storage._tail import Tail
from kp_middleware.storage._traces import read_scored_runs

_ID_PREFIX: Final = "kp:trace:"
_CANDIDATES: Final = 5
_BINS: Final = 20
_ALL: Final = Filters()
_NAMES: Final = {
    "@last": "SELECT max(seq) FROM traces",
    "@best": "SELECT coalesce((SELECT seq FROM traces WHERE score IS NOT NULL"
    " ORDER BY score DESC, seq DESC LIMIT 1), max(seq)) FROM traces",
}


def _nobody(_done: int, _total: int) -> None:
    """Ignore the progress."""


class History:
    """The stored runs of one file. Use it as a context manager, or close it.

    Args:
        connection: The connection to the file; `open` makes one.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listing = Listing(connection, self.find)

    @classmethod
    def open(cls, path: str | Path, *, wait_s: float | None = None) -> Self:
        """Open an existing file to read it; wait so long for a lock, or as usual.

        Raises:
            DatabaseError: If it cannot be opened, is of another program or of another version.
        """
        return cls(connect(path, read_only=True, wait_s=wait_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def count(self) -> int:
        """Count the stored runs."""
        return int(self._one("SELECT count(*) FROM traces"))

    def find(self, name: str) -> int:
        """Return the ``seq`` of the run with this id prefix, with or without ``kp:trace:``.

        The ids of parts that were joined to a run also lead to it. ``@last`` is the newest run and
        ``@best`` the one with the highest score.

        Raises:
            TraceNotFoundError: If no run matches, or more than one.
        """
        if query := _NAMES.get(name):
            seq = self._one(query)
            if seq is None:
                raise TraceNotFoundError(f"there is no trace yet for {name}: record a run")
            return int(seq)
        if not name:
            raise TraceNotFoundError("type the beginning of an id, @last or @best")
        found = self._beginning(name) or self._beginning(name.lower())
        if not found:
            remedy = "; valid names: @last, @best" if name.startswith("@") else ""
            raise TraceNotFoundError(f"no trace matches {name}{remedy}")
        if len(found) > 1 and _whole(name) not in (id_ for _, id_ in found):
            raise TraceNotFoundError(f"{name} is ambiguous: {_candidates(found)}")
        return found[0][0]  # a complete id may be the prefix of another

    def run(self, seq: int) -> Run:
        """Return one run with its steps, outbox item and feedback."""
        (row,) = self._rows(
            "SELECT t.*, n.id AS nearest_id, n.objective AS nearest_objective"
            " FROM traces t LEFT JOIN traces n ON n.seq = t.nearest_seq WHERE t.seq = ?",
            (seq,),
        )
        steps = self._rows("SELECT * FROM steps WHERE trace_seq = ? ORDER BY step_id", (seq,))
        outbox = self._rows("SELECT * FROM outbox WHERE trace_seq = ?", (seq,))
        feedback = self._rows("SELECT * FROM feedback WHERE trace_seq = ? ORDER BY seq", (seq,))
        estimate = read_estimate(self._connection, seq)
        return run_of(row, steps, outbox[0] if outbox else None, feedback, estimate)

    def document(self, seq: int) -> str | None:
        """Return the recorded ReasoningTrace as JSON; None if it was lost in a damaged file."""
        body = self._one(
            f"SELECT {marked('d.body')} FROM documents d JOIN traces t ON t.seq = d.trace_seq"  # noqa: S608
            " WHERE d.trace_seq = ?",
            seq,
        )
        return None if body is None else str(body)

    def adjacent(self, seq: int) -> AdjacentTraces:
        """Return the ids of the runs recorded just before and just after one."""
        found = self._connection.execute(
            "SELECT (SELECT id FROM traces WHERE seq < :seq ORDER BY seq DESC LIMIT 1),"
            " (SELECT id FROM traces WHERE seq > :seq ORDER BY seq LIMIT 1)",
            {"seq": seq},
        )
        return AdjacentTraces._make(found.fetchone())

    def runs(
        self, filters: Filters = _ALL, *, limit: int, near: bool = False, skip: int = 0
    ) -> list[RunSummary]:
        """Return the runs that match: newest first, or with a ``text`` the best match first.

        Args:
            filters: Which runs.
            limit: How many at most.
            near: Return those nearest to their threshold first, on both sides.
            skip: Omit so many of the best matches.

        Raises:
            TraceNotFoundError: If ``after`` names no run, or several.
        """
        if near:
            return self._listing.nearest(filters, limit)
        if filters.text is not None:
            return self._listing.found(filters, limit, skip)
        return self._listing.newest(filters, limit)

    def page(
        self,
        filters: Filters = _ALL,
        *,
        limit: int,
        sort: str = "started",
        descending: bool = True,
        after: str | None = None,
    ) -> RunsPage:
        """Return the matching runs sorted by one of `SORTS`; ``after`` continues a page."""
        return self._listing.page(filters, limit, sort, descending=descending, after=after)

    def choices(self) -> Choices:
        """Return the values to filter runs by."""
        return self._listing.choices()

    def count_runs(self, filters: Filters, *, most: int = COUNTED) -> int:
        """Count the matching runs; return ``most + 1`` if there are more than ``most``."""
        return self._listing.count(filters, most)

    def seqs(self, filters: Filters) -> list[int]:
        """Return the ``seq`` of each matching run, the oldest first."""
        return self._listing.seqs(filters)

    def runs_at(self, seqs: Collection[int]) -> list[RunSummary]:
        """Return these runs, the oldest first."""
        return self._listing.at([*seqs])

    def embeddings(self, seqs: Collection[int]) -> dict[int, Embedding]:
        """Return the newest embedding of each of these runs that has one."""
        return self._listing.embeddings([*seqs])

    def to_review(self, filters: Filters = _ALL, *, limit: int) -> list[ReviewItem]:
        """Return the runs to ask a person about, the first one first.

        Only recent ones that nobody has judged: those that the gate lets leave, then the doubtful.
        """
        chosen = asked_first(self._listing.unjudged(filters, RECENT), limit)
        return [review_item(self.run(one.seq), is_forwarded=one.is_forwarded) for one in chosen]

    def unjudged(self) -> Unjudged:
        """Count the last runs that a gate let through, and those of them that nobody judged."""
        return read_unjudged(self._connection)

    def success_record(self) -> SuccessRecord:
        """Count the known endings, of all scored runs and of those that were forwarded."""
        return read_success_record(self._connection)

    def tail(self, *, first: int = 0) -> Tail:
        """Return a tail of the file that begins with so many of the runs that have ended."""
        return Tail(self._connection, self._listing, first)

    def similar(
        self, seq: int, *, limit: int, reach: Callable[[int, int], None] = _nobody
    ) -> list[SimilarRun] | None:
        """Return the runs most similar to one; None if it has no embedding.

        Args:
            seq: The ``seq`` of the run.
            limit: How many at most.
            reach: Is told now and then how many runs of how many are compared.
        """
        own = self._connection.execute(
            "SELECT embedder, vector FROM vectors WHERE trace_seq = ? ORDER BY seq DESC LIMIT 1",
            (seq,),
        ).fetchone()
        if own is None:
            return None
        total = self._one("SELECT count(*) FROM vectors WHERE trace_seq IS NOT NULL")
        others = similarities(
            self._connection, seq, own[0], own[1], lambda done: reach(done, int(total))
        )
        found = heapq.nlargest(limit, others)
        runs = {run.seq: run for run in self.runs_at([seq for _, seq in found])}
        return [SimilarRun(similarity, runs[seq]) for similarity, seq in found]

    def asked(self) -> RecallTable:
        """Return what people said in the runs, to find those like a task."""
        return RecallTable(self._connection)

    def has_owners(self) -> bool:
        """Return whether any run has an owner."""
        return bool(self._one("SELECT EXISTS (SELECT 1 FROM traces WHERE owner IS NOT NULL)"))

    def best(self, limit: int, *, first: int = 0) -> list[int]:
        """Return the ``seq`` of the runs with the highest scores, from the run ``first`` on."""
        return self._seqs(
            "SELECT seq FROM traces WHERE score IS NOT NULL AND seq >= ?"
            " ORDER BY score DESC, seq DESC LIMIT ?",
            (first, limit),
        )

    def samples(self, *, newest: int, of_each_score: int, first: int = 0) -> set[int]:
        """Return the ``seq`` of the newest runs, and of the best in each twentieth of scores."""
        found = self._seqs(
            "SELECT seq FROM traces WHERE seq >= ? ORDER BY seq DESC LIMIT ?", (first, newest)
        )
        for place in range(_BINS):
            top = 2 if place == _BINS - 1 else (place + 1) / _BINS
            found += self._seqs(
                "SELECT seq FROM traces WHERE score >= ? AND score < ? AND seq >= ?"
                " ORDER BY score DESC LIMIT ?",
                (place / _BINS, top, first, of_each_score),
            )
        return {*found}

    def first_since(self, since: str) -> int:
        """Return the lowest ``seq`` of the runs that started at this instant or later."""
        return _overview.first_since(self._connection, since)

    def overview(self, *, since: str | None = None) -> _overview.Overview:
        """Return the numbers of the overview, from one snapshot; ``since`` of None means all."""
        return _overview.read_overview(self._connection, since=since)

    def scores(self, *, since: str | None = None) -> _overview.ScoreSlices:
        """Return the distribution of scores, relative to the latest threshold."""
        return _overview.read_score_slices(self._connection, since=since)

    def points(
        self, *, first: int = 0, around: int | None = None
    ) -> tuple[_overview.MapPoint, ...]:
        """Return runs with comparable vectors, as `read_points` does."""
        return _overview.read_points(self._connection, first=first, around=around)

    def domains(self) -> tuple[str, ...]:
        """Return the names of the domains; fast even for a large file."""
        return _overview.read_domains(self._connection)

    def last_decisions(self) -> LastDecisions:
        """Return the gate's decisions on the last 100 scored runs."""
        return read_last_decisions(self._connection)

    def counts(self) -> _statistics.Counts:
        """Return the numbers of runs by state."""
        return _statistics.count_all(self._connection)

    def without_tokens(self) -> tuple[int, int]:
        """Count the runs that used a model: those without token counts, and all of them."""
        return _statistics.count_without_tokens(self._connection)

    def totals(self) -> _statistics.Totals:
        """Return the statistics in total, by domain, score, state and gate, and the tools used."""
        return _statistics.read_totals(self._connection)

    def groups(self, by: str) -> list[_statistics.GroupCounts]:
        """Return the statistics by ``domain``, ``model``, ``day`` or ``week``."""
        return _statistics.read_groups(self._connection, by)

    def states(self) -> list[_statistics.StateCount]:
        """Return the numbers of runs by state, as a list names them, the most first."""
        return _statistics.read_states(self._connection)

    def gates(self) -> list[_statistics.GateCounts]:
        """Return the numbers of forwarded and withheld runs by gate, the latest gate first."""
        return _statistics.read_gates(self._connection)

    def tools(self, *, domain: str | None = None) -> list[_statistics.ToolUse]:
        """Return the tools with the runs that used them, the most called first."""
        return _statistics.read_tools(self._connection, domain=domain, counts_runs=True)

    def scored_runs(self) -> list[ScoredRun]:
        """Return all scored runs in the order of recording, to replay the gate."""
        return read_scored_runs(self._connection)

    def decided_runs(
        self, *, domain: str | None = None, since: str | None = None, weights: Weights | None = None
    ) -> list[DecidedRun]:
        """Return the scored runs, to hold against other thresholds.

        Args:
            domain: Only runs of this domain; None means any.
            since: Only runs that started at this instant or later; None means all.
            weights: The weights to compute the scores with; None takes the stored scores.
        """
        scored = "seq, domain, score, visibility = 'private', coalesce(decision = 'forward', 0)"
        parts = ", complexity, novelty, tool_diversity, outcome_confidence, rules"
        rows = self._connection.execute(
            f"""
            SELECT {scored}{parts if weights else ""}
            FROM traces {"NOT INDEXED" if weights else "INDEXED BY traces_counted"}
            WHERE score IS NOT NULL AND (:domain IS NULL OR domain = :domain)
              AND (:since IS NULL OR started_at >= :since)
            """,  # noqa: S608 - ours
            {"domain": domain, "since": since},
        )
        if weights is None:
            return [DecidedRun._make((*row[:3], bool(row[3]), bool(row[4]))) for row in rows]
        return [rescored(row, weights) for row in rows]

    def highlights(self, frameworks: Collection[str], *, limit: int) -> Highlights:
        """Return the most novel, the best and the hardest runs of these frameworks."""
        return highlights(self._connection, frameworks, limit=limit)

    def threshold(self) -> float | None:
        """Return the fixed threshold of the last decision; None if it is relative or missing."""
        return _overview.last_threshold(self._connection)

    def outbox(self, *, limit: int, states: Collection[str] = ()) -> list[OutboxItemSummary]:
        """Return the newest outbox items without their bodies; no states means any state."""
        rows = self._connection.execute(
            """
            SELECT t.id, o.state, o.attempts, length(CAST(o.body AS BLOB)), o.redactions,
                   o.next_attempt_at, o.claimed_until, o.last_error, o.sent_at, o.remote_id,
                   o.registry, o.redactor, o.reason, t.objective
            FROM outbox o JOIN traces t ON t.seq = o.trace_seq
            WHERE :states = '[]' OR o.state IN (SELECT value FROM json_each(:states))
            ORDER BY o.trace_seq DESC LIMIT :limit
            """,
            {"states": json.dumps([*states]), "limit": limit},
        )
        items = map(OutboxItemSummary._make, rows)
        return [item._replace(redactions=json.loads(str(item.redactions))) for item in items]

    def count_outbox(self, states: Collection[str] = ()) -> int:
        """Count the outbox items in these states; no states means any state."""
        return _outbox_admin.OutboxAdmin(self._connection).count(states=states)

    def outbox_entry(self, seq: int) -> _outbox_admin.Entry:
        """Return the outbox item of a run with its body.

        Raises:
            TraceNotFoundError: If it is not in the outbox.
        """
        return _outbox_admin.OutboxAdmin(self._connection).entry(seq)

    def outbox_body(self, seq: int) -> str | None:
        """Return what was or would be sent of a run, exactly; None if nothing would."""
        return _outbox_admin.OutboxAdmin(self._connection).body(seq)

    def backlog(self) -> list[_outbox_table.Queue]:
        """Return what waits to be sent, by registry."""
        return [*_outbox_table.read_queues(self._connection)]

    def file_status(self, path: Path) -> _maintenance.FileStatus:
        """Return the status of the file."""
        return _maintenance.file_status(self._connection, path)

    def check_soundness(self, *, limit_s: float) -> _maintenance.Soundness:
        """Check the integrity of the file's pages and rows."""
        return _maintenance.check_soundness(self._connection, limit_s=limit_s)  # type: ignore[arg-type]

    def back_up(self, into: Path, *, tell: Callable[[int, int], None]) -> int:
        """Write a consistent copy of the file, check it, and return its number of runs."""
        return _maintenance.back_up(self._connection, into, tell=tell)  # type: ignore[arg-type]

    def _beginning(self, name: str) -> list[tuple[int, str]]:
        """Return up to six traces whose id or alias starts with a prefix, in order of that id."""
        start = _whole(name)
        return self._connection.execute(
            """
            SELECT seq, min(id) AS id FROM (
              SELECT seq, id FROM traces WHERE id >= :start AND id < :end
              UNION ALL SELECT trace_seq, id FROM aliases WHERE id >= :start AND id < :end
            ) GROUP BY seq ORDER BY id LIMIT :most
            """,
            {"start": start, "end": start + chr(sys.maxunicode), "most": _CANDIDATES + 1},
        ).fetchall()

    def _one(self, sql: str, *values: object) -> Any:
        row = self._connection.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def _seqs(self, sql: str, values: tuple[Any, ...]) -> list[int]:
        return [seq for (seq,) in self._connection.execute(sql, values)]

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        cursor = self._connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def _whole(name: str) -> str:
    return _ID_PREFIX + name.removeprefix(_ID_PREFIX)


def _candidates(found: Sequence[tuple[int, str]]) -> str:
    ids = [id_.removeprefix(_ID_PREFIX) for _, id_ in found[:_CANDIDATES]]
    more = " …" if len(found) > _CANDIDATES else ""
    return f"give more of the id; there are {', '.join(ids)}{more}"
