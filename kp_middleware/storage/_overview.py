"""What the pictures need, in a few questions that stay quick where the file is large."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._history import Row
from kp_middleware.storage._last_decisions import LastDecisions, read_last_decisions
from kp_middleware.storage._map_points import MapPoint, read_points
from kp_middleware.storage._removals import Removal, read_removals, removes
from kp_middleware.storage._score_slices import ScoreSlices, read_score_slices
from kp_middleware.storage._used_tools import ToolTotals, ToolUse, read_used_tools

_DAYS: Final = "-89 days"
_SAMPLE: Final = 6_000  # of 90 days: a median of 66 traces a day
_SIDE: Final = 5


class Funnel(NamedTuple):
    """What became of the traces.

    Attributes:
        recorded: All.
        cleared: Those that the gate of their day let through.
        queued: Those that are or were in the outbox.
        waiting: Those that are to be sent.
        reasons: Why those that are blocked are, with how many, the most first.
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
    """The novelty of one day's traces: what 10, 50 and 90 % of them do not exceed."""

    day: str
    low: float
    median: float
    high: float


class Overview(NamedTuple):
    """What the pictures need.

    Attributes:
        scores: How they are spread.
        funnel: What became of the traces.
        novelty: By day, of the last 90 days; where there are many traces, of every nth.
        tools: The ten most used.
        last: How the gate decided last, whatever is asked for.
        missed: The traces nearest to their threshold, those that reach it first.
        points: The newest traces that have vectors.
        removals: By week and kind, of the twelve weeks up to the newest trace.
        tool_totals: Of all tools, also of those that are not among the ten.
        removed_earlier: Whether something was taken out before these weeks.
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
    """All of it, at one moment.

    Args:
        connection: To the file.
        since: Only what started at this instant or later; None means all.
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
    """Their names, from one to the next in the index: quick where the file is large."""
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
    """The lowest ``seq`` of what started at this instant or later."""
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
    """Between the two that are nearest to it."""
    place = part * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def _beside(connection: Connection, first: int, *, reached: bool) -> list[Row]:
    """The nearest on one side, from high to low."""
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
