"""A connection that rests where it can: no fork takes it along."""

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from kp_middleware.database import connect
from kp_middleware.storage._fork_gate import ForkGate

logger = logging.getLogger("kp_middleware")

Identity: TypeAlias = tuple[int, int]
"""Of a file, whatever it is called: its device and inode."""

_left_open: Final[list[sqlite3.Connection]] = []


class RestingConnection(sqlite3.Connection):
    """Opens the file of traces when it is used, and again after a fork has closed it.

    Where there is another file of this name meanwhile, or none, because somebody set it aside or
    removed it, that one is opened: what is written to a file without a name is lost.

    A `sqlite3.Connection` by its type alone, and as much of one as our stages need: statements go
    to another, which comes and goes between two transactions.

    Args:
        path: Of the file.
        read_only: Whether it is only read: then it must exist.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._gate = ForkGate()
        self._in_transaction = False
        self._file: Identity | None = None

    @property
    def file(self) -> Identity | None:
        """Which file it is that was opened last; None before the first use."""
        return self._file

    @property
    def in_transaction(self) -> bool:
        """Whether there is a transaction to commit; no fork closes the file in the midst of it."""
        return self._in_transaction

    def open(self) -> None:
        """Open the file now.

        Raises:
            DatabaseError: As `connect` does; so does every use.
            sqlite3.OperationalError: If a fork or another thread takes too long; so does every use.
        """
        with self._used():
            pass

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        began = False
        while not began:
            with self._used() as connection:
                fetched = _Fetched(connection.execute(sql, parameters))
                began = self._in_transaction or not connection.in_transaction or not self._moved()
                if not began:
                    connection.rollback()  # it was set aside while we waited for our turn
        return fetched

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        with self._used() as connection:
            return _Fetched(connection.executemany(sql, parameters))

    def commit(self) -> None:
        with self._used() as connection:
            connection.commit()

    def rollback(self) -> None:
        with self._used() as connection:
            connection.rollback()

    def close(self) -> None:
        """Close the file, until the next use."""
        self._enter()
        try:
            self._gate.put_down()
            self._stay(in_transaction=False)
        finally:
            self._gate.leave()

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        self._enter()
        try:
            connection = self._opened()
            try:
                yield connection
            finally:
                self._stay(in_transaction=connection.in_transaction)
        finally:
            self._gate.leave()

    def _opened(self) -> sqlite3.Connection:
        if self._gate.connection is not None and not self._in_transaction and self._moved():
            _leak(self._gate.connection)
            self._gate.connection = None
        if self._gate.connection is None:
            found = self._on_disk()
            self._gate.connection = connect(self._path, read_only=self._read_only)
            before, self._file = self._file, found or self._on_disk()
            if before not in {None, self._file}:
                logger.warning("%s is another file than before: what follows is in it", self._path)
        return self._gate.connection

    def _moved(self) -> bool:
        return self._on_disk() != self._file

    def _on_disk(self) -> Identity | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - asked for with each statement, and quicker
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _enter(self) -> None:
        try:
            self._gate.enter()
        except TimeoutError as error:
            raise sqlite3.OperationalError(str(error)) from error

    def _stay(self, *, in_transaction: bool) -> None:
        """From its first statement to its last, a transaction is inside the gate."""
        before, self._in_transaction = self._in_transaction, in_transaction
        if in_transaction and not before:
            self._gate.enter()
        elif before and not in_transaction:
            self._gate.leave()


def _leak(connection: sqlite3.Connection) -> None:
    """Never close it, nor at exit: SQLite would remove the WAL of its name, now another file's."""
    import ctypes  # rarely needed

    _left_open.append(connection)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


class _Fetched(sqlite3.Cursor):
    """What a statement returned, which can be read when its connection is closed."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows: Iterator[Any] = iter(cursor.fetchall())
        self._last_row_id = cursor.lastrowid

    @property
    def lastrowid(self) -> int | None:
        return self._last_row_id

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> "_Fetched":
        return self

    def __next__(self) -> Any:
        return next(self._rows)
