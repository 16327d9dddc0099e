"""Queries for the overview of all runs."""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._activity import Activity, read_activity
from kp_middleware.storage._last_decisions import LastDecisions, read_last_decisions
from kp_middleware.storage._review import (
    SuccessRecord,
    Unjudged,
    read_success_record,
    read_unjudged,
)
from kp_middleware.storage._statistics import Funnel, ToolUse, read_funnel, read_tools

_MOST_TOOLS: Final = 10

_WEEKS: Final = "-83 days"


_ROUGHLY: Final = "CAST(score * 100 AS INTEGER)"  # of 0.29 it is 28: the product is 28.999…
_HUNDREDTHS: Final = f"""
    SELECT domain,
           {_ROUGHLY} + (score >= ({_ROUGHLY} + 1) / 100.0) - (score < {_ROUGHLY} / 100.0) AS at,
           count(*), sum(iif(:threshold IS NULL, decision IS 'forward', score >= :threshold)),
           visibility = 'private' AS is_private
    FROM traces INDEXED BY traces_counted
    WHERE score IS NOT NULL AND (:since IS NULL OR started_at >= :since)
    GROUP BY domain, at, is_private ORDER BY domain, at
"""  # noqa: S608 - ours


class Slice(NamedTuple):
    """The number of traces of one domain that reach ``hundredth / 100`` but not the next.

    Attributes:
        domain: Their domain.
        hundredth: From 0 to 100.
        traces: The number of traces.
        above: The number that reach the threshold, which may lie between two hundredths; without
            a fixed threshold, the number that cleared.
    """

    domain: str
    hundredth: int
    traces: int
    above: int


class ScoreSlices(NamedTuple):
    """The distribution of scores in all domains.

    Attributes:
        threshold: The fixed threshold of the last decision; None if it is relative or missing.
        slices: The slices that have traces.
        private: The private traces among them.
    """

    threshold: float | None
    slices: tuple[Slice, ...] = ()
    private: tuple[Slice, ...] = ()

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains with scores, the most traces first."""
        counts: dict[str, int] = {}
        for one in self.slices:
            counts[one.domain] = counts.get(one.domain, 0) + one.traces
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    @property
    def traces(self) -> int:
        """The number of traces with a score."""
        return sum(one.traces for one in self.slices)

    @property
    def above(self) -> int:
        """The number that reach the threshold, or that cleared if it is not fixed."""
        return sum(one.above for one in self.slices)

    @property
    def leaving(self) -> "ScoreSlices":
        """The slices without private traces."""
        never = {one[:2]: one[2:] for one in self.private}
        left = []
        for domain, hundredth, traces, above in self.slices:
            private, private_above = never.get((domain, hundredth), (0, 0))
            left.append(Slice(domain, hundredth, traces - private, above - private_above))
        return ScoreSlices(self.threshold, (*(one for one in left if one.traces),))

    def renamed(self, name_of: Callable[[str], str]) -> "ScoreSlices":
        """Return the slices with renamed domains; domains with the same new name are merged."""
        return ScoreSlices(
            self.threshold, _merged(self.slices, name_of), _merged(self.private, name_of)
        )

    def of(self, domain: str) -> "ScoreSlices":
        """Return the slices of one domain."""
        slices, private = (
            tuple(one for one in some if one.domain == domain)
            for some in (self.slices, self.private)
        )
        return ScoreSlices(self.threshold, slices, private)

    def reaching(self, hundredth: int) -> int:
        """Count the traces that would reach a threshold, given in hundredths."""
        return sum(one.traces for one in self.slices if one.hundredth >= hundredth)


def last_threshold(connection: Connection) -> float | None:
    """Read the fixed threshold of the last decision; None if it is relative or missing."""
    row = connection.execute(
        "SELECT iif(gate LIKE 'threshold%', threshold, NULL) FROM traces"
        " WHERE decision IS NOT NULL ORDER BY seq DESC LIMIT 1"
    ).fetchone()
    return None if row is None or row[0] is None else float(row[0])


def read_score_slices(connection: Connection, *, since: str | None = None) -> ScoreSlices:
    """Read the distribution of scores, relative to the latest threshold.

    Args:
        connection: The connection to the file.
        since: Only traces that started at this instant or later; None means all.
    """
    threshold = last_threshold(connection)
    rows = connection.execute(_HUNDREDTHS, {"threshold": threshold, "since": since}).fetchall()
    private = tuple(Slice(*row[:4]) for row in rows if row[4])
    return ScoreSlices(threshold, _merged(Slice(*row[:4]) for row in rows), private)


def _merged(slices: Iterable[Slice], name_of: Callable[[str], str] = str) -> tuple[Slice, ...]:
    """Add up the slices of the same domain and hundredth."""
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for domain, hundredth, traces, above in slices:
        key = name_of(domain), hundredth
        traces_before, above_before = sums.get(key, (0, 0))
        sums[key] = traces_before + traces, above_before + above
    return tuple(Slice(*key, *counts) for key, counts in sums.items())


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
          WHERE o.redactions <> '{}' AND t.day >= (SELECT date(max(started_at), :weeks) FROM traces)
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


class NoveltyDay(NamedTuple):
    """The 10th, 50th and 90th percentile of the novelty of one day's traces."""

    day: str
    low: float
    median: float
    high: float


