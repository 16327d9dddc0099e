"""What tools were used, how often, how long they took and how often they failed."""

from kp_middleware.database import Connection
from kp_middleware.storage._history import Row


def read_tool_usage(
    connection: Connection, *, domain: str | None = None, limit: int | None = None
) -> list[Row]:
    """The tools that were called most, from one index alone, in its order: the file may be large.

    Args:
        connection: Of the file.
        domain: Only calls in traces of this domain; None means any.
        limit: How many tools; None means all.
    """
    cursor = connection.execute(
        """
        WITH used AS (
          SELECT tool, type, count(*) AS times, count(DISTINCT trace_seq) AS traces,
                 sum(latency_ms) AS took_ms, count(latency_ms) AS timed, max(latency_ms) AS most_ms
          FROM steps
          WHERE tool IS NOT NULL AND (:domain IS NULL
                OR trace_seq IN (SELECT seq FROM traces WHERE domain = :domain))
          GROUP BY tool, type)
        SELECT tool, sum(iif(type = 'tool_call', times, 0)) AS calls,
               sum(iif(type = 'error_recovery', times, 0)) AS failures,
               sum(iif(type = 'tool_call', traces, 0)) AS traces,
               sum(took_ms) / sum(timed) AS mean_ms, max(most_ms) AS max_ms
        FROM used GROUP BY tool ORDER BY calls DESC, tool LIMIT :limit
        """,
        {"domain": domain, "limit": -1 if limit is None else limit},
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
