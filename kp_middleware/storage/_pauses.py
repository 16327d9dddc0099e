"""Who must not send for now, and until when: the shared file of paces, as people see it."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware.errors import DatabaseError

_PATIENCE_S: Final = 5.0


class Pause(NamedTuple):
    """Nothing is sent to a registry for a while.

    Attributes:
        registry: Its URL.
        until: In epoch seconds, on the clock of whoever noted it; None: until the user acts.
        refused: Whether the registry has refused the API key, so that another may send at once.
        paused_by: Otherwise ``limit``, ``silence``, ``trouble``, or empty where nobody noted why.
    """

    registry: str
    until: float | None
    refused: bool
    paused_by: str


def read_pauses(path: Path, *, now: float) -> list[Pause]:
    """The pauses that last at this epoch second; none where the file cannot be read."""
    with suppress(sqlite3.Error, OSError, RuntimeError):
        uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as connection:
            rows = connection.execute(
                """
                SELECT registry, paused_until, 0, paused_by FROM paces WHERE paused_until > ?
                UNION ALL
                SELECT DISTINCT registry, NULL, 1, '' FROM stops WHERE NOT EXISTS (
                  SELECT 1 FROM paces AS other  -- another key, which the registry takes since then
                  WHERE other.registry = stops.registry AND other.answering
                    AND other.noted_at > stops.stopped_at AND (other.agent = stops.agent
                      OR other.agent LIKE 'key %' AND stops.agent LIKE 'key %'))
                ORDER BY 1, 2
                """,
                (now,),
            )
            return [
                Pause(registry, until, bool(refused), cause)
                for registry, until, refused, cause in rows
            ]
    return []


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
