"""A connection that opens on demand and closes before each fork, and base classes for queries."""

import json
import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from kp_middleware.database._file import Connection, connect, transaction
from kp_middleware.forks import at_fork

logger = logging.getLogger("kp_middleware")

T = TypeVar("T")
Values: TypeAlias = Mapping[str, Any] | tuple[Any, ...]
FileIdentity: TypeAlias = tuple[int, int]
"""The identity of a file regardless of its name: its device and inode."""

_FORK_TIMEOUT_S: Final = 3.0  # the first step has many imports, on which a child could deadlock
_LOCK_TIMEOUT_S: Final = 5.0  # as SQLite's busy timeout
_FORKED: Final = "this process was forked while its parent was using the file"
_REPLACED: Final = "%s was replaced: from now on, runs are written to the new file"
_BUSY: Final = "another thread is using the file or forking this process"


class ForkLock:
    """A lock that threads share and a fork takes exclusively; a fork closes the database files.

    A child that is forked in the middle of Python or Rust code inherits held locks: it would wait
    forever for an import, or for a regular expression that is being compiled.
    """

    def __init__(self) -> None:
        self._parents_connections: list[sqlite3.Connection] = []
        self._held = threading.local()
        self._clear()

    def _clear(self) -> None:
        self.files: WeakValueDictionary[int, Database] = WeakValueDictionary()
        self._changed = threading.Condition(threading.RLock())
        self._users: dict[int, int] = {}
        self._forking = 0

    def __enter__(self) -> None:
        """Delay forks until `__exit__`; reentrant."""
        thread = threading.get_ident()
        if thread in self._users:
            self._users[thread] += 1
            return
        if not self._changed.acquire(timeout=_LOCK_TIMEOUT_S):
            raise TimeoutError(_BUSY)
        try:
            if self._forking and not self._changed.wait_for(
                lambda: not self._forking, _LOCK_TIMEOUT_S
            ):
                raise TimeoutError(_BUSY)
            self._users[thread] = 1
        finally:
            self._changed.release()

    def __exit__(self, *_: object) -> None:
        thread = threading.get_ident()
        if self._users.get(thread, 0) > 1:
            self._users[thread] -= 1
        elif thread in self._users:  # else the parent of this process has entered
            with self._changed:
                del self._users[thread]
                self._changed.notify_all()

    def before(self) -> None:
        """Wait up to three seconds for other threads to leave, and close the files."""
        deadline = time.monotonic() + _FORK_TIMEOUT_S
        self._held.is_ours = self._changed.acquire(timeout=_FORK_TIMEOUT_S)
        if self._held.is_ours:
            self._forking += 1
            own = {threading.get_ident()}
            self._changed.wait_for(
                lambda: self._users.keys() <= own, max(0.0, deadline - time.monotonic())
            )
        for file in self._all_files():
            file.close_for_fork()

    def after_in_parent(self) -> None:
        if self._held.is_ours:
            self._forking -= 1
            self._changed.notify_all()
            self._changed.release()

    def after_in_child(self) -> None:
        """Hold on to connections that are still open: closing could delete the parent's WAL."""
        still_open = (file.connection for file in self._all_files())
        self._parents_connections += filter(None, still_open)
        self._clear()

    def _all_files(self) -> "list[Database]":
        """Return a list, because other threads may add files meanwhile."""
        return [*filter(None, (reference() for reference in self.files.valuerefs()))]


fork_lock: Final = ForkLock()
"""The lock that delays forks: enter it for one short step at a time."""

at_fork(
    before=fork_lock.before,
    after_in_parent=fork_lock.after_in_parent,
    after_in_child=fork_lock.after_in_child,
)


class Rows(list[Any]):
    """All rows of a statement, fetched so that its connection can be closed."""

    description: Any = None
    lastrowid: int | None = None

    def fetchall(self) -> list[Any]:
        return self


