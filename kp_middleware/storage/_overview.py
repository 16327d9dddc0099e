"""Queries for the overview of all runs."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._last_decisions import LastDecisions, read_last_decisions
from kp_middleware.storage._records import Row
from kp_middleware.storage._score_slices import ScoreSlices, read_score_slices

_MOST: Final = 10


class ToolUse(NamedTuple):
    """One tool with its calls, failures and mean latency."""

    tool: str
    calls: int
    failures: int
    mean_ms: float | None


class ToolTotals(NamedTuple):
    """The totals of all tools: tools, calls and failures."""

    tools: int = 0
    calls: int = 0
    failures: int = 0


def read_used_tools(connection: Connection, first: int) -> tuple[tuple[ToolUse, ...], ToolTotals]:
    """Read the ten most used tools and the totals of all, from the trace ``first`` on.

    Grouped in the order of the index of the steps, which avoids sorting.
    """
    rows = connection.execute(
        """
        WITH used AS (
          SELECT tool, type, count(*) AS times, sum(latency_ms) AS took_ms,
                 count(latency_ms) AS timed
          FROM steps WHERE tool IS NOT NULL AND trace_seq >= ? GROUP BY tool, type)
        SELECT tool, sum(iif(type = 'tool_call', times, 0)) AS calls,
               sum(iif(type = 'error_recovery', times, 0)), sum(took_ms) / sum(timed)
        FROM used GROUP BY tool ORDER BY calls DESC, tool
        """,
        (first,),
    )
    uses = tuple(map(ToolUse._make, rows))
    calls, failures = sum(use.calls for use in uses), sum(use.failures for use in uses)
    return uses[:_MOST], ToolTotals(len(uses), calls, failures)


_WEEKS: Final = "-83 days"


class Removal(NamedTuple):
    """The number of redactions of one kind, in the week that begins on this Monday."""

    week: str
    kind: str
    times: int


def read_removals(connection: Connection, first: int) -> tuple[Removal, ...]:
    """Read redactions by week, for twelve weeks up to the newest trace, from ``first`` on.

    Grouped by day and text first, so that few texts are read as JSON.
    """
    rows = connection.execute(
        """
        WITH daily AS (
          SELECT t.day, o.redactions, count(*) AS rows
          FROM outbox o CROSS JOIN traces t ON t.seq = o.trace_seq
          WHERE o.redactions <> '{}' AND t.day >= (SELECT date(max(day), :weeks) FROM traces)
            AND o.trace_seq >= max(:first, (
              SELECT min(seq) FROM traces
              WHERE started_at >= (SELECT date(max(started_at), :weeks) FROM traces)))
          GROUP BY 1, 2)
        SELECT date(day, 'weekday 0', '-6 days'), r.key, sum(r.value * rows)
        FROM daily CROSS JOIN json_each(redactions) r GROUP BY 1, 2 ORDER BY 1, 2
        """,
        {"first": first, "weeks": _WEEKS},
    )
    return tuple(map(Removal._make, rows))


def removes(connection: Connection, first: int) -> bool:
    """Return True if anything was redacted, from the trace ``first`` on."""
    (removes,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM outbox WHERE redactions <> '{}' AND trace_seq >= ?)", (first,)
    ).fetchone()
    return bool(removes)


MOST_POINTS: Final = 2000
"""The maximum number of traces on a map, the newest first."""

_COLUMNS: Final = (
    "t.seq, t.id, t.domain, t.objective, t.score, coalesce(t.decision = 'forward', 0), v.vector"
)
_OF_THE_TRACE: Final = "WHERE trace_seq = :around"
_NEAREST: Final = """
    v.trace_seq = (SELECT nearest_seq FROM traces WHERE seq = :around)
    AND v.embedder = (
        SELECT embedder FROM vectors WHERE trace_seq = :around ORDER BY seq DESC LIMIT 1)
