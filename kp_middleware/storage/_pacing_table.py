"""The rate limit and the sending lease of each agent, in one file for all processes of a user."""

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from kp_middleware.database import make_private, transaction
from kp_middleware.errors import DatabaseError
from kp_middleware.rate_limit import Cause, Pace

logger = logging.getLogger("kp_middleware")

_NEVER: Final = -math.inf
_MONTH_S: Final = 30 * 86_400.0
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_REMEDY: Final = "make it writable for you, or name another folder with XDG_STATE_HOME"


_SCHEMA_VERSION: Final = 5
_SCHEMA: Final = (
    "DROP TABLE IF EXISTS paces",  # of a version that nobody was given
    "DROP TABLE IF EXISTS stops",
    """
    CREATE TABLE paces (   -- instants are seconds since the epoch, NULL: never
      registry      TEXT NOT NULL,    -- its URL
      agent         TEXT NOT NULL,    -- its id, or 'key ' and the hash of its API key
      interval_s    REAL NOT NULL,    -- one more request is allowed per so many seconds
      full_at       REAL,             -- the whole burst is there again
      paused_until  REAL,             -- no request before
      paused_by     TEXT NOT NULL,    -- what that is due to: 'limit', 'silence', 'trouble' or ''
      limited_at    REAL,             -- the last 429 came
      asked_at      REAL,             -- the request was made that has no answer yet
      lost_at       REAL,             -- the last one was made whose answer nobody has seen
      failures      INTEGER NOT NULL, -- in a row
      answering     INTEGER NOT NULL, -- 1: the last request was answered sensibly
      problem       TEXT NOT NULL,    -- the last: a code and a detail; '' where it was answered
      problem_since REAL,             -- the first of those in a row
      tries         INTEGER NOT NULL, -- so many in a row
      holder        TEXT,             -- who is sending
      held_until    REAL,             -- then another may; without a holder, a program is at it
      noted_at      REAL NOT NULL,    -- this row was written
      boot          TEXT NOT NULL,    -- since which start of the machine; '' where unknown
      uptime_s      REAL NOT NULL,    -- since that start, when this row was written
      PRIMARY KEY (registry, agent)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE stops (              -- nothing is sent until the user acts
      registry   TEXT NOT NULL,
      agent      TEXT NOT NULL,       -- as in paces
      key_hash   TEXT NOT NULL,       -- the key itself is nowhere in this file
      stopped_at REAL NOT NULL,       -- it turned out to be dead or not allowed to write
      PRIMARY KEY (registry, agent, key_hash)
    ) STRICT, WITHOUT ROWID
    """,
)
_ELSEWHERE: Final = frozenset({"stopped_at", "alone"})
_COLUMNS: Final = tuple(one.name for one in fields(Pace) if one.name not in _ELSEWHERE)
_INSTANTS: Final = frozenset(
    {
        *("full_at", "paused_until", "limited_at", "asked_at", "lost_at", "stopped_at"),
        *("problem_since", "held_until"),
    }
)


