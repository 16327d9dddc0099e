"""Connections to the database file, upgraded to the current schema."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from kp_middleware.database._file import BUSY_S, open_to_read, open_to_write
from kp_middleware.database._schema import (
    OLDEST,
    SCHEMA,
    copy_before,
    make_or_upgrade,
    our_version,
    too_old,
)
from kp_middleware.database._trouble import ANOTHER, in_words
from kp_middleware.errors import DatabaseError


def connect(path: str | Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the database file, and upgrade its schema unless it is opened read-only.

    A new file is private to the user (mode 0600, its new folders 0700). The connection is in
    autocommit mode: write inside `transaction`.

    Raises:
        DatabaseError: If the file cannot be opened, belongs to another program, or was written by
            a newer version.
    """
    path, connection = _opened(Path(path), read_only=read_only)
    try:
        _prepare(connection, path, read_only=read_only)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise in_words(path, error) from error
        raise
    return connection


def schema_of(path: str | Path) -> int:
    """Return the schema version of an existing file, 0 for an empty one.

    Raises:
        DatabaseError: If it does not exist, cannot be read, or belongs to another program.
    """
    path, connection = _opened(Path(path), read_only=True)
    with closing(connection):
        try:
            return our_version(connection, path)
        except sqlite3.Error as error:
            raise in_words(path, error) from error


class Upgrade(NamedTuple):
    """The result of a schema upgrade.

    Attributes:
        before: The schema version before.
        now: The schema version now.
        copy: A copy of the old file in the same folder; None if the schema was current.
    """

    before: int
    now: int
    copy: Path | None


def bring_up_to_date(path: Path) -> Upgrade:
    """Upgrade an existing file to the current schema; leave a current one unchanged.

    Raises:
        DatabaseError: If the file is empty, belongs to another program or was written by a newer
            version, or if it or the copy cannot be written.
    """
    before = schema_of(path)
    is_older = 0 < before < SCHEMA
    connect(path, read_only=not is_older).close()  # raises for an empty or newer file
    copy = copy_before(path.expanduser()) if is_older else None
    return Upgrade(before, SCHEMA, copy)


def _opened(path: Path, *, read_only: bool) -> tuple[Path, sqlite3.Connection]:
    try:
        path = path.expanduser()
        return path, open_to_read(path) if read_only else open_to_write(path)
    except (sqlite3.Error, OSError, RuntimeError) as error:  # RuntimeError: no home folder
        raise in_words(path, error) from error


def _prepare(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    version = our_version(connection, path)
    if version > SCHEMA:
        raise DatabaseError(
            path, f"has schema {version}, of a newer kp-middleware", "upgrade kp-middleware"
        )
    if read_only and not version:
        raise DatabaseError(path, "is empty", f"record a run first, or {ANOTHER}")
    if 0 < version < OLDEST:
        raise too_old(path, version)
    if read_only and version < SCHEMA:
        remedy = f"bring it up to date: kp-middleware migrate --db {quote(str(path))}"
        raise DatabaseError(path, "is of an older kp-middleware", remedy)
    connection.execute("PRAGMA foreign_keys = ON")
    if read_only:
        return
    connection.execute("PRAGMA synchronous = NORMAL")  # with WAL, a process crash loses nothing
    _use_wal(connection)  # a backup without WAL may have replaced the file
    if version < SCHEMA:
        make_or_upgrade(connection, path)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, so that readers never wait for a writer."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:  # the busy timeout does not cover this pragma
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
