"""The SQLite file: permissions, locks, transactions, schema and errors."""

import errno
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, TypeAlias

from kp_middleware.errors import DatabaseError, describe_os_error

if TYPE_CHECKING:
    from kp_middleware.database._database import Database

logger = logging.getLogger("kp_middleware")

DATABASE_ERRORS: Final = (DatabaseError, sqlite3.Error)
"""The exceptions that opening and using the file may raise."""

TRANSIENT_ERRORS: Final = (DatabaseError, sqlite3.OperationalError)
"""The exceptions after which a retry may help: a lock, a full disk, a missing folder."""

_FIRST_RUN: Final = "record a run first, or import some with kp-middleware import"
_OTHER_FILE: Final = "name another file with KP_DB or --db"
"""The last-resort remedy."""

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_WRITABLE: Final = f"make the file and its folder writable for you, or {_OTHER_FILE}"
_PROBLEMS: Final = {
    sqlite3.SQLITE_NOTADB: ("is not an SQLite file", _OTHER_FILE),
    sqlite3.SQLITE_READONLY: ("cannot be written ({})", _WRITABLE),
    sqlite3.SQLITE_PERM: ("{}", _WRITABLE),
    sqlite3.SQLITE_FULL: ("{}", f"free disk space, or {_OTHER_FILE}"),
    sqlite3.SQLITE_BUSY: ("{}", "close the program that has locked it"),
    sqlite3.SQLITE_IOERR: (
        "{}",
        f"check the disk; if the file was removed, end all programs that use it; or {_OTHER_FILE}",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "{}",
        "restore the readable part: kp-middleware repair; or move the file away",
    ),
}


def is_damage(error: BaseException) -> bool:
    """Return True if the file is corrupt, so that retrying cannot help."""
    if isinstance(error, DatabaseError):
        error = error.__cause__ or error
    return primary_code(error) in _DAMAGED


def primary_code(error: BaseException) -> int:
    """Return SQLite's primary error code; 0 for another error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def to_database_error(path: Path, error: Exception) -> DatabaseError:
    """Convert an error to a `DatabaseError` with the path and a remedy."""
    if isinstance(error, DatabaseError):
        return error
    if isinstance(error, FileNotFoundError) and error.filename == path:
        return DatabaseError(path, "does not exist", f"{_FIRST_RUN}, or {_OTHER_FILE}")
    existing = path if os.access(path, os.F_OK) else path.parent
    if isinstance(error, PermissionError) and os.access(existing, os.R_OK):
        return DatabaseError(path, f"cannot be written ({error.strerror})", _WRITABLE)
    if isinstance(error, OSError):
        return DatabaseError(path, f"cannot be opened ({error.strerror})", _OTHER_FILE)
    unknown = "{}", f"check the folder and the disk, or {_OTHER_FILE}"
    problem, remedy = _PROBLEMS.get(primary_code(error), unknown)
    return DatabaseError(path, problem.format(error), remedy)


LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def exclusive_lock(lock: Path, *, waits: bool) -> Iterator[bool]:
    """Take an exclusive SQLite lock; yield True if taken, or on a drive without file locks."""
    make_private(lock)
    timeout_s, acquired = 0.5 if waits else 0.0, False  # SQLite ignores Ctrl-C while it waits
    with closing(sqlite3.connect(lock, timeout=timeout_s, isolation_level=None)) as connection:
        while not acquired:
            try:
                connection.execute("BEGIN EXCLUSIVE")
                acquired = True
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN:
                    raise
                acquired = error.sqlite_errorcode not in LOCKED
            if not waits:
                break
        yield acquired


Connection: TypeAlias = "sqlite3.Connection | Database"
"""A plain connection, or one that survives forks."""

BUSY_S: Final = 5.0
_BUSY_TO_READ_S: Final = 1.0  # readers wait only for an exclusive lock


_open_uri: Final = partial(
    sqlite3.connect,
    uri=True,
    isolation_level=None,  # group writes with `transaction`
    check_same_thread=False,  # users guard their connections with locks
    cached_statements=256,
)


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the file read-only, even in a folder that is not writable."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "No such file", path)
    path = path.resolve()
    wal = any(path.with_name(f"{path.name}{suffix}").exists() for suffix in ("-wal", "-shm"))
    can_use_wal = wal or os.access(path.parent, os.W_OK)
    options = "mode=ro" if can_use_wal else "mode=ro&immutable=1"
    return _open_uri(f"{path.as_uri()}?{options}", timeout=_BUSY_TO_READ_S)


def open_to_write(path: Path, *, busy_s: float = BUSY_S) -> sqlite3.Connection:
    for folder in reversed([folder for folder in path.parents if not folder.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)
    make_private(path)
    return _open_uri(f"{path.resolve().as_uri()}?mode=rw", timeout=busy_s)


def make_private(path: Path) -> None:
    """Create an empty file private to the user, unless it exists.

    An existing file is not opened: closing it would release SQLite's locks for other threads, and
    another process could then remove the WAL that they write to.
    """
    with suppress(FileExistsError):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        os.close(os.open(path.resolve(), flags, stat.S_IRUSR | stat.S_IWUSR))
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def permission_warning(path: Path) -> str | None:
    """Return a warning if every user of this machine may open the file, else None."""
    if os.name == "nt":  # the mode says nothing about permissions
        return None
    mode = path.expanduser().stat().st_mode & 0o777
    if not mode & stat.S_IRWXO:
        return None
    remedy = f"chmod 600 {quote(str(path))}*"
    return f"every user of this machine can open {path} (mode {mode:04o}): {remedy}"


def is_locked(path: Path) -> bool:
    """Return True if another program keeps the file from being written for longer than a second."""
    try:
        with closing(open_to_write(path, busy_s=1.0)) as connection, transaction(connection):
            return False
    except sqlite3.OperationalError as error:
        return primary_code(error) in LOCKED


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
        connection.execute("COMMIT")
    except BaseException:  # also if the commit fails, for example on a full disk
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


APPLICATION_ID: Final = 1263553869
"""The ``PRAGMA application_id`` of our files: the letters KPMM."""

SCHEMA: Final = 11
"""The current schema version: the ``PRAGMA user_version`` of ``schema.sql``."""

RELEASED: Final = 6
"""The only older version that was released: ``from_6.sql`` upgrades its rows."""


_VERSION: Final = """
    SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_application_id, pragma_user_version