class PacingTable:
    """The shared rate limit state of one agent at one registry.

    The file is opened for each change, so that its removal is noticed and a fork inherits nothing.

    Args:
        path: The path of the file, which need not exist.
        registry: The registry's URL.
        agent_id: The agent's id; if it is None, the key's hash identifies the agent.
        key_hash: The hash of the API key.
        patience_s: How long to wait for a file that another program has locked.
        clock: Epoch seconds, for the name of a damaged file's copy.
    """

    def __init__(
        self,
        path: Path,
        *,
        registry: str,
        agent_id: str | None,
        key_hash: str,
        patience_s: float = 5.0,
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

        Args:
            change: A function from the old state, or None if there is none, to the new one.
            patience_s: The time to wait for a lock in this call; None means the default.

        Raises:
            TimeoutError: If another program keeps the file locked.
            DatabaseError: If the file cannot be used; the message has its path and a remedy.
        """
        try:
            path = self._path.expanduser()
        except RuntimeError as error:
            raise DatabaseError(self._path, "there is no home folder", _REMEDY) from error
        try:
            return self._changed(path, change, patience_s)
        except sqlite3.Error as error:
            if _primary_code(error) in _BUSY:
                raise TimeoutError(f"{path} is locked by another program: close it") from error
            if _primary_code(error) not in _DAMAGED:
                raise DatabaseError(path, f"cannot be used ({error})", _REMEDY) from error
        except OSError as error:
            raise DatabaseError(path, f"cannot be used ({error.strerror})", _REMEDY) from error
        return self._begin_anew(path, change)

    def look(self) -> Pace | None:
        """Return the state without writing, for example on a full disk; None if there is none."""
        with suppress(sqlite3.Error, OSError, RuntimeError):
            uri = f"{self._path.expanduser().resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=self._patience_s)) as connection:
                return self._read(connection)
        return None

    def was_damaged(self) -> bool:
        """Return True if a damaged file was set aside, so that recent requests are unknown."""
        with suppress(OSError, RuntimeError):
            path = self._path.expanduser()
            return any(path.parent.glob(f"{path.name}.corrupt-*"))
        return False

    def _changed(
        self,
        path: Path,
        change: Callable[[Pace | None], Pace],
        patience_s: float | None = None,
    ) -> Pace:
        patience_s = self._patience_s if patience_s is None else patience_s
        with _opened(path, patience_s) as connection, transaction(connection):
            before = self._read(connection)
            after = change(before)
            if before is None:
                _forget_old(connection, after.noted_at)
            if after != before:
                self._write(connection, after)
        return after

    def _begin_anew(self, path: Path, change: Callable[[Pace | None], Pace]) -> Pace:
        try:
            self._set_aside(path)
            return self._changed(path, change)
        except sqlite3.Error as error:
            raise DatabaseError(path, f"is damaged ({error})", "remove it") from error
        except OSError as error:
            raise DatabaseError(path, f"is damaged ({error.strerror})", "remove it") from error

    def _set_aside(self, path: Path) -> None:
        """Rename a damaged file; SQLite has already removed its journal."""
        if not self._is_damaged(path):
            return  # another process was first
        aside = path.with_name(f"{path.name}.corrupt-{self._clock():.0f}")
        path.replace(aside)
        words = "%s was damaged and is now %s: sending goes on slowly until you remove that"
        logger.warning(words, path, aside)

    def _is_damaged(self, path: Path) -> bool:
        try:
            with _opened(path, self._patience_s) as connection:
                (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                return bool(said != "ok")
        except sqlite3.DatabaseError as error:
            return _primary_code(error) in _DAMAGED

    def _read(self, connection: sqlite3.Connection) -> Pace | None:
        row = connection.execute(
            f"SELECT {', '.join(_COLUMNS)}, ("  # noqa: S608 - our own words
            " SELECT stopped_at FROM stops"
            " WHERE registry = :registry AND agent = :agent AND key_hash = :key_hash)"
            " FROM paces WHERE registry = :registry AND agent = :agent",
            {"registry": self._registry, "agent": self._agent, "key_hash": self._key_hash},
        ).fetchone()
        if row is None:
            return None
        found: dict[str, Any] = dict(zip((*_COLUMNS, "stopped_at"), row, strict=True))
        found |= {name: _NEVER for name in _INSTANTS if found[name] is None}
        found |= {"paused_by": Cause(found["paused_by"]), "answering": bool(found["answering"])}
        return Pace(**found)

    def _write(self, connection: sqlite3.Connection, pace: Pace) -> None:
        whose: dict[str, object] = {"registry": self._registry, "agent": self._agent}
        stop = whose | {"key_hash": self._key_hash}
        row = whose | {name: getattr(pace, name) for name in _COLUMNS}
        row |= {name: None for name in _INSTANTS if row.get(name) == _NEVER}
        connection.execute(_insert("paces", row), row)
        connection.execute(
            "DELETE FROM stops"
            " WHERE registry = :registry AND agent = :agent AND key_hash = :key_hash",
            stop,
        )
        if pace.stopped_at != _NEVER:
            stop["stopped_at"] = pace.stopped_at
            connection.execute(_insert("stops", stop), stop)


@contextmanager
def _opened(path: Path, patience_s: float) -> Iterator[sqlite3.Connection]:
    _make_folder(path.parent)
    make_private(path)
    connection = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
    try:
        # Not WAL: homes may be on network drives. FULL: spent requests survive a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        _prepare(connection, path)
        yield connection
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version > _SCHEMA_VERSION:
        problem = f"has schema {version}, of a newer kp-middleware"
        raise DatabaseError(path, problem, "upgrade kp-middleware")
    if version < _SCHEMA_VERSION:
        with transaction(connection):  # a second process waits here, then has nothing to do
            if _version(connection) < _SCHEMA_VERSION:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _insert(table: str, row: Mapping[str, object]) -> str:
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    return f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({values})"  # noqa: S608 - our own words


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _forget_old(connection: sqlite3.Connection, now: float) -> None:
    """Delete rows not used for a month, except stops, which only the user can lift."""
    connection.execute(
        "DELETE FROM paces WHERE noted_at < ? AND NOT EXISTS (SELECT 1 FROM stops"
        " WHERE stops.registry = paces.registry AND stops.agent = paces.agent)",
        (now - _MONTH_S,),
    )


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
