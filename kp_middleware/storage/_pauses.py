"""Who must not send for now, and until when: the shared file of paces, as people see it."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

_DAY_S: Final = 86_400.0


class Pause(NamedTuple):
    """Nothing is sent to a registry for a while.

    Attributes:
        registry: Its URL.
        until: In epoch seconds, on the clock of whoever noted it.
        refused: Whether the registry has refused the API key, so that another may send at once.
    """

    registry: str
    until: float
    refused: bool


def read_pauses(path: Path, *, now: float) -> list[Pause]:
    """The pauses that last at this epoch second; none where the file cannot be read."""
    with suppress(sqlite3.Error, OSError, RuntimeError):
        uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as connection:
            rows = connection.execute(
                """
                SELECT registry, paused_until, 0 FROM paces WHERE paused_until > :now
                UNION ALL
                SELECT registry, stopped_at + :day, 1 FROM stopped_keys
                WHERE stopped_at + :day > :now ORDER BY 1, 2
                """,
                {"now": now, "day": _DAY_S},
            )
            return [Pause(registry, until, bool(refused)) for registry, until, refused in rows]
    return []
