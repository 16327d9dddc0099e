"""A connection for the pipeline that opens on demand and closes before each fork."""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from kp_middleware.database._file import connect
from kp_middleware.forks import at_fork

logger = logging.getLogger("kp_middleware")

Identity: TypeAlias = tuple[int, int]
"""The identity of a file regardless of its name: its device and inode."""

_FORK_WAITS_S: Final = 3.0  # the first step imports a lot; a child could deadlock on it
_USE_WAITS_S: Final = 5.0  # as for another process that has locked the file
_IN_A_CHILD: Final = "this process was forked while its parent used the file"
_ANOTHER_FILE: Final = "%s is another file than before: what follows is in it"
_TAKEN: Final = "another thread uses the file, or forks this process"


class ForkLock:
    """A lock that threads share and a fork holds exclusively.

    A fork in the middle of Python or Rust code leaves locks held in the child, which then waits
    forever for an import or for a regular expression that is being compiled.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition(threading.RLock())
        self._at_work: dict[int, int] = {}
        self._forking = 0
        self._held = threading.local()

    def __enter__(self) -> None:
        """Delay forks until `__exit__`; reentrant."""
        if self._pid != os.getpid():
            raise TimeoutError(_IN_A_CHILD)
        thread = threading.get_ident()
        if thread in self._at_work:
            self._at_work[thread] += 1
            return
        if not self._changed.acquire(timeout=_USE_WAITS_S):
            raise TimeoutError(_TAKEN)
        try:
            if self._forking and not self._changed.wait_for(
                lambda: not self._forking, _USE_WAITS_S
            ):
                raise TimeoutError(_TAKEN)
            self._at_work[thread] = 1
        finally:
            self._changed.release()

    def __exit__(self, *_: object) -> None:
        if self._pid != os.getpid():
            return  # it may stay locked forever in the child
        thread = threading.get_ident()
        if self._at_work[thread] > 1:
            self._at_work[thread] -= 1
            return
        with self._changed:
            del self._at_work[thread]
            self._changed.notify_all()

    def shut(self) -> float:
        """Wait up to three seconds until no other thread holds the lock; return the deadline."""
        deadline = time.monotonic() + _FORK_WAITS_S
        self._held.is_ours = self._changed.acquire(timeout=_FORK_WAITS_S)
        if self._held.is_ours:
            self._forking += 1
            us = {threading.get_ident()}
            self._changed.wait_for(
                lambda: self._at_work.keys() <= us, max(0.0, deadline - time.monotonic())
            )
        return deadline

    def open(self) -> None:
        if self._held.is_ours:
            self._forking -= 1
            self._changed.notify_all()
            self._changed.release()


class _Forks:
    """The fork hooks, which close the files of this process before it forks."""

    def __init__(self) -> None:
        self.lock = ForkLock()
        self.files: WeakValueDictionary[int, Database] = WeakValueDictionary()
        self._shut = threading.local()
        self._left_to_the_parent: list[sqlite3.Connection] = []

    def before(self) -> None:
        """Close all files that are not in use, and let no thread use them."""
        deadline = self.lock.shut()
        self._shut.files = [file for file in self._all() if file.shut(deadline)]

    def after_in_parent(self) -> None:
        """Let the threads of the parent use the files again."""
        for file in self._shut.files:
            file.lock.release()
        self.lock.open()

    def after_in_child(self) -> None:
        """Keep connections open that could not be closed: closing could delete the parent's WAL."""
        still_open = (file.connection for file in self._all())
        self._left_to_the_parent += [one for one in still_open if one is not None]
        self.lock = ForkLock()
        self.files = WeakValueDictionary()

    def _all(self) -> "list[Database]":
        """Return the files as a list, because other threads may add some meanwhile."""
        found = (reference() for reference in self.files.valuerefs())
        return [file for file in found if file is not None]


_forks = _Forks()
at_fork(
    before=_forks.before,
    after_in_parent=_forks.after_in_parent,
    after_in_child=_forks.after_in_child,
)


