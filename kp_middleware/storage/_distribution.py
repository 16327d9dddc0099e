"""The distribution of scores, stored or with other weights, and the effect of a threshold."""

import json
import sqlite3
from functools import cache, partial
from typing import Any, Final, NamedTuple

from kp_middleware.core.formula import Signals, Weights, combine
from kp_middleware.database import Connection, Cursor
from kp_middleware.storage._records import Row

_SOME: Final = """
    score IS NOT NULL AND (:domain IS NULL OR domain = :domain)
    AND (:since IS NULL OR started_at >= :since)
"""
_CLEARED: Final = "decision = 'forward'"
_PRIVATE: Final = "visibility = 'private'"
_STORED: Final = "main.traces INDEXED BY traces_spread"  # in the order of domains
_RESCORED: Final = f"""
    CREATE TEMP TABLE rescored AS
    SELECT seq, domain, decision, visibility,
           score_with_weights(complexity, novelty, tool_diversity, outcome_confidence, rules)
             AS score
    FROM main.traces NOT INDEXED WHERE {_SOME}
"""  # noqa: S608 - all of these statements are our own texts
_ROUGHLY: Final = "CAST(score * 100 AS INTEGER)"  # of 0.29 it is 28: the product is 28.999…
HUNDREDTH: Final = (
    f"{_ROUGHLY} + (score >= ({_ROUGHLY} + 1) / 100.0) - (score < {_ROUGHLY} / 100.0)"
)
"""The SQL expression for the highest hundredth that a score reaches, exactly."""


class Hundredth(NamedTuple):
    """The number of traces of one domain that reach ``hundredth / 100`` but not the next.

    Attributes:
        domain: Their domain.
        hundredth: From 0 to 100.
        traces: The number of traces.
    """

    domain: str
    hundredth: int
    traces: int


class Effect(NamedTuple):
    """The effect of a threshold on the traces of one domain that are not private.

    Attributes:
        domain: Their domain.
        traces: The number with a score.
        would_go: The number that reach the threshold.
        went: The number that their gate forwarded.
        newly_go: The number that reach the threshold but were withheld.
        newly_stay: The number that were forwarded but do not reach the threshold.
    """

    domain: str
    traces: int
    would_go: int
    went: int
    newly_go: int
    newly_stay: int


class Distribution:
    """The distribution of the stored scores, or of scores computed with other weights.

    Args:
        connection: The connection to the file.
        domain: Only traces of this domain; None means any.
        since: Only traces that started at this instant or later; None means all.
        weights: The weights to recompute the scores with; None uses the stored scores.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        domain: str | None = None,
        since: str | None = None,
        weights: Weights | None = None,
    ) -> None:
        self._connection = connection
        self._values: dict[str, Any] = {"domain": domain, "since": since}
        self._scores, self._which = _STORED, _SOME
        if weights is not None:
            self._score_anew(weights)

    def _score_anew(self, weights: Weights) -> None:
        """Compute the scores with other weights, once, in a temporary table."""
        self._scores, self._which = "temp.rescored", "TRUE"
        self._connection.execute("DROP TABLE IF EXISTS temp.rescored")
        score = partial(_score, weights)
        assert isinstance(self._connection, sqlite3.Connection)  # noqa: S101 - commands open one
        self._connection.create_function("score_with_weights", 5, score, deterministic=True)
        self._connection.execute(_RESCORED, self._values)

    def threshold(self) -> float | None:
        """Return the fixed threshold of the last decision; None if it is relative or missing."""
        row = self._connection.execute(
            "SELECT iif(gate LIKE 'threshold%', threshold, NULL) FROM traces"
            " WHERE threshold IS NOT NULL ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return None if row is None or row[0] is None else float(row[0])

    def hundredths(self, *, cleared: bool = False, private: bool = False) -> list[Hundredth]:
        """Count traces by domain and hundredth, exactly; empty hundredths are omitted.

        Args:
            cleared: Only traces that the gate forwarded.
            private: Only private traces.
        """
        which = _CLEARED if cleared else _PRIVATE if private else "TRUE"
        rows = self._execute(
            f"SELECT domain, {HUNDREDTH} AS hundredth, count(*) FROM {self._scores}"  # noqa: S608
            f" WHERE {self._which} AND {which} GROUP BY domain, hundredth"
        )
        return [*map(Hundredth._make, rows)]

    def effects(self, threshold: float) -> list[Effect]:
        """Return the effect of a threshold by domain, the largest domain first."""
        rows = self._execute(
            f"""
            SELECT domain, count(*) AS traces, sum(score >= :threshold),
                   coalesce(sum({_CLEARED}), 0),
                   sum(score >= :threshold) - coalesce(sum({_CLEARED} AND score >= :threshold), 0),
                   coalesce(sum({_CLEARED} AND score < :threshold), 0)
            FROM {self._scores} WHERE {self._which} AND NOT {_PRIVATE}
            GROUP BY domain ORDER BY traces DESC, domain
            """,  # noqa: S608
            threshold=threshold,
        )
        return [*map(Effect._make, rows)]

    def newly_go(self, threshold: float, limit: int) -> list[Row]:
        """Return withheld traces that reach the threshold, lowest score first; none private."""
        which = "decision = 'withhold' AND score >= :threshold ORDER BY score, seq"
        return self._traces(which, threshold, limit)

    def newly_stay(self, threshold: float, limit: int) -> list[Row]:
        """Return forwarded traces below the threshold, highest score first; none private."""
        which = f"{_CLEARED} AND score < :threshold ORDER BY score DESC, seq DESC"
        return self._traces(which, threshold, limit)

    def _traces(self, which: str, threshold: float, limit: int) -> list[Row]:
        cursor = self._execute(
            f"""
            WITH chosen AS MATERIALIZED (
              SELECT seq, score FROM {self._scores}
              WHERE {self._which} AND NOT {_PRIVATE} AND {which} LIMIT :limit)
            SELECT t.id, t.domain, chosen.score, t.threshold, t.objective
            FROM chosen CROSS JOIN traces t ON t.seq = chosen.seq
            """,  # noqa: S608
            threshold=threshold,
            limit=limit,
        )
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def _execute(self, sql: str, **values: Any) -> Cursor:
        return self._connection.execute(sql, self._values | values)


def _score(weights: Weights, c: float, n: float, d: float, o: float, rules: str) -> float:
    return combine(Signals(c, n, d, o), weights, _names(rules))[0]


@cache
def _names(rules: str) -> tuple[str, ...]:
    return tuple(rule["rule"] for rule in json.loads(rules))
