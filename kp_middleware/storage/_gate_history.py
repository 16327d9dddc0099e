"""What gates look back on, as the file has it: the same for every process."""

import sqlite3
import time
from typing import Any, Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.instants import epoch_s, instant

LAST_RUNS: Final = 500
DAY_S: Final = 24 * 3600
WINDOW_S: Final = 30 * DAY_S


class Standing(NamedTuple):
    """Where a score stands among the last runs of its domain.

    Attributes:
        runs: How many they are.
        ahead: How many of them scored more, or as much and were forwarded.
        bar: The lowest score among the best share of them; 0 of none.
    """

    runs: int
    ahead: int
    bar: float


class GateHistory:
    """What was decided before one run.

    Args:
        connection: In the transaction that will store the decision.
        domain: Of the run.
        seq: Of the run; what came later is not looked at, so that scoring anew
            in the order of recording decides the same.
        started_at: Of the run; what began more than 30 days before is not looked at.
        let_through_at: When it was let through, where it is decided on anew: it has its place in
            the room of that day.

    Attributes:
        trouble: Why the file could not be asked; a gate has no part in that.
    """

    def __init__(
        self,
        connection: Connection,
        domain: str,
        seq: int,
        started_at: str,
        *,
        let_through_at: str | None = None,
    ) -> None:
        self.trouble: sqlite3.Error | None = None
        self._connection = connection
        self._let_through_at = let_through_at
        self._values: dict[str, object] = {
            "domain": domain,
            "seq": seq,
            "since": instant(max(0.0, epoch_s(started_at) - WINDOW_S)),  # a run may name year 1
            "last_runs": LAST_RUNS,
        }

    def standing(self, score: float, *, share: float) -> Standing:
        """Where a score stands among the last runs of the domain, at most 500."""
        row = self._row(
            """
            WITH last AS MATERIALIZED (
              SELECT score, decision FROM (
                SELECT score, decision, started_at FROM traces
                WHERE score IS NOT NULL AND domain = :domain AND seq < :seq
                ORDER BY seq DESC LIMIT :last_runs)
              WHERE started_at >= :since),
            best AS (
              SELECT score FROM last ORDER BY score DESC
              LIMIT (SELECT CAST(round(:share * count(*), 6) + 0.999999 AS INTEGER) FROM last))
            SELECT
              (SELECT count(*) FROM last),
              (SELECT count(*) FROM last
               WHERE score > :score OR (score = :score AND decision = 'forward')),
              (SELECT coalesce(min(score), 0) FROM best)
            """,
            {**self._values, "score": score, "share": share},
        )
        return Standing._make(row)

    def forwarded_in_a_day(self) -> int:
        """How many others that may leave this machine were let through in the last 24 hours."""
        then = self._let_through_at
        then_s = time.time() if then is None else epoch_s(then)
        (count,) = self._row(
            "SELECT count(*) FROM traces WHERE decision = 'forward' AND visibility <> 'private'"
            " AND decided_at BETWEEN :since AND :now AND seq <> :seq",
            {**self._values, "since": instant(then_s - DAY_S), "now": instant(then_s)},
        )
        return int(count)

    def _row(self, query: str, values: dict[str, object]) -> tuple[Any, ...]:
        try:
            row: tuple[Any, ...] = self._connection.execute(query, values).fetchone()
        except sqlite3.Error as error:
            self.trouble = error
            raise
        return row