class Database:
    """A connection that opens its file on demand, and again after a fork has closed it.

    SQLite tracks the locks of a process in memory, and a forked child holds none of them, so no
    child may inherit an open file. Forks and other threads wait for an open transaction.

    The connection is reopened if the file was removed or replaced, because writes to an unlinked
    file would be lost.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.file: FileIdentity | None = None  # the last that was opened
        self.in_transaction = False
        self.connection: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        self._path = path
        self._read_only = read_only
        self._pid = os.getpid()
        self._users = 0
        self._thread = 0
        fork_lock.files[id(self)] = self

    def execute(self, sql: str, parameters: Any = (), /) -> Rows:
        while True:
            with self as connection:
                cursor = connection.execute(sql, parameters)
                has_begun = connection.in_transaction and not self.in_transaction
                if not has_begun or self.file == self._file_identity():
                    rows = Rows(cursor.fetchall())
                    rows.description, rows.lastrowid = cursor.description, cursor.lastrowid
                    return rows
                connection.rollback()  # the file was moved while we waited for the lock

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> None:
        with self as connection:
            connection.executemany(sql, parameters)

    def close(self) -> None:
        if self._pid == os.getpid():
            self._acquire()
            try:
                self._disconnect()
            finally:
                self.__exit__()

    def close_for_fork(self) -> None:
        """Close the file before a fork unless it is in use."""
        if self._lock.acquire(blocking=False):
            with suppress(sqlite3.Error):
                if not self._users:  # else this thread forks during its own statement
                    self._disconnect()
            self._lock.release()

    def __enter__(self) -> sqlite3.Connection:
        """Return the open connection, for this thread alone."""
        self._acquire()
        try:
            current = self.file if self.in_transaction else self._file_identity()
            if self.connection is None or self.file != current:
                self._disconnect()  # SQLite does not touch the WAL of the new file
                self.connection = connect(self._path, read_only=self._read_only)
                before, self.file = self.file, current or self._file_identity()
                if before not in {None, self.file}:
                    logger.warning(_REPLACED, self._path)
        except BaseException:
            self.__exit__()
            raise
        return self.connection

    def __exit__(self, *_: object) -> None:
        if self._pid != os.getpid():
            return
        self.in_transaction = self.connection is not None and self.connection.in_transaction
        if self._users > self.in_transaction:  # a transaction holds the locks until its end
            self._users -= 1
            self._lock.release()
            fork_lock.__exit__()

    def _acquire(self) -> None:
        if self._pid != os.getpid():
            raise sqlite3.OperationalError(_FORKED)
        if self.in_transaction and self._thread == threading.get_ident():
            return  # the transaction holds the locks
        try:
            fork_lock.__enter__()
        except TimeoutError as error:
            raise sqlite3.OperationalError(str(error)) from error
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            fork_lock.__exit__()
            raise sqlite3.OperationalError(_BUSY)
        self._users += 1
        self._thread = threading.get_ident()

    def _disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _file_identity(self) -> FileIdentity | None:
        try:
            stat = os.stat(self._path)  # noqa: PTH116 - faster, for each statement
        except OSError:
            return None
        return stat.st_dev, stat.st_ino


_CASTS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    bool: bool,
    bool | None: lambda value: None if value is None else bool(value),
    Mapping[str, int]: lambda text: json.loads(text or "{}"),
    Mapping[str, Any]: lambda text: json.loads(text or "{}"),
    tuple[str, ...]: lambda text: tuple(json.loads(text or "[]")),
    Any: lambda text: json.loads(text or "null"),
}
"""Converters for types that SQLite lacks, by the annotation of a record's field."""
DISTINCT: Final = """
    WITH RECURSIVE names(name) AS (
      SELECT min({column}) FROM {table} WHERE {column} >= :start
      UNION ALL SELECT (SELECT min({column}) FROM {table} WHERE {column} > name) FROM names
      WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name < :end LIMIT :limit
"""
"""The distinct values of an indexed column: one index look-up each, fast for large files."""


