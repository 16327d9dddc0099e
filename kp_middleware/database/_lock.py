"""A lock shared by all threads and processes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

_LOOK_UP_S: Final = 0.5  # SQLite ignores Ctrl-C while it waits
_TAKEN: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def alone(lock: Path, *, waits: bool) -> Iterator[bool]:
    """Hold an exclusive lock; yield True if it was acquired.

    The lock is an SQLite lock, which works on every platform. On a drive without file locks it is
    always acquired.

    Args:
        lock: A dedicated lock file, created if missing. It remains, empty.
        waits: Whether to wait for the lock; then the result is always True.
    """
    with closing(_opened(lock, wait_s=_LOOK_UP_S if waits else 0.0)) as connection:
        while (taken := not _locked(connection)) and waits:
            pass
        yield not taken


def _opened(lock: Path, *, wait_s: float) -> sqlite3.Connection:
    return sqlite3.connect(lock, timeout=wait_s, isolation_level=None)


def _locked(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN:
            raise
        return error.sqlite_errorcode not in _TAKEN
    return True
