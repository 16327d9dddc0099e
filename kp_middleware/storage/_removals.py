"""What was taken out before sending."""

from typing import Final, NamedTuple

from kp_middleware.database import Connection

_WEEKS: Final = "-83 days"


class Removal(NamedTuple):
    """What was taken out before sending, in the week that begins on this Monday."""

    week: str
    kind: str
    times: int


def read_removals(connection: Connection, first: int) -> tuple[Removal, ...]:
    """By week, of the twelve weeks up to the newest trace, from the trace ``first`` on.

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
    """Whether anything was taken out at all."""
    (removes,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM outbox WHERE redactions <> '{}' AND trace_seq >= ?)", (first,)
    ).fetchone()
    return bool(removes)
