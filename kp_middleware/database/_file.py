"""The file itself: made for the user alone, opened whatever schema it has."""

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
    """What a statement returned."""

    @property
    def description(self) -> Any:
        """Return a tuple for each column; its name is the first."""

    @property
    def lastrowid(self) -> int | None:
        """Return the key of the row that it has inserted."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What the stages need of an `sqlite3.Connection`."""

    @property
    def in_transaction(self) -> bool:
        """Tell whether there is something to commit."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor:
        """Run one statement."""

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Cursor:
        """Run one statement for each of the parameters."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """Close the file."""


BUSY_S: Final = 5.0
_BUSY_TO_READ_S: Final = 1.0  # a reader waits for no writer, only for who keeps the file to himself


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open it for somebody who changes nothing, in a folder that nobody may write to, too."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "No such file", path)
    path = path.resolve()
    options = "mode=ro&immutable=1" if _is_at_rest(path) else "mode=ro"
    return open_uri(f"{path.as_uri()}?{options}", busy_s=_BUSY_TO_READ_S)


def _is_at_rest(path: Path) -> bool:
    """Whether nobody writes to a file now, and we could not make what SQLite wants beside it."""
    beside = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    return not os.access(path.parent, os.W_OK) and not any(file.exists() for file in beside)


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open it, and make it and its folder if they are not there."""
    _make_folder(path.parent)
    make_private(path)
    return open_uri(f"{path.resolve().as_uri()}?mode=rw")


def make_private(path: Path) -> None:
    """Make an empty file for the user alone, unless it exists.

    One that exists is never opened here: to close it again would end the locks that SQLite holds on
    it for other threads of this process, and another process could then remove the WAL that they
    write to.

    Raises:
        OSError: If it cannot be made, or not be read and written.
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
    """What to do about a file that every user of this machine may read or write; None if none may.

    Its mode is left as it is: somebody may want it so.
    """
    if os.name == "nt":  # who may open a file is not told by its mode
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
    """Open what SQLite calls by this URI; writes are one by one, or in a `transaction`."""
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,  # each stage guards its connection with a lock of its own
        cached_statements=256,
    )


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of the block or nothing of it; joins the transaction that is open already.

    ``IMMEDIATE``, because a deferred one that reads before it writes fails at once when another
    process writes in between, however long the busy timeout.
    """
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.commit()
    except BaseException:  # also of the commit: a full disk is often found out there
        connection.rollback()
        raise
