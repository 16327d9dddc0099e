"""One at a time, among all threads and processes."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

_LOOK_UP_S: Final = 0.5  # SQLite hears no Ctrl-C while it waits
_TAKEN: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def alone(lock: Path, *, waits: bool) -> Iterator[bool]:
    """Whether nobody else is in here: by a lock of SQLite's, which every system has.

    Where the drive knows no locks, everybody is alone.

    Args:
        lock: A file for nothing else, made where it is not there. It stays, empty.
        waits: Whether to come back until nobody else is; then it is always true.
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
