"""What gates would see if scores were others: beside the file, which stays as it is."""

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
    """A table of this connection alone, which stands before the one of the same name.

    What gates look back on (`GateHistory`) is then read from here.

    Args:
        connection: To the file; it may be for reading only.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        for statement in _SCRIPT:
            connection.execute(statement)

    def save(self, seq: int, score: float, decision: str, *, decided_at: str | None) -> None:
        """A run would have this score, and the gate would have said so.

        Args:
            seq: Its place.
            score: From 0 to 1.
            decision: ``forward`` or ``withhold``.
            decided_at: An instant; None means when it was decided before.
        """
        self._connection.execute(
            "UPDATE temp.traces SET score = ?, decision = ?, decided_at = coalesce(?, decided_at)"
            " WHERE seq = ?",
            (score, decision, decided_at, seq),
        )
