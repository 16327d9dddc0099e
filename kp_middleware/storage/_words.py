"""What a half-typed word may become: asked for while somebody types, so it must be quick."""

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 0.2
_OFTEN: Final = 1_000  # virtual instructions: some microseconds
_MOST: Final = 50
_ID_PREFIX: Final = "kp:trace:"
_DOMAINS: Final = """
    WITH RECURSIVE names(name) AS (
      SELECT min(domain) FROM traces WHERE domain >= :start
      UNION ALL SELECT (SELECT min(domain) FROM traces WHERE domain > name) FROM names
      WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name < :end LIMIT :most
"""
_TOOLS: Final = """
    WITH RECURSIVE names(name) AS (
      SELECT min(tool) FROM steps WHERE tool >= :start
      UNION ALL SELECT (SELECT min(tool) FROM steps WHERE tool > name) FROM names
      WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name < :end LIMIT :most
"""


def trace_ids(path: Path, start: str) -> list[tuple[str, str]]:
    """The newest traces whose id begins so, with or without ``kp:trace:``, and their objectives.

    Like the other lists of this module it is empty where the file cannot be read, or not in time.
    """
    with suppress(sqlite3.Error, OSError, RuntimeError), _quickly(path) as connection:
        return connection.execute(
            """
            SELECT id, objective FROM traces WHERE seq IN (
              SELECT seq FROM traces WHERE id >= :start AND id < :end ORDER BY seq DESC LIMIT :most
            ) ORDER BY seq DESC
            """,
            _between(_ID_PREFIX + start.removeprefix(_ID_PREFIX)),
        ).fetchall()
    return []


def domain_names(path: Path, start: str) -> list[str]:
    """The domains that begin so."""
    return _names(path, _DOMAINS, start)


def tool_names(path: Path, start: str) -> list[str]:
    """The tools that begin so."""
    return _names(path, _TOOLS, start)


def _names(path: Path, sql: str, start: str) -> list[str]:
    """From one name to the next in the index, however many rows have each."""
    with suppress(sqlite3.Error, OSError, RuntimeError), _quickly(path) as connection:
        return [name for (name,) in connection.execute(sql, _between(start))]
    return []


def _between(start: str) -> dict[str, str | int]:
    return {"start": start, "end": start + chr(sys.maxunicode), "most": _MOST}


@contextmanager
def _quickly(path: Path) -> Iterator[sqlite3.Connection]:
    until = time.monotonic() + _LIMIT_S
    uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_LIMIT_S)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > until, _OFTEN)
        yield connection
