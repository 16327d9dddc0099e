"""The database file: creation with private permissions, opening, transactions."""

import errno
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any, Final, Protocol


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def description(self) -> Any:
        """A tuple for each column, starting with its name."""

    @property
    def lastrowid(self) -> int | None:
        """The key of the inserted row."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """The part of `sqlite3.Connection` that the stages use."""

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is open."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor:
        """Run one statement."""

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Cursor:
        """Run one statement for each of the parameters."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll back the transaction."""

    def close(self) -> None:
        """Close the file."""


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


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open the file for writing; create it and its folder if necessary."""
    _make_folder(path.parent)
    make_private(path)
    return open_uri(f"{path.resolve().as_uri()}?mode=rw")


def make_private(path: Path) -> None:
    """Create an empty file private to the user, unless it exists.

    An existing file is never opened here: closing it would release the locks that SQLite holds on
    it for other threads of this process, and another process could then remove the WAL that they
    write to.

    Raises:
        OSError: If the file cannot be created, or cannot be read and written.
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
    """Return a warning if every user of this machine may open the file, else None.

    The mode is not changed: it may be intended.
    """
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
