"""Counts and means: in all, and by what traces have in common."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kp_middleware.storage._verdict_kinds import VERDICT, WITHHELD

if TYPE_CHECKING:  # it counts with this module
    from kp_middleware.storage._history import Row

_KEYS: Final[Mapping[str, str]] = {
    "domain": "domain",
    "model": "model",
    "day": "day",
    "week": "date(day, 'weekday 0', '-6 days')",
}
_IN_TIME: Final = ("day", "week")


def read_totals(connection: sqlite3.Connection) -> "Row":
    """In all, by domain, by score, by where they are, by gate, and what tools were used."""
    return {
        **_rows(connection, "SELECT * FROM funnel")[0],
        "domains": read_groups(connection, "domain"),
        "scores": _rows(
            connection,
            "SELECT min(CAST(score * 10 AS INTEGER), 9) / 10.0 AS at_least,"
            " count(*) AS traces FROM traces WHERE score IS NOT NULL GROUP BY 1 ORDER BY 1",
        ),
        "states": _states(connection),
        "gates": _gates(connection),
        "tools": _tools(connection)[:10],
    }


def read_groups(connection: sqlite3.Connection, by: str) -> "list[Row]":
    """The same for each value of one property, the most traces first; days and weeks in order.

    Args:
        connection: Of the file.
        by: ``domain``, ``model``, ``day``, ``week`` (the Monday it begins on), ``state`` (where a
            trace is), ``gate`` (and why the others stayed) or ``tool``.
    """
    if by == "state":
        return _states(connection)
    if by == "gate":
        return _gates(connection)
    if by == "tool":
        return _tools(connection)
    order = f'"{by}"' if by in _IN_TIME else f'traces DESC, "{by}"'
    return _rows(
        connection,
        f"""
        SELECT {_KEYS[by]} AS "{by}", count(*) AS traces,
               coalesce(sum(decision = 'forward'), 0) AS cleared,
               round(avg(score), 4) AS mean_score, round(max(score), 4) AS best_score,
               round(avg(novelty), 4) AS mean_novelty
        FROM traces NOT INDEXED GROUP BY 1 ORDER BY {order}
        """,  # noqa: S608 - names of ours; in the table's order: an index would look up each row
    )


def _states(connection: sqlite3.Connection) -> "list[Row]":
    """As the view ``history`` names them, without its join of every row with the outbox."""
    (row,) = _rows(
        connection,
        """
        SELECT sum(state = 'paused') AS paused, sum(state = 'incomplete') AS incomplete,
               sum(state = 'recorded') AS recorded, sum(state = 'failed') AS failed,
               sum(state = 'scored' AND decision = 'forward') AS "not queued",
               sum(state = 'scored' AND decision = 'withhold') AS withheld
        FROM traces NOT INDEXED
        """,
    )
    counts = Counter({state: traces or 0 for state, traces in row.items()})
    queued = connection.execute(
        """
        SELECT o.state, CASE WHEN t.state <> 'scored' THEN t.state
                             WHEN t.decision = 'forward' THEN 'not queued' ELSE 'withheld' END,
               count(*)
        FROM outbox o CROSS JOIN traces t ON t.seq = o.trace_seq GROUP BY 1, 2
        """
    )
    for state, counted_as, traces in queued:
        counts[counted_as] -= traces
        counts[state] += traces
    found = sorted((+counts).items(), key=lambda item: (-item[1], item[0]))
    return [{"state": state, "traces": traces} for state, traces in found]


def _gates(connection: sqlite3.Connection) -> "list[Row]":
    """How many of each it let through, and why it withheld the others; the last one first."""
    kinds = ", ".join(
        f"""coalesce(sum(verdict = '{kind}'), 0) AS "{kind.replace(" ", "_")}\""""
        for kind in WITHHELD
    )
    return _rows(
        connection,
        f"""
        WITH decided AS MATERIALIZED (
          SELECT seq, gate, {VERDICT} AS verdict FROM traces NOT INDEXED WHERE gate IS NOT NULL)
        SELECT gate, count(*) AS traces, sum(verdict = 'let through') AS cleared, {kinds}
        FROM decided GROUP BY gate ORDER BY max(seq) DESC
        """,  # noqa: S608 - ours
    )


def _tools(connection: sqlite3.Connection) -> "list[Row]":
    """As the view ``tool_usage``, in the order of its index: that needs no sorting."""
    return _rows(
        connection,
        """
        WITH used AS (
          SELECT tool, type, count(*) AS steps, count(latency_ms) AS timed,
                 sum(latency_ms) AS total_ms, max(latency_ms) AS max_ms
          FROM steps WHERE tool IS NOT NULL GROUP BY tool, type)
        SELECT tool, sum(iif(type = 'tool_call', steps, 0)) AS calls,
               sum(iif(type = 'error_recovery', steps, 0)) AS failures,
               round(sum(total_ms) / sum(timed), 1) AS mean_ms, max(max_ms) AS max_ms
        FROM used GROUP BY tool ORDER BY calls DESC, tool
        """,
    )


def _rows(connection: sqlite3.Connection, sql: str) -> "list[Row]":
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
