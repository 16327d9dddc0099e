"""The SQLite file: how it is opened, who may read it, and which schema it has."""

import errno
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kp_middleware.errors import DatabaseError

if TYPE_CHECKING:
    from sqlite_utils import Database

logger = logging.getLogger("kp_middleware")

APPLICATION_ID: Final = 1263553869
"""``PRAGMA application_id`` of our files: the letters KPMM."""

MIGRATIONS: Final = ("0001_traces", "0002_waiting", "0003_questions", "0004_gates")
"""In the order in which they are applied: ``PRAGMA user_version`` counts them. Append only."""

TROUBLE: Final = (DatabaseError, sqlite3.Error)
"""What opening and using the file may raise."""

PASSING_TROUBLE: Final = (DatabaseError, sqlite3.OperationalError)
"""Of these, what may be over when it is tried again: a lock, a full disk, a missing folder."""

Connection: TypeAlias = sqlite3.Connection

_BUSY_S: Final = 5.0
_BUSY_TO_READ_S: Final = 1.0  # a reader waits for no writer, only for who keeps the file to himself
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ANOTHER: Final = "name another file with KP_DB or --db"
_WRITABLE: Final = f"make the file and its folder writable for you, or {_ANOTHER}"
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: f"make room on the disk, or {_ANOTHER}",
    sqlite3.SQLITE_READONLY: _WRITABLE,
    sqlite3.SQLITE_PERM: _WRITABLE,
    sqlite3.SQLITE_BUSY: "close the program that keeps it locked",
    sqlite3.SQLITE_CORRUPT: "the next program that records saves what it can, or move it away",
}


def connect(path: str | Path, *, read_only: bool = False) -> Connection:
    """Open the file of traces, and bring it to today's schema unless it is only read.

    The file is made for the user alone (mode 0600, its new folders 0700). The connection is in
    autocommit mode: write inside `transaction`.

    Raises:
        DatabaseError: If it cannot be opened, is another program's, or a newer version's.
    """
    path = Path(path)
    try:
        path = path.expanduser()
        connection = _open_to_read(path) if read_only else _open_to_write(path)
    except (sqlite3.Error, OSError, RuntimeError) as error:  # RuntimeError: there is no home
        raise in_words(path, error) from error
    try:
        _prepare(connection, path, read_only=read_only)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise in_words(path, error) from error
        raise
    return connection


def is_damage(error: BaseException) -> bool:
    """Whether this error says that the file's content is damaged: no second try will help."""
    if isinstance(error, DatabaseError):
        error = error.__cause__ or error
    return _primary_code(error) in _DAMAGED


def in_words(path: Path, error: Exception) -> DatabaseError:
    """The same error with the file's name, and with what the user can do."""
    if isinstance(error, DatabaseError):
        return error
    if isinstance(error, FileNotFoundError) and error.filename == path:
        return DatabaseError(path, "does not exist", f"record a run first, or {_ANOTHER}")
    if isinstance(error, OSError):
        return DatabaseError(path, f"cannot be opened ({error.strerror})", _ANOTHER)
    if _primary_code(error) == sqlite3.SQLITE_NOTADB:
        return DatabaseError(path, "is not an SQLite file", _ANOTHER)
    remedy = _REMEDIES.get(_primary_code(error), f"check the folder and the disk, or {_ANOTHER}")
    return DatabaseError(path, str(error), remedy)


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


def _open_to_read(path: Path) -> Connection:
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "No such file", path)
    path = path.resolve()
    options = "mode=ro&immutable=1" if _is_at_rest(path) else "mode=ro"
    return _connection(f"{path.as_uri()}?{options}", busy_s=_BUSY_TO_READ_S)


def _is_at_rest(path: Path) -> bool:
    """Whether nobody writes to a file now, and we could not make what SQLite wants beside it."""
    beside = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    return not os.access(path.parent, os.W_OK) and not any(file.exists() for file in beside)


def _open_to_write(path: Path) -> Connection:
    _make_folder(path.parent)
    make_private(path)
    return _connection(f"{path.resolve().as_uri()}?mode=rw")


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


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _connection(uri: str, *, busy_s: float = _BUSY_S) -> Connection:
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,  # each stage guards its connection with a lock of its own
        cached_statements=256,
    )


def _prepare(connection: Connection, path: Path, *, read_only: bool) -> None:
    version = _our_version(connection, path)
    if version > len(MIGRATIONS):
        raise DatabaseError(
            path, f"has schema {version}, of a newer kp-middleware", "upgrade kp-middleware"
        )
    if read_only and version < len(MIGRATIONS):
        raise DatabaseError(
            path, "is empty or of an older kp-middleware", "record a run: that brings it up to date"
        )
    connection.execute("PRAGMA foreign_keys = ON")
    if read_only:
        return
    connection.execute("PRAGMA synchronous = NORMAL")  # with WAL, a crash of the process loses none
    _use_wal(connection)  # also where a backup, which needs none, took the file's place
    if version < len(MIGRATIONS):
        _migrate(connection, path)


def _our_version(connection: Connection, path: Path) -> int:
    """The schema's version, 0 for an empty file."""
    connection.execute("BEGIN")  # one view of all three, while another process makes the file
    try:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    finally:
        connection.rollback()
    if application_id != APPLICATION_ID and any((application_id, version, tables)):
        raise DatabaseError(
            path, "is an SQLite file of another program", "name another file with KP_DB or --db"
        )
    return int(version)


def _use_wal(connection: Connection) -> None:
    """A reader never waits for a writer; set once, the file remembers."""
    deadline = time.monotonic() + _BUSY_S
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


def _migrate(connection: Connection, path: Path) -> None:
    from sqlite_utils import Database, Migrations  # here: it costs more than all other start-up

    with transaction(connection):  # a second process waits here, and finds nothing left to do
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if 0 < version < len(MIGRATIONS):
            _keep_a_copy(path)
        migrations = Migrations("kp_middleware")
        for name in MIGRATIONS[
            version:
        ]:  # user_version counts, also where the table of sqlite-utils is not there
            migrations(name=name)(_script(name))
        migrations.apply(Database(connection, execute_plugins=False))
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _keep_a_copy(path: Path) -> None:
    """What the file was before its schema changes, beside it; stays until the user removes it."""
    copy = path.with_name(f"{path.name}.before-{len(MIGRATIONS)}")
    unfinished = copy.with_name(f"{copy.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        make_private(unfinished)
        source, target = _open_to_read(path), _connection(unfinished.resolve().as_uri())
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


def _primary_code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
