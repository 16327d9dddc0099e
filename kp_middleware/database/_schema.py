"""The schema of the database file: creation and upgrades."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from kp_middleware.database._file import make_private, open_to_read, open_uri, transaction
from kp_middleware.database._trouble import ANOTHER
from kp_middleware.errors import DatabaseError

logger = logging.getLogger("kp_middleware")

APPLICATION_ID: Final = 1263553869
"""The ``PRAGMA application_id`` of our files: the letters KPMM."""

SCHEMA: Final = 8
"""The current schema version: the ``PRAGMA user_version`` of ``schema.sql``."""

OLDEST: Final = 6
"""The oldest version that can be upgraded: ``from_6.sql`` leads to 7, ``from_7.sql`` to 8."""


def our_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version, 0 for an empty file.

    Raises:
        DatabaseError: If the file belongs to another program.
    """
    connection.execute("BEGIN")  # one snapshot: another process may be creating the file
    try:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    finally:
        connection.rollback()
    if application_id != APPLICATION_ID and any((application_id, version, tables)):
        raise DatabaseError(path, "is an SQLite file of another program", ANOTHER)
    return int(version)


def too_old(path: Path, version: int) -> DatabaseError:
    """Return the error for a file from before the first release, which cannot be upgraded."""
    problem = f"has schema {version}, of a kp-middleware that was never released"
    return DatabaseError(path, problem, f"move it away, and a new one is begun, or {ANOTHER}")


def make_or_upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Create or upgrade the schema in one transaction; copy an older file first."""
    with transaction(connection):  # a second process waits here, then has nothing to do
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA:
            return
        if version:
            _keep_a_copy(path)
        for script in (
            [f"from_{step}" for step in range(version, SCHEMA)] if version else ["schema"]
        ):
            _run(connection, script)
        connection.execute("DROP TABLE IF EXISTS _sqlite_migrations")
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
