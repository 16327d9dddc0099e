"""Recovery of a damaged file: a copy is set aside, and readable rows are kept."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Final

from kp_middleware.database import APPLICATION_ID, alone, connect, in_words, is_damage, transaction
from kp_middleware.storage._store import Rescue

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
_OWN_KEYS: Final = ("vectors", "feedback")  # which are not those of traces
_TRACE_KEYS: Final = {**_TABLES, **dict.fromkeys(_OWN_KEYS, "trace_seq")}
_WORDS: Final = (
    "INSERT INTO traces_fts (traces_fts) VALUES ('{}')",
    "INSERT INTO asked_fts (asked_fts) VALUES ('{}')",
)
_BLOCK: Final = 64  # a document may have a megabyte
_MOST_FAILURES: Final = 20_000
_MOST_KEYS: Final = 10_000_000  # a damaged page may contain any number
_MOST_ASIDE: Final = 3
LOST_ON_ITS_WAY: Final = (
    "what became of it was lost in a damaged file: kp-middleware outbox retry ID sends it, perhaps"
    " once more"
)
"""The reason of an item that is blocked because it may have been sent already."""

_BLOCK_WHAT_MAY_HAVE_LEFT: Final = """
    INSERT INTO outbox (trace_seq, state, reason, registry, redactor, idempotency_key)
    SELECT seq, 'blocked', ?, ?, ?, '' FROM traces
    WHERE decision = 'forward' AND visibility <> 'private'
      AND coalesce(reason_args ->> 'delivery', '') NOT IN ('no_key', 'wrong_setting')
      AND seq IN (SELECT trace_seq FROM documents) AND seq NOT IN (SELECT trace_seq FROM outbox)
"""
_MAGIC: Final = b"SQLite format 3\0"
_AS_BYTES: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0)  # Windows would convert line ends
_kept_open: Final[list[int]] = []


def rescue(path: Path, *, registry: str, redactor: str) -> Rescue | None:
    """Set aside a copy of a damaged file, and restore the readable rows in place.

    The file keeps its path and inode: other processes have it open, and SQLite finds a WAL by the
    name of its file. They see the change as they would see any transaction.

    A cleared trace that has lost its outbox item may have been sent: it is blocked.
    """
    path = path.resolve()
    try:
        with alone(path.with_name(f"{path.name}.rescue-lock"), waits=False) as ours:
            damaged = ours and _is_damaged(path) and _is_ours(path)
            return _rescue(path, (LOST_ON_ITS_WAY, registry, redactor)) if damaged else None
    except (OSError, sqlite3.Error) as error:
        raise in_words(path, error) from error


def _is_ours(path: Path) -> bool:
    """Check the application id in the header's bytes, which SQLite may be unable to read."""
    descriptor = os.open(path, _AS_BYTES)
    header = os.read(descriptor, 72)
    cut = len(header) < 72  # too short for an application id: nothing to lose
    ours = header.startswith(_MAGIC) and (cut or header[68:] == APPLICATION_ID.to_bytes(4))
    if ours:
        _kept_open.append(descriptor)  # closing it would release SQLite's locks
    else:
        os.close(descriptor)
    return ours


def _is_damaged(path: Path) -> bool:
    try:
        with closing(connect(path)) as connection:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            for words in _WORDS:
                connection.execute(words.format("integrity-check"))
    except Exception as error:
        if is_damage(error):
            return True
        raise
    return bool(said != "ok")


