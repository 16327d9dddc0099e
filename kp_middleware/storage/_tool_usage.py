"""What tools were used, how often, how long they took and how often they failed."""

import sqlite3

from kp_middleware.storage._history import Row


def read_tool_usage(
    connection: sqlite3.Connection, *, domain: str | None = None, limit: int | None = None
) -> list[Row]:
    """The tools that were called most, from one index alone: the file may be large.

    Args:
        connection: Of the file.
        domain: Only calls in traces of this domain; None means any.
        limit: How many tools; None means all.
    """
    cursor = connection.execute(
        """
        SELECT tool, sum(type = 'tool_call') AS calls, sum(type = 'error_recovery') AS failures,
               count(DISTINCT iif(type = 'tool_call', trace_seq, NULL)) AS traces,
               round(avg(latency_ms), 1) AS mean_ms, round(max(latency_ms), 1) AS max_ms
        FROM steps
        WHERE tool IS NOT NULL AND (:domain IS NULL
              OR trace_seq IN (SELECT seq FROM traces WHERE domain = :domain))
        GROUP BY tool ORDER BY calls DESC, tool LIMIT :limit
        """,
        {"domain": domain, "limit": -1 if limit is None else limit},
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