"""  # one statement, one snapshot: another process may be creating the file


def _our_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version, 0 for an empty file."""
    try:
        ((application_id, version, tables),) = connection.execute(_VERSION)
    except UnicodeDecodeError as error:  # SQLite's message quotes the schema, which is damaged
        corrupt = sqlite3.DatabaseError("database disk image is malformed")
        corrupt.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise corrupt from error
    if application_id != APPLICATION_ID and any((application_id, version, tables)):
        raise DatabaseError(path, "is another program's SQLite file", _OTHER_FILE)
    return int(version)


def create_or_upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Create or upgrade the schema in one transaction; back up an older file first."""
    with transaction(connection):  # a second process waits here, then has nothing to do
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA:
            return
        if version:
            _back_up(path)
            _migrate(connection, version)
        else:
            _run(connection, "schema")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _back_up(path: Path) -> None:
    """Copy the file within its folder before an upgrade."""
    copy = path.with_name(f"{path.name}.before-{SCHEMA}")
    unfinished = copy.with_name(f"{copy.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        make_private(unfinished)
        source, target = open_to_read(path), _open_uri(unfinished.resolve().as_uri())
        with closing(source), closing(target):
            source.backup(target)
        unfinished.replace(copy)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        why = describe_os_error(error)
        problem = (
            f"is from an older kp-middleware, and cannot be backed up before upgrading ({why})"
        )
        raise DatabaseError(path, problem, "free disk space, or move it elsewhere") from error
    logger.info("%s: upgraded to schema %d; backup: %s", path, SCHEMA, copy)


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


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    """Create the current tables, copy the rows of the old ones, and fill new columns."""
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
    for name in reversed(tables):  # foreign keys reference the first ones
        connection.execute(f"DROP TABLE old_{name}")


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Run a script in the open transaction; ``executescript`` would commit first."""
    text = files("kp_middleware.database").joinpath(f"{script}.sql").read_text("utf-8")
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


_OPEN_ERRORS: Final = (sqlite3.Error, OSError, RuntimeError)  # the last: no home folder


def connect(
    path: str | Path, *, read_only: bool = False, wait_s: float | None = None
) -> sqlite3.Connection:
    """Open the database file, and upgrade its schema unless it is opened read-only.

    A new file is private to the user (mode 0600, its new folders 0700). The connection is in
    autocommit mode: write inside `transaction`. With ``wait_s``, it waits that long for locks
    while opening, then reads one snapshot without waiting.
    """
    path, connection = Path(path), None
    try:
        path = path.expanduser()
        connection = open_to_read(path) if read_only else open_to_write(path)
        if wait_s is not None:
            connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
        version = _our_version(connection, path)
        if unusable := _unusable(path, version, read_only=read_only):
            raise DatabaseError(path, *unusable)
        if not read_only:
            connection.execute("PRAGMA synchronous = NORMAL")  # WAL: a process crash loses nothing
            _use_wal(connection)  # a backup without WAL may have replaced the file
        if version < SCHEMA:
            create_or_upgrade(connection, path)
        connection.execute("PRAGMA foreign_keys = ON")  # after: a dropped table would be slow
        if wait_s is not None:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("BEGIN")
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, _OPEN_ERRORS):
            raise to_database_error(path, error) from error
        raise
    return connection


def schema_version(path: str | Path) -> int:
    path = Path(path)
    try:
        path = path.expanduser()
        with closing(open_to_read(path)) as connection:
            return _our_version(connection, path)
    except _OPEN_ERRORS as error:
        raise to_database_error(path, error) from error


def upgrade_file(path: Path) -> tuple[int, int, Path | None]:
    """Upgrade an existing file; return the old and new schema, and the backup if it changed."""
    before = schema_version(path)
    is_older = 0 < before < SCHEMA
    connect(path, read_only=not is_older).close()  # raises for an empty or newer file
    copy = path.expanduser().with_name(f"{path.name}.before-{SCHEMA}")
    return before, SCHEMA, copy if is_older else None


def _unusable(path: Path, version: int, *, read_only: bool) -> tuple[str, str] | None:
    if version > SCHEMA:
        return f"has schema {version}, from a newer kp-middleware", "upgrade kp-middleware"
    if read_only and not version:
        return "is empty", f"{_FIRST_RUN}, or {_OTHER_FILE}"
    if version not in {0, RELEASED, SCHEMA}:
        problem = f"has schema {version}, from an unreleased kp-middleware"
        return problem, f"move it away to start a new one, or {_OTHER_FILE}"
    if read_only and version < SCHEMA:
        remedy = f"upgrade it: kp-middleware migrate --db {quote(str(path))}"
        return "is from an older kp-middleware", remedy
    return None


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, so that readers never wait for a writer."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:  # the busy timeout does not cover this pragma
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
