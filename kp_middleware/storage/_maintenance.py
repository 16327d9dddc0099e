"""Maintenance of the file: status, integrity check, backup and pruning."""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from kp_middleware.database import (
    APPLICATION_ID,
    Queries,
    connect,
    exclusive_lock,
    is_damage,
    make_private,
    to_database_error,
    transaction,
)
from kp_middleware.errors import DatabaseError
from kp_middleware.storage._store import MAY_HAVE_BEEN_SENT, Rescue


class FileStatus(NamedTuple):
    size_bytes: int  # with its WAL
    schema: int
    oldest: str | None
    newest: str | None
    waiting_since: Mapping[str, str]  # of the oldest ``unscored``, ``paused``, ``pending`` run
    registries: tuple[str, ...]
    dropped: int  # runs lost because the queue was full
    set_aside: tuple[str, ...]  # copies of damaged files


_STATUS: Final = """
    SELECT (SELECT min(started_at) FROM traces), (SELECT max(started_at) FROM traces),
           (SELECT started_at FROM traces WHERE score IS NULL AND state = 'recorded'
            ORDER BY seq LIMIT 1),
           (SELECT started_at FROM traces WHERE score IS NULL AND state = 'paused'
            ORDER BY seq LIMIT 1),
           (SELECT started_at FROM traces WHERE seq = (
              SELECT min(trace_seq) FROM outbox WHERE state IN ('pending', 'sending'))),
           (SELECT value FROM meta WHERE key = 'dropped')
"""
SQLITE_VERSION: Final = sqlite3.sqlite_version
"""The version of Python's SQLite library."""

_INTERVAL: Final = 20_000  # virtual instructions: less than a millisecond
_NO_SPACE: Final = "free disk space, or name another folder"
_DAMAGED: Final = (
    "is damaged, so a backup would be damaged too",
    "restore the readable part: kp-middleware repair; and try again",
)

Integrity: TypeAlias = Literal["sound", "damaged", "not known"]
"""The result of `check_integrity`; ``not known`` after a timeout."""


class Maintenance(Queries):
    def file_status(self, path: Path) -> FileStatus:
        oldest, newest, unscored, paused, pending, dropped = self._row(_STATUS)
        since = {"unscored": unscored, "paused": paused, "pending": pending}
        files = [file for file in (path, Path(f"{path}-wal")) if file.exists()]
        registries = "SELECT DISTINCT registry FROM outbox WHERE state IN ('pending', 'sending')"
        return FileStatus(
            size_bytes=sum(file.stat().st_size for file in files),
            schema=self._value("PRAGMA user_version"),
            oldest=oldest,
            newest=newest,
            waiting_since={name: began for name, began in since.items() if began},
            registries=(*self._column(registries),),
            dropped=int(dropped or 0),
            set_aside=(*map(str, _damaged_copies(path)),),
        )

    def check_integrity(self, *, limit_s: float = float("inf")) -> Integrity:
        """Check the integrity of the file's pages and rows, not of its indices."""
        return integrity_of(self._sqlite, limit_s)

    def back_up(self, into: Path, *, on_progress: Callable[[int, int], None]) -> int:
        """Write a consistent copy of the file, check it, and return its number of runs.

        Other programs continue writing without waiting; their WAL grows until the end. The copy
        has no WAL, to be readable from a read-only folder. ``VACUUM INTO`` is not used because it
        fails on a read-only file with generated columns (SQLite 3.40).
        """
        *_, source = self._row("PRAGMA database_list")
        try:
            with closing(sqlite3.connect(into)) as copy:
                self._run("BEGIN")
                try:
                    self._run("SELECT count(*) FROM meta")  # starts the snapshot
                    self._sqlite.backup(
                        copy,
                        pages=500,  # 2 MB: some milliseconds
                        progress=lambda _, left, total: on_progress(total - left, total),
                    )
                finally:
                    self._run("ROLLBACK")
                copy.execute("PRAGMA journal_mode = DELETE")  # a WAL needs a writable folder
                if integrity_of(copy) == "sound":
                    return int(copy.execute("SELECT count(*) FROM traces").fetchone()[0])
        except sqlite3.Error as error:
            if not is_damage(error):
                problem = f"cannot be written to ({error})"
                raise DatabaseError(into.parent, problem, _NO_SPACE) from error
            raise DatabaseError(source, *_DAMAGED) from error
        raise DatabaseError(source, *_DAMAGED)

    @property
    def _sqlite(self) -> sqlite3.Connection:
        return cast("sqlite3.Connection", self._connection)


def integrity_of(connection: sqlite3.Connection, limit_s: float = float("inf")) -> Integrity:
    until = time.monotonic() + limit_s
    connection.set_progress_handler(lambda: time.monotonic() > until, _INTERVAL)
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return "damaged"
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return "not known"
        raise
    finally:
        connection.set_progress_handler(None, 0)
    return "sound" if found == "ok" else "damaged"


