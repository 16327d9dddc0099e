"""Which schema the file has, and how it is brought to today's."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kp_middleware.database._file import make_private, open_to_read, open_uri
from kp_middleware.database._transaction import transaction
from kp_middleware.database._trouble import ANOTHER
from kp_middleware.errors import DatabaseError

if TYPE_CHECKING:
    from sqlite_utils import Database

logger = logging.getLogger("kp_middleware")

APPLICATION_ID: Final = 1263553869
"""``PRAGMA application_id`` of our files: the letters KPMM."""

MIGRATIONS: Final = (
    "0001_traces",
    "0002_waiting",
    "0003_questions",
    "0004_gates",
    "0005_counts",
    "0006_tools",
    "0007_reasons",
    "0008_steps",
)
"""In the order in which they are applied: ``PRAGMA user_version`` counts them. Append only."""


def our_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema's version, 0 for an empty file.

    Raises:
        DatabaseError: If it is another program's.
    """
    connection.execute("BEGIN")  # one view of all three, while another process makes the file
    try:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    finally:
        connection.rollback()
    if application_id != APPLICATION_ID and any((application_id, version, tables)):
        raise DatabaseError(path, "is an SQLite file of another program", ANOTHER)
    return int(version)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply what is missing, all or nothing; a file that had a schema is copied before."""
    from sqlite_utils import Database, Migrations  # here: it costs more than all other start-up

    with transaction(connection):  # a second process waits here, and finds nothing left to do
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if 0 < version < len(MIGRATIONS):
            _keep_a_copy(path)
        migrations = Migrations("kp_middleware")
        missing = MIGRATIONS[version:]  # user_version counts, not the table of sqlite-utils
        for name in missing:
            migrations(name=name)(_script(name))
        migrations.apply(Database(connection, execute_plugins=False))
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def copy_before(path: Path) -> Path:
    """Where a file is copied to before it is brought to today's schema."""
    return path.with_name(f"{path.name}.before-{len(MIGRATIONS)}")


def _keep_a_copy(path: Path) -> None:
    """What the file was before its schema changes, beside it; stays until the user removes it."""
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
    logger.info("%s: brought to schema %d; as it was: %s", path, len(MIGRATIONS), copy)


def _script(name: str) -> "Callable[[Database], None]":
    def run(db: "Database") -> None:
        from importlib.resources import files  # here: commands that only read need it never

        script = files("kp_middleware").joinpath("migrations", f"{name}.sql").read_text("utf-8")
        for statement in _statements(script):
            db.conn.execute(statement)

    return run


def _statements(script: str) -> Iterator[str]:
    """One by one, because ``executescript`` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
