"""Which tools were used most, and how much all of them."""

from typing import Final, NamedTuple

from kp_middleware.database import Connection

_MOST: Final = 10


class ToolUse(NamedTuple):
    """One tool: how often it was called, failed, and how long it took."""

    tool: str
    calls: int
    failures: int
    mean_ms: float | None


class ToolTotals(NamedTuple):
    """Of all tools together: how many there are, how often they were called, and failed."""

    tools: int = 0
    calls: int = 0
    failures: int = 0


def read_used_tools(connection: Connection, first: int) -> tuple[tuple[ToolUse, ...], ToolTotals]:
    """The ten most used, and all together, from the trace ``first`` on.

    Grouped as the index of the steps is, which needs no sorting.
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
