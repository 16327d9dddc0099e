"""The SQLite file: private permissions, locks, transactions, and what errors mean."""

import errno
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any, Final, Protocol

from kp_middleware.errors import DatabaseError

TROUBLE: Final = (DatabaseError, sqlite3.Error)
"""The exceptions that opening and using the file may raise."""

PASSING_TROUBLE: Final = (DatabaseError, sqlite3.OperationalError)
"""The exceptions for which a retry may help: a lock, a full disk, a missing folder."""

ANOTHER: Final = "name another file with KP_DB or --db"
"""The last-resort remedy."""

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_WRITABLE: Final = f"make the file and its folder writable for you, or {ANOTHER}"
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: f"make room on the disk, or {ANOTHER}",
    sqlite3.SQLITE_PERM: _WRITABLE,
    sqlite3.SQLITE_BUSY: "close the program that keeps it locked",
    sqlite3.SQLITE_CORRUPT: "the next program that records saves what it can, or move it away",
}


def is_damage(error: BaseException) -> bool:
    """Return True if the error means that the file is corrupt, so that a retry cannot help."""
    if isinstance(error, DatabaseError):
        error = error.__cause__ or error
    return _primary_code(error) in _DAMAGED


def in_words(path: Path, error: Exception) -> DatabaseError:
    """Return the error as a `DatabaseError` with the path and a remedy."""
    if isinstance(error, DatabaseError):
        return error
    if isinstance(error, FileNotFoundError) and error.filename == path:
        return DatabaseError(path, "does not exist", f"record a run first, or {ANOTHER}")
    if isinstance(error, PermissionError) and _is_readable(path):
        return DatabaseError(path, f"cannot be written ({error.strerror})", _WRITABLE)
    if isinstance(error, OSError):
        return DatabaseError(path, f"cannot be opened ({error.strerror})", ANOTHER)
    if _primary_code(error) == sqlite3.SQLITE_NOTADB:
        return DatabaseError(path, "is not an SQLite file", ANOTHER)
    if _primary_code(error) == sqlite3.SQLITE_READONLY:
        return DatabaseError(path, f"cannot be written ({error})", _WRITABLE)
    remedy = _REMEDIES.get(_primary_code(error), f"check the folder and the disk, or {ANOTHER}")
    return DatabaseError(path, str(error), remedy)


def _is_readable(path: Path) -> bool:
    """Return True if the file, or the folder it would be created in, is readable."""
    return os.access(path if os.access(path, os.F_OK) else path.parent, os.R_OK)


def _primary_code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_LOOK_UP_S: Final = 0.5  # SQLite ignores Ctrl-C while it waits
_TAKEN: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def alone(lock: Path, *, waits: bool) -> Iterator[bool]:
    """Hold an exclusive SQLite lock; yield whether, as always on a drive without file locks."""
    wait_s = _LOOK_UP_S if waits else 0.0
    with closing(sqlite3.connect(lock, timeout=wait_s, isolation_level=None)) as connection:
        while (taken := not _locked(connection)) and waits:
            pass
        yield not taken


def _locked(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN:
            raise
        return error.sqlite_errorcode not in _TAKEN
    return True


class Cursor(Protocol):
    """The part of `sqlite3.Cursor` that is used of a statement's result."""

    @property
    def description(self) -> Any: ...
    @property
    def lastrowid(self) -> int | None: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """The part of `sqlite3.Connection` that the stages use."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...
    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Cursor: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


BUSY_S: Final = 5.0
_BUSY_TO_READ_S: Final = 1.0  # readers wait only for an exclusive lock


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the file read-only, even in a folder that is not writable."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "No such file", path)
    path = path.resolve()
    options = "mode=ro&immutable=1" if _is_at_rest(path) else "mode=ro"
    return open_uri(f"{path.as_uri()}?{options}", busy_s=_BUSY_TO_READ_S)


def _is_at_rest(path: Path) -> bool:
    """Return True if no WAL exists, and none can be created because the folder is read-only."""
    beside = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    return not os.access(path.parent, os.W_OK) and not any(file.exists() for file in beside)


def open_to_write(path: Path, *, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open the file for writing; create it and its folder if necessary."""
    _make_folder(path.parent)
    make_private(path)
    return open_uri(f"{path.resolve().as_uri()}?mode=rw", busy_s=busy_s)


def make_private(path: Path) -> None:
    """Create an empty file private to the user, unless it exists.

    An existing file is never opened here: closing it would release the locks that SQLite holds on
    it for other threads of this process, and another process could then remove the WAL that they
    write to.
    """
    with suppress(FileExistsError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        os.close(os.open(path.resolve(), flags, stat.S_IRUSR | stat.S_IWUSR))
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def open_to_all(path: Path) -> str | None:
    """Return a warning if every user of this machine may open the file, else None."""
    if os.name == "nt":  # the mode says nothing about permissions
        return None
    mode = path.expanduser().stat().st_mode & 0o777
    if not mode & stat.S_IRWXO:
        return None
    remedy = f"chmod 600 {quote(str(path))}*"
    return f"every user of this machine may open {path} (mode {mode:04o}): {remedy}"


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_uri(uri: str, *, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open an SQLite URI in autocommit mode; group writes with `transaction`."""
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,  # each stage guards its connection with its own lock
        cached_statements=256,
    )


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Run the block in a transaction, or join the one that is already open.

    ``IMMEDIATE``, because a deferred transaction that reads before it writes fails at once when
    another process writes in between, however long the busy timeout.
    """
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.commit()
    except BaseException:  # also if the commit fails, for example on a full disk
        connection.rollback()
        raise
