"""The schema of the file: connections that create it or bring it over."""

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

from kp_middleware.database._file import (
    ANOTHER,
    BUSY_S,
    in_words,
    make_private,
    open_to_read,
    open_to_write,
    open_uri,
    transaction,
)
from kp_middleware.errors import DatabaseError

logger = logging.getLogger("kp_middleware")

APPLICATION_ID: Final = 1263553869
"""The ``PRAGMA application_id`` of our files: the letters KPMM."""

SCHEMA: Final = 11
"""The current schema version: the ``PRAGMA user_version`` of ``schema.sql``."""

RELEASED: Final = 6
"""The only other version that was released: ``from_6.sql`` fills in what its rows lack."""


def our_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version, 0 for an empty file."""
    connection.execute("BEGIN")  # one snapshot: another process may be creating the file
    try:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except UnicodeDecodeError as error:  # SQLite's message quotes the schema, which is damaged
        corrupt = sqlite3.DatabaseError("database disk image is malformed")
        corrupt.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise corrupt from error
    finally:
        connection.rollback()
    if application_id != APPLICATION_ID and any((application_id, version, tables)):
        raise DatabaseError(path, "is an SQLite file of another program", ANOTHER)
    return int(version)


def make_or_upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Create or upgrade the schema in one transaction; copy an older file first."""
    with transaction(connection):  # a second process waits here, then has nothing to do
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA:
            return
        if version:
            _keep_a_copy(path)
            _bring_over(connection, version)
        else:
            _run(connection, "schema")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")


def copy_before(path: Path) -> Path:
    """Return the path of the copy that is made before an upgrade."""
    return path.with_name(f"{path.name}.before-{SCHEMA}")


def _keep_a_copy(path: Path) -> None:
    """Copy the file within its folder before an upgrade; the user may remove the copy."""
    copy = copy_before(path)
    unfinished = copy.with_name(f"{copy.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        make_private(unfinished)
        source, target = open_to_read(path), open_uri(unfinished.resolve().as_uri())
        with closing(source), closing(target):
            source.backup(target)
        unfinished.replace(copy)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        problem = f"is of an older kp-middleware, and cannot be copied before it changes ({error})"
        raise DatabaseError(path, problem, "make room beside it, or move it elsewhere") from error
    logger.info("%s: brought to schema %d; as it was: %s", path, SCHEMA, copy)


_ABOUT_TABLES: Final = """
    SELECT type, name FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL
    UNION ALL SELECT 'TABLE', name FROM sqlite_schema
    WHERE sql LIKE 'CREATE VIRTUAL %' OR name = '_sqlite_migrations'
"""
_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
_SHARED: Final = """
    SELECT group_concat(name)
    FROM pragma_table_info(:name) JOIN pragma_table_info('old_' || :name) USING (name)
"""


def _bring_over(connection: sqlite3.Connection, version: int) -> None:
    """Make today's tables, copy what older ones have, and fill in what they lack."""
    for kind, name in connection.execute(_ABOUT_TABLES).fetchall():
        connection.execute(f"DROP {kind} {name}")
    tables = [name for (name,) in connection.execute(_TABLES)]
    for name in tables:
        connection.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    _run(connection, "schema")
    for name in tables:
        ((columns,),) = connection.execute(_SHARED, {"name": name})
        connection.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM old_{name}")
    connection.execute("DELETE FROM sqlite_sequence WHERE name NOT LIKE 'old_%'")
    connection.execute("UPDATE sqlite_sequence SET name = substr(name, 5)")
    _run(connection, f"from_{version}")
    for name in reversed(tables):  # foreign keys lead to the first ones
        connection.execute(f"DROP TABLE old_{name}")


def _run(connection: sqlite3.Connection, script: str) -> None:
    text = files("kp_middleware.database").joinpath(f"{script}.sql").read_text("utf-8")
    for statement in _statements(text):
        connection.execute(statement)


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, because ``executescript`` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def connect(
    path: str | Path, *, read_only: bool = False, wait_s: float | None = None
) -> sqlite3.Connection:
    """Open the database file, and upgrade its schema unless it is opened read-only.

    A new file is private to the user (mode 0600, its new folders 0700). The connection is in
    autocommit mode: write inside `transaction`. It waits for locks as usual; with ``wait_s``
    so long while the file is opened, then no more: it is read as it was at one instant.
    """
    path, connection = _opened(Path(path), read_only=read_only)
    try:
        if wait_s is not None:
            connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        _prepare(connection, path, read_only=read_only)
        if wait_s is not None:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("BEGIN")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise in_words(path, error) from error
        raise
    return connection


def schema_of(path: str | Path) -> int:
    """Return the schema version of an existing file, 0 for an empty one."""
    path, connection = _opened(Path(path), read_only=True)
    with closing(connection):
        try:
            return our_version(connection, path)
        except sqlite3.Error as error:
            raise in_words(path, error) from error


class Upgrade(NamedTuple):
    """The result of a schema upgrade."""

    before: int
    now: int
    copy: Path | None  # of the old file; None: the schema was current


def bring_up_to_date(path: Path) -> Upgrade:
    """Upgrade an existing file to the current schema; leave a current one unchanged."""
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
    if version not in {0, RELEASED, SCHEMA}:
        problem = f"has schema {version}, of a kp-middleware that was never released"
        raise DatabaseError(path, problem, f"move it away, and a new one is begun, or {ANOTHER}")
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