"""


class MapPoint(NamedTuple):
    """One trace with its vector: float32, little-endian, of length 1."""

    seq: int
    id: str
    domain: str
    objective: str
    score: float | None
    cleared: bool
    vector: bytes


def read_points(
    connection: Connection, *, first: int = 0, around: int | None = None
) -> tuple[MapPoint, ...]:
    """Read traces with comparable vectors, the newest first.

    Args:
        connection: The connection to the file.
        first: Only traces from this ``seq`` on.
        around: A trace that selects the embedder: it comes first, then the trace that was nearest
            when it was scored, however old. None selects the embedder of the newest vector.
    """
    chosen = _rows(connection, "v.trace_seq = :around", around)
    if around is not None and not chosen:
        return ()
    chosen += _rows(connection, _NEAREST, around)
    newest = connection.execute(
        f"""
        SELECT {_COLUMNS} FROM vectors v CROSS JOIN traces t ON t.seq = v.trace_seq
        WHERE (v.embedder, length(v.vector)) = (
            SELECT embedder, length(vector) FROM vectors {"" if around is None else _OF_THE_TRACE}
            ORDER BY seq DESC LIMIT 1)
          AND t.seq >= :first
        ORDER BY v.seq DESC LIMIT :limit
        """,  # noqa: S608 - ours
        {"around": around, "first": first, "limit": MOST_POINTS},
    )
    size = len(chosen[0].vector) if chosen else None
    comparable = [point for point in chosen if len(point.vector) == size]
    named = {point.seq for point in comparable}
    return (*comparable, *(point for point in map(_point, newest) if point.seq not in named))


def _rows(connection: Connection, where: str, around: int | None) -> list[MapPoint]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM vectors v JOIN traces t ON t.seq = v.trace_seq"  # noqa: S608 - ours
        f" WHERE {where} ORDER BY v.seq DESC LIMIT 1",
        {"around": around},
    )
    return [*map(_point, rows)]


def _point(row: tuple[int, str, str, str, float | None, int, bytes]) -> MapPoint:
    point = MapPoint._make(row)
    return point._replace(cleared=bool(point.cleared))


_DAYS: Final = "-89 days"
_SAMPLE: Final = 6_000  # of 90 days: a median of 66 traces a day
_SIDE: Final = 5


class Funnel(NamedTuple):
    """The numbers of traces at each stage from recording to sending.

    Attributes:
        recorded: All traces.
        cleared: Traces that the gate forwarded.
        queued: Traces that are or were in the outbox.
        waiting: Traces that are pending or being sent.
        reasons: The number of blocked traces by reason, the most frequent first.
    """

    recorded: int
    cleared: int
    queued: int
    waiting: int
    sent: int
    blocked: int
    rejected: int
    reasons: Mapping[str, int]


class NoveltyDay(NamedTuple):
    """The 10th, 50th and 90th percentile of the novelty of one day's traces."""

    day: str
    low: float
    median: float
    high: float