_BATCH: Final = 8  # runs in one transaction: others wait for some milliseconds
_NEVER: Final = "9999"  # later than any instant
_SELECTED: Final = """
    FROM traces t
    WHERE t.seq > :after AND t.seq < :newest AND t.started_at < :before
      AND (:domain IS NULL OR t.domain = :domain) AND (:below IS NULL OR t.score < :below)
      AND (t.state IN ('scored', 'incomplete', 'failed') OR t.shared_seq IS -2 AND :unshipped)
      AND (t.shared_seq IS NOT -1 OR :unshipped)  -- to be shipped to the shared log
      AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.trace_seq = t.seq
                      AND o.state IN ('pending', 'sending', iif(:keep_sent, 'sent', 'sending')))
"""


PruneSelection: TypeAlias = Mapping[str, object]
"""The traces to remove, as parameters of the query."""


class Pruning(Queries):
    """Removal of traces from one file, in batches small enough not to block other programs."""

    def select(
        self,
        *,
        before: str | None = None,
        keep: int | None = None,
        domain: str | None = None,
        below: float | None = None,
        keep_sent: bool = False,
        unshipped: bool = False,
    ) -> PruneSelection:
        """Select the traces to remove.

        Retained are traces that started at ``before`` or later, the newest ``keep``, those of other
        domains than ``domain``, and those without a score or one of ``below`` or more.
        """
        newest = self._value(
            "SELECT seq FROM traces WHERE :domain IS NULL OR domain = :domain"
            " ORDER BY seq DESC LIMIT 1 OFFSET :kept",
            {"domain": domain, "kept": max(0, (keep or 0) - 1)},
        )
        limit = 0 if newest is None else newest + (not keep)  # 0: there are fewer
        retained = {"newest": limit, "before": before or _NEVER, "keep_sent": keep_sent}
        return {**retained, "domain": domain, "below": below, "unshipped": unshipped}

    def count(self, selection: PruneSelection) -> int:
        return int(self._value(f"SELECT count(*) {_SELECTED}", {**selection, "after": 0}))

    def batches(self, selection: PruneSelection) -> Iterator[int]:
        """Remove the selected traces, oldest first; yield the number removed by each batch."""
        batch = f"SELECT t.seq {_SELECTED} ORDER BY t.seq LIMIT {_BATCH}"
        unchanged = f"SELECT t.seq {_SELECTED} AND t.seq IN (SELECT value FROM json_each(:seqs))"
        last = 0
        # Select without the lock, which may take longer than others should wait.
        while seqs := self._column(batch, {**selection, "after": last}):
            last = seqs[-1]
            removed = self._column(
                f"DELETE FROM traces WHERE seq IN ({unchanged}) RETURNING seq",
                {**selection, "after": 0, "seqs": json.dumps(seqs)},
            )
            yield len(removed)


_TABLES: Final = {
    "traces": "seq",
    "steps": "trace_seq",
    "documents": "trace_seq",
    "asked": "trace_seq",
    "vectors": "seq",
    "estimates": "trace_seq",
    "outbox": "trace_seq",
    "waiting": "trace_seq",
    "feedback": "seq",
    "aliases": "trace_seq",
}
_INDEX_COMMANDS: Final = (
    "INSERT INTO traces_fts (traces_fts) VALUES ('{}')",
    "INSERT INTO asked_fts (asked_fts) VALUES ('{}')",
)

_BLOCK_POSSIBLY_SENT: Final = """
    INSERT INTO outbox (trace_seq, state, reason, registry, redactor, idempotency_key)
    SELECT seq, 'blocked', ?, ?, ?, '' FROM traces
    WHERE decision = 'forward' AND visibility <> 'private'
      AND coalesce(reason_args ->> 'delivery', '') NOT IN ('no_key', 'wrong_setting')
      AND seq IN (SELECT trace_seq FROM documents) AND seq NOT IN (SELECT trace_seq FROM outbox)
"""
_MAGIC: Final = b"SQLite format 3\0"
_AS_BYTES: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # Windows would convert line ends


def rescue(path: Path, *, registry: str, redactor: str) -> Rescue | None:
    """Set aside a copy of a damaged file, and restore the readable rows in place.

    The path and inode stay the same, because other processes have the file open, and SQLite finds
    a WAL by name. They see the change like any transaction.

    A forwarded trace that has lost its outbox item may have been sent: it is blocked.
    """
    path = path.resolve()
    try:
        with exclusive_lock(path.with_name(f"{path.name}.rescue-lock"), waits=False) as is_locked:
            descriptor = _open_ours(path) if is_locked and _is_damaged(path) else None
            if descriptor is None:
                return None
            return _rescue(path, descriptor, (MAY_HAVE_BEEN_SENT, registry, redactor))
    except (OSError, sqlite3.Error) as error:
        raise to_database_error(path, error) from error