class NearMiss(NamedTuple):
    """A run whose score is near its threshold, on either side."""

    seq: int
    id: str
    objective: str
    score: float
    threshold: float


class ToolTotals(NamedTuple):
    """The totals of all tools: tools, calls and failures."""

    tools: int = 0
    calls: int = 0
    failures: int = 0


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
        successes: How often runs succeeded, regardless of ``since``; likewise ``unjudged``.
        activity: What happened lately.
    """

    scores: ScoreSlices
    funnel: Funnel
    last: LastDecisions = LastDecisions()
    novelty: tuple[NoveltyDay, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    missed: tuple[NearMiss, ...] = ()
    points: tuple[MapPoint, ...] = ()
    removals: tuple[Removal, ...] = ()
    tool_totals: ToolTotals = ToolTotals()
    removed_earlier: bool = False
    successes: SuccessRecord = SuccessRecord()
    unjudged: Unjudged = Unjudged(0, 0)
    activity: Activity = Activity()


def read_overview(connection: Connection, *, since: str | None = None) -> Overview:
    """Read the overview from one snapshot of the file.

    Args:
        connection: The connection to the file.
        since: Only traces that started at this instant or later; None means all.
    """
    connection.execute("BEGIN")
    try:
        first = 0 if since is None else first_since(connection, since)
        funnel = read_funnel(connection, first)
        tools = read_tools(connection, first=first)
        calls, failures = sum(use.calls for use in tools), sum(use.failures for use in tools)
        removals = read_removals(connection, first)
        return Overview(
            read_score_slices(connection, since=since),
            funnel,
            read_last_decisions(connection),
            (*_novelty(connection, first, nth=max(1, funnel.recorded // _SAMPLE)),),
            (*tools[:_MOST_TOOLS],),
            (*_beside(connection, first, reached=True), *_beside(connection, first, reached=False)),
            read_points(connection, first=first),
            removals,
            ToolTotals(len(tools), calls, failures),
            not removals and removes(connection, first),
            read_success_record(connection),
            read_unjudged(connection),
            read_activity(connection, since=since),
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


def _novelty(connection: Connection, first: int, *, nth: int) -> Iterator[NoveltyDay]:
    rows = connection.execute(
        """
        SELECT day, novelty FROM traces INDEXED BY traces_counted
        WHERE day >= (SELECT date(max(started_at), ?) FROM traces) AND seq >= ? AND seq % ? = 0
          AND novelty IS NOT NULL AND score IS NOT NULL
        ORDER BY day
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


def _beside(connection: Connection, first: int, *, reached: bool) -> list[NearMiss]:
    """Return the traces nearest to their threshold on one side, from high to low."""
    where, order = ("margin >= 0 AND above", "margin")
    if not reached:
        where, order = "margin <= 0 AND NOT above", "margin DESC"  # margin is rounded
    rows = connection.execute(
        f"SELECT seq, id, objective, iif(threshold IS NULL, rank_key, score),"  # noqa: S608 - ours
        " coalesce(threshold, bar) FROM traces"
        f" WHERE {where} AND seq >= ? ORDER BY {order}, seq DESC LIMIT ?",
        (first, _SIDE),
    )
    found = [*map(NearMiss._make, rows)]
    return found[::-1] if reached else found


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

    def read(self, path: Path, read: Callable[[], Overview]) -> Overview:
        """Return the overview of the file now at this path, cached or fresh."""
        status, started_s = path.stat(), self._clock()
        file = status.st_dev, status.st_ino
        last = self._readings.get(path)
        if last and last.file == file and started_s < last.good_until_s:
            return last.overview
        overview = read()
        now_s = self._clock()
        good_until_s = now_s + _LASTS * (now_s - started_s)
        self._readings[path] = _Reading(file, good_until_s, overview)
        return overview