def no_fork() -> ForkLock:
    """Return the lock that delays forks; use it in a `with` statement around one short step."""
    return _forks.lock


class Rows:
    """The rows of a statement, fetched at once so that its connection may be closed."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = iter(cursor.fetchall())
        self.description = cursor.description
        self.lastrowid = cursor.lastrowid

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class Database:
    """A `Connection` that opens its file on demand, and again after a fork has closed it.

    SQLite keeps the locks of a process in its memory, and a forked child holds none of them: no
    child may inherit an open file. A transaction holds our locks: forks and threads wait for it.

    If the path was removed or names another file by now, the connection is reopened: writes to an
    unlinked file would be lost.

    Attributes:
        file: The identity of the file opened last; None before the first use.
        in_transaction: True while a transaction is open.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.file: Identity | None = None
        self.in_transaction = False
        self.connection: sqlite3.Connection | None = None
        self.lock = threading.RLock()
        self._path = path
        self._read_only = read_only
        self._pid = os.getpid()
        self._users = 0
        self._thread = 0
        _forks.files[id(self)] = self

    def open(self) -> None:
        with self:
            pass

    def execute(self, sql: str, parameters: Any = (), /) -> Rows:
        while True:
            with self as connection:
                rows = Rows(connection.execute(sql, parameters))
                has_begun = connection.in_transaction and not self.in_transaction
                if not has_begun or self.file == self._on_disk():
                    return rows
                connection.rollback()  # the file was moved while we waited for the lock

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Rows:
        with self as connection:
            return Rows(connection.executemany(sql, parameters))

    def commit(self) -> None:
        with self as connection:
            connection.commit()

    def rollback(self) -> None:
        with self as connection:
            connection.rollback()

    def close(self) -> None:
        """Close the file until the next use."""
        if self._pid == os.getpid():
            self._hold()
            try:
                self._put_down()
            finally:
                self.__exit__()

    def shut(self, deadline: float) -> bool:
        """Close the file before a fork unless it is in use; return whether we hold its lock."""
        if not self.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        if not self._users:  # else this thread forks during its own statement
            with suppress(sqlite3.Error):
                self._put_down()
        return True

    def __enter__(self) -> sqlite3.Connection:
        """Return the open connection, for this thread alone."""
        self._hold()
        try:
            found = self.file if self.in_transaction else self._on_disk()
            if self.connection is None or self.file != found:
                self._put_down()  # SQLite does not touch the WAL of the new file
                self.connection = connect(self._path, read_only=self._read_only)
                before, self.file = self.file, found or self._on_disk()
                if before not in {None, self.file}:
                    logger.warning(_ANOTHER_FILE, self._path)
        except BaseException:
            self.__exit__()
            raise
        return self.connection

    def __exit__(self, *_: object) -> None:
        if self._pid != os.getpid():
            return
        self.in_transaction = self.connection is not None and self.connection.in_transaction
        if self._users > self.in_transaction:  # a transaction holds the locks once, to its end
            self._users -= 1
            self.lock.release()
            _forks.lock.__exit__()

    def _hold(self) -> None:
        if self._pid != os.getpid():
            raise sqlite3.OperationalError(_IN_A_CHILD)
        if self.in_transaction and self._thread == threading.get_ident():
            return  # it holds the locks
        try:
            _forks.lock.__enter__()
        except TimeoutError as error:
            raise sqlite3.OperationalError(str(error)) from error
        if not self.lock.acquire(timeout=_USE_WAITS_S):
            _forks.lock.__exit__()
            raise sqlite3.OperationalError(_TAKEN)
        self._users += 1
        self._thread = threading.get_ident()

    def _put_down(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _on_disk(self) -> Identity | None:
        try:
            stat = os.stat(self._path)  # noqa: PTH116 - asked for with each statement, and quicker
        except OSError:
            return None
        return stat.st_dev, stat.st_ino
