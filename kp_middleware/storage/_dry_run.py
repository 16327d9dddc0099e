"""A dry run of rescoring in a temporary table; the file is not changed."""

from typing import Final

from kp_middleware.database import Connection

_SCRIPT: Final = (
    """
    CREATE TEMP TABLE traces AS
      SELECT seq, domain, started_at, visibility, score, decision, decided_at FROM main.traces
    """,
    """
    CREATE INDEX temp.dry_run_gate ON traces(domain, seq, started_at, score, decision)
      WHERE score IS NOT NULL
    """,
    """
    CREATE INDEX temp.dry_run_allowance ON traces(decided_at, visibility, decision)
      WHERE decision = 'forward'
    """,
    "CREATE UNIQUE INDEX temp.dry_run_seq ON traces(seq)",
)


class DryRun:
    """A temporary copy of the traces that shadows the table of the same name.

    `GateHistory` then reads from the copy.

    Args:
        connection: The connection to the file; it may be read-only.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        for statement in _SCRIPT:
            connection.execute(statement)

    def save(self, seq: int, score: float, decision: str, *, decided_at: str | None) -> None:
        """Store the score and decision that a run would have.

        Args:
            seq: The ``seq`` of the trace.
            score: From 0 to 1.
            decision: ``forward`` or ``withhold``.
            decided_at: An instant; None keeps the earlier one.
        """
        self._connection.execute(
            "UPDATE temp.traces SET score = ?, decision = ?, decided_at = coalesce(?, decided_at)"
            " WHERE seq = ?",
            (score, decision, decided_at, seq),
        )
