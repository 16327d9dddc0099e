"""Knowledge of all hosts while the log is locked, so that nobody else decides."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kp_middleware.core.share import Ranking
from kp_middleware.sharing._link import Connection
from kp_middleware.sharing._records import LoggedVector, SharedRun

if TYPE_CHECKING:
    from psycopg import Pipeline

LOCK: Final = "SELECT head FROM kp.heads WHERE stream = 'main' FOR UPDATE"
_RANKED: Final = """
    SELECT rank_key, gate = %s, chosen, credit FROM kp.log
    WHERE kind = 'run' AND domain = %s AND rank_key IS NOT NULL ORDER BY seq DESC LIMIT %s
"""
_DAY: Final = """
    SELECT count(*) FROM kp.log WHERE decision = 'forward' AND kind = 'run'
    AND decided_at >= now() - interval '24 hours'
"""


class FleetHistory:
    """A `GateHistory` of all hosts; its ``trouble`` is told from an error of the gate."""

    def __init__(self, known: "LockedLog", domain: str) -> None:
        self.rank_key = 0.0
        self.trouble: BaseException | None = None
        self._known = known
        self._domain = domain

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the last scored runs of the domain, and what the gate of this name chose."""
        with self._telling():
            return self._known.ranking(self._domain, gate, last)

    def forwarded_in_a_day(self) -> int:
        """Count the runs of all hosts that were forwarded in the last 24 hours."""
        with self._telling():
            return self._known.forwarded_in_a_day()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.trouble = error
            raise


class LockedLog:
    """The locked log, read once for each domain and gate."""

    def __init__(
        self,
        connection: Connection,
        pipeline: "Pipeline",
        answered: Mapping[str, SharedRun],
        newer: Sequence[LoggedVector],
    ) -> None:
        self.answered = answered
        self.newer = newer
        self._connection = connection
        self._pipeline = pipeline
        self._rankings: dict[tuple[str, str], Ranking] = {}
        self._in_a_day: int | None = None

    def history(self, domain: str) -> FleetHistory:
        """Return what a gate may know of the runs before the next one of a domain."""
        return FleetHistory(self, domain)

    def ranking(self, domain: str, gate: str, last: int) -> Ranking:
        """Return the ranking of a domain, with what was decided just now."""
        if (domain, gate) not in self._rankings:
            rows = self._rows(_RANKED, (gate, domain, last))
            ranking = self._rankings[domain, gate] = Ranking(last)
            for key, is_of_gate, chosen, credit in reversed(rows):
                gone = bool(is_of_gate and chosen)
                ranking.add(key, gone=gone, credit=credit if is_of_gate else None)
        return self._rankings[domain, gate]

    def forwarded_in_a_day(self) -> int:
        """Return the day's count, with what was decided just now."""
        if self._in_a_day is None:
            self._in_a_day = self._rows(_DAY, ())[0][0]
        return self._in_a_day or 0

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(query.encode(), values)
        self._pipeline.sync()
        return cursor.fetchall()

    def add(self, run: SharedRun) -> None:
        """Count a run that was decided on just now among those before the next."""
        for (domain, gate), ranking in self._rankings.items():
            if domain == run.domain and run.rank_key is not None:
                ours = gate == run.gate
                credit = run.credit if ours else None
                ranking.add(run.rank_key, gone=bool(ours and run.chosen), credit=credit)
        if self._in_a_day is not None and run.decision == "forward":
            self._in_a_day += 1
