"""The history that gates decide on, shared by all processes through the file."""

import sqlite3
import time
from typing import Any

from kp_middleware.core.gates import DAY_S, LAST_RUNS, WINDOW_S, Standing, rank
from kp_middleware.database import Connection
from kp_middleware.instants import epoch_s, instant


class GateHistory:
    """The scores and decisions before one run.

    Args:
        connection: The connection, in the transaction that will store the decision.
        domain: The domain of the run.
        seq: The ``seq`` of the run; later runs are ignored, so that rescoring in the order of
            recording gives the same decisions.
        started_at: The start of the run; runs that began more than 30 days before are ignored.
        let_through_at: When the run was forwarded before, if it is decided again: it counts
            towards the limit of that day.

    Attributes:
        trouble: The database error, to tell it from an error of the gate.
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
        """Rank a score among the last runs of the domain, at most 500 of them."""
        last = self._rows(
            """
            SELECT score, decision = 'forward' FROM (
              SELECT score, decision, started_at FROM traces
              WHERE score IS NOT NULL AND domain = :domain AND seq < :seq
              ORDER BY seq DESC LIMIT :last_runs)
            WHERE started_at >= :since
            """,
            self._values,
        )
        tied = sum(forwarded for value, forwarded in last if value == score)
        return rank(sorted(value for value, _ in last), tied, score, share=share)

    def forwarded_in_a_day(self) -> int:
        """Count the other runs, none private, that were forwarded in the last 24 hours."""
        then = self._let_through_at
        then_s = time.time() if then is None else epoch_s(then)
        ((count,),) = self._rows(
            "SELECT count(*) FROM traces WHERE decision = 'forward' AND visibility <> 'private'"
            " AND decided_at BETWEEN :since AND :now AND seq <> :seq",
            {**self._values, "since": instant(then_s - DAY_S), "now": instant(then_s)},
        )
        return int(count)

    def _rows(self, query: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            self.trouble = error
            raise