class Overview(NamedTuple):
    """The data for the charts of the overview.

    Attributes:
        scores: The distribution of scores.
        funnel: The numbers of traces at each stage.
        novelty: The novelty by day, for the last 90 days; sampled if there are many traces.
        tools: The ten most used tools.
        last: The gate's latest decisions, regardless of ``since``.
        missed: The traces nearest to their threshold, those that reach it first.
        points: The newest traces that have vectors.
        removals: The redactions by week and kind, for twelve weeks up to the newest trace.
        tool_totals: The totals of all tools, not only of the ten.
        removed_earlier: Whether something was redacted before these weeks.
    """

    scores: ScoreSlices
    funnel: Funnel
    last: LastDecisions = LastDecisions()
    novelty: tuple[NoveltyDay, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    missed: tuple[Row, ...] = ()
    points: tuple[MapPoint, ...] = ()
    removals: tuple[Removal, ...] = ()
    tool_totals: ToolTotals = ToolTotals()
    removed_earlier: bool = False


def read_overview(connection: Connection, *, since: str | None = None) -> Overview:
    """Read the overview from one snapshot of the file.

    Args:
        connection: The connection to the file.
        since: Only traces that started at this instant or later; None means all.
    """
    connection.execute("BEGIN")
    try:
        first = 0 if since is None else first_since(connection, since)
        funnel = _funnel(connection, first)
        tools, tool_totals = read_used_tools(connection, first)
        removals = read_removals(connection, first)
        return Overview(
            read_score_slices(connection, since=since),
            funnel,
            read_last_decisions(connection),
            (*_novelty(connection, first, nth=max(1, funnel.recorded // _SAMPLE)),),
            tools,
            (*_beside(connection, first, reached=True), *_beside(connection, first, reached=False)),
            read_points(connection, first=first),
            removals,
            tool_totals,
            not removals and removes(connection, first),
        )
    finally:
        connection.rollback()


def read_domains(connection: Connection) -> tuple[str, ...]:
    """Read the names of the domains, skipping through the index: fast even for a large file."""
    rows = connection.execute(
        """
        WITH RECURSIVE names(name) AS (
          SELECT min(domain) FROM traces
          UNION ALL SELECT (SELECT min(domain) FROM traces WHERE domain > name) FROM names
          WHERE name IS NOT NULL)
        SELECT name FROM names WHERE name IS NOT NULL
        """
    )
    return tuple(name for (name,) in rows)


def first_since(connection: Connection, since: str) -> int:
    """Return the lowest ``seq`` of the traces that started at this instant or later."""
    (seq,) = connection.execute(
        "SELECT coalesce(min(seq), (SELECT coalesce(max(seq), 0) + 1 FROM traces)) FROM traces"
        " WHERE started_at >= ?",
        (since,),
    ).fetchone()
    return int(seq)


def _funnel(connection: Connection, first: int) -> Funnel:
    counts = connection.execute(
        # the plus signs: counted in an index, not in the wide rows
        """
        SELECT (SELECT count(*) FROM traces WHERE +seq >= :first),
               (SELECT count(*) FROM traces WHERE decision = 'forward' AND seq >= :first),
               (SELECT count(*) FROM outbox WHERE +trace_seq >= :first),
               (SELECT count(*) FROM outbox
                WHERE state IN ('pending', 'sending') AND trace_seq >= :first),
               (SELECT count(*) FROM outbox WHERE state = 'sent' AND trace_seq >= :first),
               (SELECT count(*) FROM outbox WHERE state = 'blocked' AND trace_seq >= :first),
               (SELECT count(*) FROM outbox WHERE state = 'rejected' AND trace_seq >= :first)
        """,
        {"first": first},
    ).fetchone()
    reasons = connection.execute(
        "SELECT coalesce(reason, 'unknown'), count(*) FROM outbox"
        " WHERE state = 'blocked' AND trace_seq >= ? GROUP BY 1 ORDER BY 2 DESC, 1",
        (first,),
    )
    return Funnel._make((*counts, dict(reasons.fetchall())))


def _novelty(connection: Connection, first: int, *, nth: int) -> Iterator[NoveltyDay]:
    rows = connection.execute(
        """
        SELECT substr(started_at, 1, 10), novelty FROM traces
        WHERE started_at >= (SELECT date(max(started_at), ?) FROM traces) AND seq >= ?
          AND seq % ? = 0 AND novelty IS NOT NULL
        ORDER BY started_at
        """,
        (_DAYS, first, nth),
    )
    for day, of_day in groupby(rows, key=lambda row: str(row[0])):
        values = sorted(novelty for _, novelty in of_day)
        yield NoveltyDay(day, *(_quantile(values, part) for part in (0.1, 0.5, 0.9)))


def _quantile(values: list[float], part: float) -> float:
    """Return a quantile of sorted values by linear interpolation."""
    place = part * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def _beside(connection: Connection, first: int, *, reached: bool) -> list[Row]:
    """Return the traces nearest to their threshold on one side, from high to low."""
    where, order = ("margin >= 0 AND above", "margin")
    if not reached:
        where, order = "margin <= 0 AND NOT above", "margin DESC"  # margin is rounded
    cursor = connection.execute(
        f"SELECT seq, id, started_at, domain, objective, score, threshold, margin FROM traces"  # noqa: S608 - ours
        f" WHERE {where} AND seq >= ? ORDER BY {order}, seq DESC LIMIT ?",
        (first, _SIDE),
    )
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    return rows[::-1] if reached else rows


_LASTS: Final = 10
"""The lifetime of a cached overview as a multiple of its read time, which limits the CPU load."""


class _Reading(NamedTuple):
    file: tuple[int, int]
    good_until_s: float
    overview: Overview


class RecentOverviews:
    """A short-lived cache of the overviews of files.

    For an ordinary file an overview lasts a moment, for one with 100,000 traces about two seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings: dict[Path, _Reading] = {}

    def read(self, connection: Connection, path: Path) -> Overview:
        """Return the overview of the file now at this path, cached or fresh."""
        status, started_s = path.stat(), self._clock()
        file = status.st_dev, status.st_ino
        last = self._readings.get(path)
        if last and last.file == file and started_s < last.good_until_s:
            return last.overview
        overview = read_overview(connection)
        now_s = self._clock()
        good_until_s = now_s + _LASTS * (now_s - started_s)
        self._readings[path] = _Reading(file, good_until_s, overview)
        return overview
