"""How fast each agent may send, and who is sending: one small file for all processes of a user."""

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware.database import make_private, transaction
from kp_middleware.errors import DatabaseError
from kp_middleware.storage._pacing_schema import PACING_MIGRATIONS

logger = logging.getLogger("kp_middleware")

_NEVER: Final = -math.inf
_MONTH_S: Final = 30 * 86_400.0
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_REMEDY: Final = "make it writable for you, or name another folder with XDG_STATE_HOME"


class Pacing(NamedTuple):
    """One agent's row, and its key's stop; an instant of minus infinity was never."""

    full_at: float = _NEVER
    paused_until: float = _NEVER
    limited_at: float = _NEVER
    asked_at: float = _NEVER
    lost_at: float = _NEVER
    stopped_at: float = _NEVER
    failures: int = 0
    answering: bool = False
    holder: str | None = None
    held_until: float = _NEVER
    noted_at: float = _NEVER
    boot: str = ""
    uptime_s: float = 0.0
    paused_by: str = ""
    problem: str = ""
    problem_since: float = _NEVER
    tries: int = 0
    interval_s: float | None = None


class PacingTable:
    """What all processes know of one agent at one registry.

    The file is opened for each change: it is noticed when it is gone, and a fork inherits nothing.

    Args:
        path: Where the file is, or will be.
        registry: Its URL.
        agent_id: Or None where that is not known: then the key stands for it.
        key_hash: Of the API key.
        patience_s: How long a file that another program keeps locked is waited for.
        clock: Epoch seconds, for the name of a file that is set aside.
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
        self, change: Callable[[Pacing | None], Pacing], *, patience_s: float | None = None
    ) -> Pacing:
        """Replace the row by what becomes of it, in one transaction; None: there is none yet.

        A damaged file is set aside, and a new one is begun.

        Args:
            change: Makes the row of what it was.
            patience_s: For this once; None is as always.

        Raises:
            TimeoutError: If another program keeps the file locked.
            DatabaseError: If the file cannot be used; its path and what to do are in the message.
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

    def look(self) -> Pacing | None:
        """The row of a file that cannot be written, as on a full disk; None if it has none."""
        with suppress(sqlite3.Error, OSError, RuntimeError):
            uri = f"{self._path.expanduser().resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=self._patience_s)) as connection:
                return self._read(connection)
        return None

    def was_damaged(self) -> bool:
        """Whether an earlier file was set aside: what was sent just before, nobody knows."""
        with suppress(OSError, RuntimeError):
            path = self._path.expanduser()
            return any(path.parent.glob(f"{path.name}.corrupt-*"))
        return False

    def _changed(
        self,
        path: Path,
        change: Callable[[Pacing | None], Pacing],
        patience_s: float | None = None,
    ) -> Pacing:
        patience_s = self._patience_s if patience_s is None else patience_s
        with _opened(path, patience_s) as connection, transaction(connection):
            before = self._read(connection)
            after = change(before)
            if before is None:
                _forget_old(connection, after.noted_at)
            if after != before:
                self._write(connection, after)
        return after

    def _begin_anew(self, path: Path, change: Callable[[Pacing | None], Pacing]) -> Pacing:
        try:
            self._set_aside(path)
            return self._changed(path, change)
        except sqlite3.Error as error:
            raise DatabaseError(path, f"is damaged ({error})", "remove it") from error
        except OSError as error:
            raise DatabaseError(path, f"is damaged ({error.strerror})", "remove it") from error

    def _set_aside(self, path: Path) -> None:
        """Move a damaged file out of the way; its journal is gone since SQLite has looked at it."""
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

    def _read(self, connection: sqlite3.Connection) -> Pacing | None:
        row = connection.execute(
            """
            SELECT full_at, paused_until, limited_at, asked_at, lost_at, (
                     SELECT stopped_at FROM stops
                     WHERE registry = :registry AND agent = :agent AND key_hash = :key_hash),
                   failures, answering, holder, held_until, noted_at, boot, uptime_s, paused_by,
                   problem, problem_since, tries, interval_s
            FROM paces WHERE registry = :registry AND agent = :agent
            """,
            {"registry": self._registry, "agent": self._agent, "key_hash": self._key_hash},
        ).fetchone()
        if row is None:
            return None
        instants, held_until, since = map(_instant, row[:6]), _instant(row[9]), _instant(row[15])
        made = (*instants, row[6], bool(row[7]), row[8], held_until, *row[10:15], since, *row[16:])
        return Pacing._make(made)

    def _write(self, connection: sqlite3.Connection, pacing: Pacing) -> None:
        *instants, stopped_at = map(_column, pacing[:6])
        connection.execute(
            "INSERT OR REPLACE INTO paces (registry, agent, full_at, paused_until, limited_at,"
            " asked_at, lost_at, failures, answering, holder, held_until, noted_at, boot, uptime_s,"
            " paused_by, problem, problem_since, tries, interval_s)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._registry,
                self._agent,
                *instants,
                pacing.failures,
                int(pacing.answering),
                pacing.holder,
                _column(pacing.held_until),
                *pacing[10:15],
                _column(pacing.problem_since),
                pacing.tries,
                pacing.interval_s,
            ),
        )
        whose = (self._registry, self._agent, self._key_hash)
        connection.execute(
            "DELETE FROM stops WHERE registry = ? AND agent = ? AND key_hash = ?", whose
        )
        if stopped_at is not None:
            connection.execute("INSERT INTO stops VALUES (?, ?, ?, ?)", (*whose, stopped_at))


@contextmanager
def _opened(path: Path, patience_s: float) -> Iterator[sqlite3.Connection]:
    _make_folder(path.parent)
    make_private(path)
    connection = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
    try:
        # Not WAL: homes lie on network drives. FULL: what was spent outlives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        _prepare(connection, path)
        yield connection
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version > len(PACING_MIGRATIONS):
        problem = f"has schema {version}, of a newer kp-middleware"
        raise DatabaseError(path, problem, "upgrade kp-middleware")
    if version < len(PACING_MIGRATIONS):
        with transaction(connection):  # who waits here finds nothing left to do
            for migration in PACING_MIGRATIONS[_version(connection) :]:
                for statement in migration:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(PACING_MIGRATIONS)}")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _forget_old(connection: sqlite3.Connection, now: float) -> None:
    """Agents of long ago, and registries of tests: but a stop has no end but the user's."""
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


def _instant(column: float | None) -> float:
    return _NEVER if column is None else column


def _column(instant: float) -> float | None:
    return None if instant == _NEVER else instant
