"""The rate limit and the sending lease of each agent, in one file for all processes of a user."""

import json
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware.database import is_damage, no_fork, open_to_write, transaction
from kp_middleware.errors import DatabaseError
from kp_middleware.rate_limit import Pace, packed, unpacked

logger = logging.getLogger("kp_middleware")

_MONTH_S: Final = 30 * 86_400.0
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_REMEDY: Final = "make it writable for you, or name another folder with XDG_STATE_HOME"
_PATIENCE_S: Final = 5.0
_SCHEMA_VERSION: Final = 6
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS paces (
      registry TEXT NOT NULL, -- its URL
      agent    TEXT NOT NULL, -- its id, or 'key ' and the hash of its API key
      pace     TEXT NOT NULL, -- a JSON object: what differs from a new `Pace`
      stops    TEXT NOT NULL, -- a JSON object: key hash → when that key was refused
      PRIMARY KEY (registry, agent)
    ) STRICT, WITHOUT ROWID
"""
_ROWS: Final = "SELECT registry, agent, pace, stops FROM paces"
_OURS: Final = "WHERE registry = ? AND agent = ?"
_FORGET_OLD: Final = "DELETE FROM paces WHERE stops = '{}' AND coalesce(pace ->> 'noted_at', 0) < ?"
_LIFT: Final = "UPDATE paces SET stops = '{}' WHERE stops <> '{}'"
_WRITE: Final = "INSERT OR REPLACE INTO paces (registry, agent, pace, stops) VALUES (?, ?, ?, ?)"


class AgentPace(NamedTuple):
    """One row of the file."""

    registry: str
    agent: str  # its id, or ``key `` and the hash of its API key
    pace: Pace  # without a stop
    stops: Mapping[str, float]  # when each refused API key was, by the key's hash


class PacingTable:
    """The shared rate limit state of one agent at one registry."""

    def __init__(
        self,
        path: Path,
        *,
        registry: str,
        agent_id: str | None,
        key_hash: str,
        patience_s: float = _PATIENCE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._registry = registry
        self._agent = f"key {key_hash}" if agent_id is None else agent_id
        self._key_hash = key_hash
        self._patience_s = patience_s
        self._clock = clock

    def change(
        self, change: Callable[[Pace | None], Pace], *, patience_s: float | None = None
    ) -> Pace:
        """Apply a function to the state in one transaction, and return the new state.

        A damaged file is set aside and replaced by a new one.

        Raises:
            TimeoutError: If another program keeps the file locked, or this one forks for long.
            DatabaseError: If the file cannot be used.
        """
        with no_fork():  # a `TimeoutError` of its own is no fault of the file
            return self._change(change, self._patience_s if patience_s is None else patience_s)

    def _change(self, change: Callable[[Pace | None], Pace], patience_s: float) -> Pace:
        what, remedy = "cannot be used", _REMEDY
        try:
            path = self._path.expanduser()
        except RuntimeError as error:
            raise DatabaseError(self._path, "there is no home folder", remedy) from error
        try:
            try:
                return self._changed(path, change, patience_s)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
            what, remedy = "is damaged", "remove it"
            self._set_aside(path)
            return self._changed(path, change, patience_s)
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY:
                raise TimeoutError(f"{path} is locked by another program: close it") from error
            why = getattr(error, "strerror", error)
            raise DatabaseError(path, f"{what} ({why})", remedy) from error

    def look(self) -> Pace | None:
        """Return the state without writing, for example on a full disk; None if there is none."""
        for row in read_paces(self._path):
            if (row.registry, row.agent) == (self._registry, self._agent):
                return replace(row.pace, stopped_at=row.stops.get(self._key_hash, -math.inf))
        return None

    def was_damaged(self) -> bool:
        """Return True if a damaged file was set aside, so that recent requests are unknown."""
        with suppress(OSError, RuntimeError):
            path = self._path.expanduser()
            return any(path.parent.glob(f"{path.name}.corrupt-*"))
        return False

    def _changed(
        self, path: Path, change: Callable[[Pace | None], Pace], patience_s: float
    ) -> Pace:
        with _opened(path, patience_s) as connection, transaction(connection):
            found = connection.execute(f"{_ROWS} {_OURS}", (self._registry, self._agent)).fetchone()
            *_, said, stops = found or ("", "{}")
            before = unpacked(said, stops, self._key_hash) if found else None
            after = change(before)
            if before is None:
                connection.execute(_FORGET_OLD, (after.noted_at - _MONTH_S,))
            if after != before:
                told = packed(after, stops, self._key_hash)
                connection.execute(_WRITE, (self._registry, self._agent, *told))
        return after

    def _set_aside(self, path: Path) -> None:
        """Rename a damaged file; SQLite has already removed its journal."""
        try:
            with _opened(path, self._patience_s) as connection:
                if connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                    return  # another process was first
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
        aside = path.with_name(f"{path.name}.corrupt-{self._clock():.0f}")
        path.replace(aside)
        words = "%s was damaged and is now %s: sending goes on slowly until you remove that"
        logger.warning(words, path, aside)


def read_paces(path: Path) -> list[AgentPace]:
    """Read all rows of a file without writing; return none if it cannot be read."""
    with suppress(sqlite3.Error, OSError, RuntimeError):
        uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as connection:
            return [*map(_row, connection.execute(_ROWS))]
    return []


def lift_stops(path: Path) -> bool:
    """Allow every refused API key to be tried again; return True if there was one."""
    try:
        path = path.expanduser()
        if not path.exists():
            return False
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S)) as connection, connection:
            if _version(connection) != _SCHEMA_VERSION:
                return False
            return connection.execute(_LIFT).rowcount > 0
    except (sqlite3.Error, OSError, RuntimeError) as error:
        problem = f"no API key can be tried again ({error})"
        raise DatabaseError(path, problem, "make it writable for you, or remove it") from error


def _row(row: tuple[str, str, str, str]) -> AgentPace:
    registry, agent, pace, stops = row
    return AgentPace(registry, agent, Pace(**json.loads(pace)), json.loads(stops))


@contextmanager
def _opened(path: Path, patience_s: float) -> Iterator[sqlite3.Connection]:
    with closing(open_to_write(path, busy_s=patience_s)) as connection:
        # Not WAL: homes may be on network drives. FULL: spent requests survive a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        version = _version(connection)
        if version > _SCHEMA_VERSION:
            problem = f"has schema {version}, of a newer kp-middleware"
            raise DatabaseError(path, problem, "upgrade kp-middleware")
        if version < _SCHEMA_VERSION:
            with transaction(connection):  # a second process waits here, then has nothing to do
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        yield connection


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
