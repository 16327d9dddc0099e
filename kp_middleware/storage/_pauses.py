"""Read access to the shared rate limit file, for display."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from kp_middleware.errors import DatabaseError
from kp_middleware.rate_limit import INTERVAL_S

_PATIENCE_S: Final = 5.0
_PAUSES: Final = """
    SELECT registry, paused_until, 0, paused_by, problem, problem_since, tries
    FROM paces WHERE paused_until > :now OR (
      problem <> '' AND failures > 0  -- or it is a stop
      AND NOT EXISTS (
        SELECT 1 FROM paces AS other  -- it was asked since then, for another agent
        WHERE other.registry = paces.registry AND other.noted_at > paces.noted_at))
    UNION ALL
    SELECT DISTINCT stops.registry, NULL, 1, '', coalesce(problem, ''), problem_since,
      coalesce(tries, 0)
    FROM stops LEFT JOIN paces USING (registry, agent)
    WHERE NOT EXISTS (
      SELECT 1 FROM paces AS other  -- another key, which the registry takes since then
      WHERE other.registry = stops.registry AND other.answering
        AND other.noted_at > stops.stopped_at AND (other.agent = stops.agent
          OR other.agent LIKE 'key %' AND stops.agent LIKE 'key %'))
    ORDER BY 1, 2
"""
_BUCKETS: Final = """
    SELECT registry, max(coalesce(full_at, 0)), max(coalesce(paused_until, 0)),
      max(coalesce(held_until, 0)), max(interval_s)
    FROM paces GROUP BY registry
"""


class Pause(NamedTuple):
    """A pause in sending to a registry, or a failure of the last request.

    Attributes:
        registry: The registry's URL.
        until: The end in epoch seconds, on the sender's clock; None means until the user acts.
        refused: Whether the registry refused the API key; another key may send at once.
        paused_by: Otherwise ``limit``, ``silence`` or ``trouble``; empty if unknown.
        problem: The problem of the last request, in the stored form of a `Problem`, or empty.
        since: When the first of the failed requests in a row was made, in epoch seconds, or None.
        tries: The number of failed requests in a row.
    """

    registry: str
    until: float | None
    refused: bool
    paused_by: str
    problem: str = ""
    since: float | None = None
    tries: int = 0


class Bucket(NamedTuple):
    """The token bucket of this user's programs at one registry, as of the last request.

    Attributes:
        registry: The registry's URL.
        full_at: When the bucket is full again, in epoch seconds.
        paused_until: The end of a pause, in epoch seconds.
        busy_until: When the lease of the sending program expires, in epoch seconds.
        interval_s: The seconds per request.
    """

    registry: str
    full_at: float = 0.0
    paused_until: float = 0.0
    busy_until: float = 0.0
    interval_s: float = INTERVAL_S


def read_pauses(path: Path, *, now: float) -> list[Pause]:
    """Read the pauses in effect at this epoch second; return none if the file cannot be read."""
    return [
        Pause(registry, until, bool(refused), *rest)
        for registry, until, refused, *rest in _read(path, _PAUSES, {"now": now})
    ]


def read_buckets(path: Path) -> list[Bucket]:
    """Read the token bucket of each registry; return none if the file cannot be read."""
    return [Bucket(*row) for row in _read(path, _BUCKETS, {})]


def lift_stops(path: Path) -> bool:
    """Allow every refused API key to be tried again; return True if there was one.

    Raises:
        DatabaseError: If the file exists but cannot be changed.
    """
    try:
        path = path.expanduser()
        if not path.exists():
            return False
        with closing(
            sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
        ) as connection:
            (any_stops,) = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'stops')"
            ).fetchone()
            return bool(any_stops) and connection.execute("DELETE FROM stops").rowcount > 0
    except (sqlite3.Error, OSError, RuntimeError) as error:
        problem = f"no API key can be tried again ({error})"
        raise DatabaseError(path, problem, "make it writable for you, or remove it") from error


def _read(path: Path, query: str, values: dict[str, float]) -> Sequence[tuple[Any, ...]]:
    with suppress(sqlite3.Error, OSError, RuntimeError):
        uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as connection:
            return connection.execute(query, values).fetchall()
    return ()