def _rescue(path: Path, blocked: tuple[str, str, str]) -> Rescue:
    aside = path.with_name(f"{path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    fresh = path.with_name(f"{path.name}.rescued")
    _remove(fresh)
    try:
        with closing(_opened(path)) as old:
            _set_aside(path, aside)
            with closing(connect(fresh)) as new:
                traces = _copied(old, new, blocked)
                old.rollback()
                new.backup(old)
    finally:
        _remove(fresh)
    _keep_only_the_last_few(path)
    return Rescue(aside, traces)


def _set_aside(path: Path, aside: Path) -> None:
    """Copy the file and its WAL byte by byte, so that an expert can still examine them."""
    _copy_bytes(_kept_open[-1], aside)
    wal = Path(f"{path}-wal")
    if wal.exists():  # SQLite has no locks on this one
        descriptor = os.open(wal, _AS_BYTES)
        try:
            _copy_bytes(descriptor, Path(f"{aside}-wal"))
        finally:
            os.close(descriptor)


def _copy_bytes(source: int, target: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    with open(os.open(target, flags, stat.S_IRUSR | stat.S_IWUSR), "wb") as copy:  # noqa: PTH123
        os.lseek(source, 0, os.SEEK_SET)
        while piece := os.read(source, 1 << 20):
            copy.write(piece)


def _keep_only_the_last_few(path: Path) -> None:
    """Remove all but the newest copies: a failing disk may damage the file repeatedly."""
    copies = sorted(path.parent.glob(f"{escape(path.name)}.corrupt-*Z"))
    for older in copies[:-_MOST_ASIDE]:
        _remove(older)


def _remove(fresh: Path) -> None:
    for name in ("", "-wal", "-shm", "-journal"):
        Path(f"{fresh}{name}").unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection:
    """Open the damaged file with a write lock, so that no other process writes to it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("PRAGMA writable_schema = ON")  # or nothing of a cut file can be read
    try:
        connection.execute("BEGIN IMMEDIATE")
    except BaseException:
        connection.close()
        raise
    return connection


def _copied(old: sqlite3.Connection, new: sqlite3.Connection, blocked: tuple[str, str, str]) -> int:
    """Copy the readable rows to the new file, and return its number of traces."""
    new.execute("PRAGMA foreign_keys = OFF")
    with transaction(new):
        for table, key in _TABLES.items():
            _copy(old, new, table, key)
        _mend(new)
        new.execute(_BLOCK_WHAT_MAY_HAVE_LEFT, blocked)
        for words in _WORDS:
            new.execute(words.format("rebuild"))
    (traces,) = new.execute("SELECT count(*) FROM traces").fetchone()
    return int(traces)


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str, key: str) -> None:
    shared = sorted(_names(new, table) & _names(old, table))
    if not shared:
        return
    columns, marks = ", ".join(shared), ", ".join("?" * len(shared))
    insert = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})"
    select = f"SELECT {columns} FROM {table} WHERE {key} BETWEEN ? AND ?"
    for row in _readable(old, select, *_range(old, table, key)):
        with suppress(sqlite3.IntegrityError):  # overwritten rows may be invalid
            new.execute(insert, row)


def _names(connection: sqlite3.Connection, table: str) -> set[str]:
    try:
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    except sqlite3.DatabaseError:
        return set()
    return {name for (name,) in rows}


def _range(connection: sqlite3.Connection, table: str, key: str) -> tuple[int, int]:
    """Return the range of keys to try, also from other tables in case an end is unreadable."""
    columns = {table: key} if table in _OWN_KEYS else {**_TRACE_KEYS, table: key}
    found = [0]
    for name, column in columns.items():
        for end in ("min", "max"):
            with suppress(sqlite3.DatabaseError):
                (value,) = connection.execute(f"SELECT {end}({column}) FROM {name}").fetchone()
                found += [value] if isinstance(value, int) else []
    return min(found), min(max(found), min(found) + _MOST_KEYS)


def _readable(
    connection: sqlite3.Connection, select: str, first: int, last: int
) -> Iterator[tuple[object, ...]]:
    """Yield the readable rows in a range of keys, bisecting around unreadable ones."""
    left = _MOST_FAILURES
    for start in range(first, last + 1, _BLOCK):
        ranges = [(start, min(start + _BLOCK - 1, last))]
        while ranges:
            low, high = ranges.pop()
            try:
                yield from connection.execute(select, (low, high)).fetchall()
            except sqlite3.DatabaseError:
                left -= 1
                if low < high and left > 0:
                    middle = (low + high) // 2
                    ranges += [(middle + 1, high), (low, middle)]


def _mend(new: sqlite3.Connection) -> None:
    """Remove rows without a trace, and mark waiting traces that lost their data as failed."""
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
