"""How sending goes at each registry: the shared file of paces, as people see it."""

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
    """Nothing is sent to a registry for a while, or the last attempt has failed.

    Attributes:
        registry: Its URL.
        until: In epoch seconds, on the clock of whoever noted it; None: until the user acts.
        refused: Whether the registry has refused the API key, so that another may send at once.
        paused_by: Otherwise ``limit``, ``silence``, ``trouble``, or empty where nobody noted why.
        problem: What the last request met, as a `Problem` is kept; empty where nobody noted it.
        since: When the first of those in a row met a problem, in epoch seconds, or None.
        tries: How many in a row have met one.
    """

    registry: str
    until: float | None
    refused: bool
    paused_by: str
    problem: str = ""
    since: float | None = None
    tries: int = 0


class Bucket(NamedTuple):
    """What the programs of this user may ask of one registry, at the last request.

    Attributes:
        registry: Its URL.
        full_at: When the whole burst is there again, in epoch seconds.
        paused_until: No request before.
        busy_until: Until when a program is at it, unless it ends without a word.
        interval_s: One more is made per so many seconds.
    """

    registry: str
    full_at: float = 0.0
    paused_until: float = 0.0
    busy_until: float = 0.0
    interval_s: float = INTERVAL_S


def read_pauses(path: Path, *, now: float) -> list[Pause]:
    """The pauses that last at this epoch second; none where the file cannot be read."""
    return [
        Pause(registry, until, bool(refused), *rest)
        for registry, until, refused, *rest in _read(path, _PAUSES, {"now": now})
    ]


def read_buckets(path: Path) -> list[Bucket]:
    """One for each registry; none where the file cannot be read."""
    return [Bucket(*row) for row in _read(path, _BUCKETS, {})]


def lift_stops(path: Path) -> bool:
    """The user has acted: every API key that was refused may be tried again. Whether one was.

    Raises:
        DatabaseError: If the file is there, and cannot be changed.
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