def _open_ours(path: Path) -> int | None:
    """Open the file as bytes; return None if its header names another program."""
    descriptor = os.open(path, _AS_BYTES)
    header = os.read(descriptor, 72)
    is_cut = len(header) < 72  # too short for an application id: nothing to lose
    if header.startswith(_MAGIC) and (is_cut or header[68:] == APPLICATION_ID.to_bytes(4)):
        return descriptor  # stays open: closing it would release SQLite's locks
    os.close(descriptor)
    return None


def _is_damaged(path: Path) -> bool:
    try:
        with closing(connect(path)) as connection:
            for command in _INDEX_COMMANDS:
                connection.execute(command.format("integrity-check"))
            return integrity_of(connection) == "damaged"
    except Exception as error:
        if is_damage(error):
            return True
        raise


def _rescue(path: Path, descriptor: int, blocked: tuple[str, str, str]) -> Rescue:
    aside = path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    fresh = path.with_name(f"{path.name}.rescued")
    _remove(fresh)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as old:
            old.text_factory = lambda raw: raw.decode("utf-8", "replace")
            old.execute("PRAGMA writable_schema = ON")  # else a truncated file is unreadable
            old.execute("BEGIN IMMEDIATE")  # no other process writes to it
            _copy_damaged(descriptor, path, aside)
            with closing(connect(fresh)) as new:
                traces = _copy_rows(old, new, blocked)
                old.rollback()
                new.backup(old)
    finally:
        _remove(fresh)
    for older in _damaged_copies(path)[:-3]:  # a failing disk may damage it repeatedly
        _remove(older)
    return Rescue(aside, traces)


def _damaged_copies(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{escape(path.name)}.corrupt-*Z"))


def _copy_damaged(descriptor: int, path: Path, aside: Path) -> None:
    """Copy the file and its WAL byte by byte, for later examination."""
    make_private(aside)
    os.lseek(descriptor, 0, os.SEEK_SET)
    with aside.open("wb") as copy:
        while chunk := os.read(descriptor, 1 << 20):
            copy.write(chunk)
    with suppress(FileNotFoundError), Path(f"{path}-wal").open("rb") as wal:
        make_private(Path(f"{aside}-wal"))  # closing a WAL releases no locks of SQLite's
        with Path(f"{aside}-wal").open("wb") as copy:
            shutil.copyfileobj(wal, copy)


def _remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)


def _copy_rows(
    old: sqlite3.Connection, new: sqlite3.Connection, blocked: tuple[str, str, str]
) -> int:
    new.execute("PRAGMA foreign_keys = OFF")
    with transaction(new):
        for table, key in _TABLES.items():
            shared = sorted(_columns(new, table) & _columns(old, table))
            columns, values = ", ".join(shared), ", ".join("?" * len(shared))
            insert = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({values})"
            select = f"SELECT {key}, {columns} FROM {table} WHERE {key} >= ? ORDER BY {key}"
            for row in _readable(old, select) if shared else ():
                with suppress(sqlite3.IntegrityError):  # overwritten rows may be invalid
                    new.execute(insert, row)
        _repair_references(new)
        new.execute(_BLOCK_POSSIBLY_SENT, blocked)
        for command in _INDEX_COMMANDS:
            new.execute(command.format("rebuild"))
    (traces,) = new.execute("SELECT count(*) FROM traces").fetchone()
    return int(traces)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    with suppress(sqlite3.DatabaseError):
        return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
    return set()


def _readable(old: sqlite3.Connection, select: str) -> Iterator[Sequence[object]]:
    """Yield the readable rows in the order of their keys.

    After an unreadable key the next ones are tried in growing steps: after a large damaged part,
    rows up to 1 % of its size may be lost.
    """
    key, step = 0, 1.0
    while key < 2**40:  # a damaged page may contain any number
        last = key
        try:
            for row_key, *row in old.execute(select, (key,)):
                yield row
                if isinstance(row_key, int):  # a damaged page may hold anything
                    if key < last <= row_key:  # confirmed by the next row
                        key, step = last, 1.0
                    last = row_key
            return
        except sqlite3.DatabaseError:
            key, step = key + int(step), step * 1.01


def _repair_references(new: sqlite3.Connection) -> None:
    """Remove rows without a trace, and fail unfinished traces that lost their data."""
    new.execute("UPDATE vectors SET trace_seq = (SELECT seq FROM traces WHERE id = key)")
    for table in _TABLES.keys() - {"traces", "vectors"}:
        new.execute(f"DELETE FROM {table} WHERE trace_seq NOT IN (SELECT seq FROM traces)")
    new.execute(
        "UPDATE traces SET nearest_seq = NULL WHERE nearest_seq NOT IN (SELECT seq FROM traces)"
    )
    new.execute(
        """
        UPDATE traces SET state = 'failed', reason_code = 'damaged', reason_args = NULL
        WHERE (state IN ('recorded', 'paused') AND seq NOT IN (SELECT trace_seq FROM documents))
           OR (state = 'paused' AND seq NOT IN (SELECT trace_seq FROM waiting))
        """
    )
    new.execute(
        "DELETE FROM waiting WHERE trace_seq NOT IN (SELECT seq FROM traces WHERE state = 'paused')"
    )