class Queries:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._run = connection.execute

    def _add(self, table: str, **row: Any) -> int:
        names = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        cursor = self._run(f"INSERT INTO {table} ({names}) VALUES ({values})", row)
        return cursor.lastrowid or 0

    def _write_each(self, sql: str, rows: Iterable[Values]) -> None:
        with transaction(self._connection):
            self._connection.executemany(sql, rows)

    def _row(self, sql: str, values: Values = ()) -> Any:
        """Return the first row; None if there is none."""
        return next(iter(self._run(sql, values)), None)

    def _value(self, sql: str, values: Values = ()) -> Any:
        return next((value for value, *_ in self._run(sql, values)), None)

    _seq: Callable[..., int | None] = _value
    _text: Callable[..., str | None] = _value

    def _column(self, sql: str, values: Values = ()) -> list[Any]:
        return [row[0] for row in self._run(sql, values)]

    def _each(self, kind: Callable[..., T], sql: str, values: Values = ()) -> Iterator[T]:
        """Yield the rows as records, whose fields are the columns in order."""
        casts = [(index, cast) for index, (_, cast) in enumerate(_fields(kind)) if cast]
        for row in self._run(sql, values):
            fields = [*row]
            for index, cast in casts:
                fields[index] = cast(fields[index])
            yield kind(*fields)

    def _all(self, kind: Callable[..., T], sql: str, values: Values = ()) -> list[T]:
        return [*self._each(kind, sql, values)]

    def _one(self, kind: Callable[..., T], sql: str, values: Values = ()) -> T | None:
        return next(iter(self._all(kind, sql, values)), None)

    def _meta(self, key: str) -> str | None:
        return self._text("SELECT value FROM meta WHERE key = ?", (key,))

    def _named(self, sql: str, values: Values = ()) -> list[dict[str, Any]]:
        cursor = self._run(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def from_row(kind: Callable[..., T], row: Mapping[str, Any], **other: Any) -> T:
    """Return a row as a record: fields are columns by name, or given as ``other``."""
    values = {
        name: cast(row[name]) if cast else row[name]
        for name, cast in _fields(kind)
        if name not in other
    }
    return kind(**values, **other)


@cache
def _fields(kind: Callable[..., Any]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    annotations = getattr(kind, "__annotations__", {})
    return [(name, _CASTS.get(annotation)) for name, annotation in annotations.items()]


def prefix_range(prefix: str, *, limit: int) -> dict[str, str | int]:
    """Return the parameters of `DISTINCT` for the values with a prefix."""
    return {"start": prefix, "end": prefix + chr(sys.maxunicode), "limit": limit}


_CHUNK: Final = 1024  # rows: 1.6 MB

# One row per thousand vectors: sqlite3 releases the GIL for each row, and waits 5 ms for a busy
# agent. Flat lists: a list per vector would trigger the garbage collector, 25 ms with the GIL.
_SINCE: Final = f"""
    SELECT json_group_array(seq), json_group_array(added_at_ms), json_group_array(key),
           CAST(group_concat(vector, '') AS BLOB)
    FROM (SELECT seq, added_at_ms, key, vector FROM vectors
          WHERE embedder = ? AND seq > ? AND length(vector) = ? AND added_at_ms > ?
          ORDER BY seq LIMIT {_CHUNK})
"""


class StoredVectors(NamedTuple):
    """A chunk of vectors as columns, oldest first."""

    units: bytes  # float32, little-endian, concatenated; each of unit length or all zero
    keys: Sequence[str | None]
    stamps_ms: Sequence[int]  # since the epoch
    seqs: Sequence[int]


class VectorTable(Queries):
    """The vectors of one file; those that a trace owns are deleted with it."""

    def __init__(self, connection: Connection, dimensions: int = 384) -> None:
        super().__init__(connection)
        self._size_bytes = 4 * dimensions

    def seq_before_newest(self, embedder: str, limit: int) -> int:
        """Return the ``seq`` before the last ``limit`` rows of an embedder; 0 if there is none."""
        seq = self._value(
            "SELECT seq FROM vectors WHERE embedder = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (embedder, limit),
        )
        return int(seq or 0)

    def since(
        self, embedder: str, seq: int, *, after_ms: int | None = None
    ) -> Iterator[StoredVectors]:
        """Yield an embedder's vectors of all processes after a ``seq``, in order and in chunks."""
        while True:
            *columns, units = self._row(
                _SINCE, (embedder, seq, self._size_bytes, -1 if after_ms is None else after_ms)
            )
            if units is None:
                return
            seqs, stamps_ms, keys = map(json.loads, columns)
            yield StoredVectors(units, keys, stamps_ms, seqs)
            if len(seqs) < _CHUNK:
                return
            seq = seqs[-1]

    def embedders(self) -> list[str]:
        sql = DISTINCT.format(table="vectors", column="embedder")
        return self._column(sql, prefix_range("", limit=-1))

    def last_seq(self) -> int:
        return int(self._value("SELECT coalesce(max(seq), 0) FROM vectors"))

    def insert(self, embedder: str, unit: bytes, *, key: str | None, added_at_ms: int) -> int:
        """Insert a row, owned by the trace whose id is ``key`` if stored; return its ``seq``."""
        cursor = self._run(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " VALUES ((SELECT seq FROM traces WHERE id = ?), ?, ?, ?, ?)",
            (key, key, embedder, added_at_ms, unit),
        )
        return cursor.lastrowid or 0

    def delete(self, seqs: Iterable[int]) -> None:
        """Delete these rows unless a trace owns them."""
        sql = "DELETE FROM vectors WHERE seq = ? AND trace_seq IS NULL"
        self._write_each(sql, ((seq,) for seq in seqs))

    def delete_unowned(self, *, up_to_ms: int | None = None) -> None:
        """Delete the rows without a trace, optionally only those added until a time."""
        self._run(
            "DELETE FROM vectors WHERE trace_seq IS NULL AND (?1 IS NULL OR added_at_ms <= ?1)",
            (up_to_ms,),
        )
