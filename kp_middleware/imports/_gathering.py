"""Temporary storage of input that is not redacted yet, in unnamed files of this process alone."""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from kp_middleware.imports._run import Book
from kp_middleware.imports._values import written
from kp_middleware.runs import RecordedRun
from kp_middleware.spans import Fields, fields, name

_MOST_SPANS: Final = 20_000
_MOST_CHARACTERS: Final = 32 << 20


def gathered(
    values: Iterable[object],
    book: Book,
    *,
    trace: Callable[[Fields], str | None],
    order: Callable[[Fields], str],
) -> Iterator[tuple[str, list[Fields]]]:
    """Yield each trace with its rows in order; rows beyond 20,000, or 32 MB, of one are skipped."""
    with closing(sqlite3.connect("")) as file:  # SQLite removes it at the end, however that comes
        file.execute("CREATE TABLE rows (trace TEXT, place TEXT, body TEXT)")
        for value in values:
            row = fields(value)
            key = trace(row)
            if key is None:
                book.skip("unknown_type")
                continue
            file.execute("INSERT INTO rows VALUES (?, ?, ?)", (key, name(order(row)), written(row)))
        file.execute("CREATE INDEX by_trace ON rows (trace, place)")
        traces = file.execute("SELECT trace FROM rows GROUP BY trace ORDER BY min(rowid)")
        for (key,) in traces:
            yield key, [*_rows(file, key, book)]


def _rows(file: sqlite3.Connection, key: str, book: Book) -> Iterator[Fields]:
    found = file.execute("SELECT body FROM rows WHERE trace = ? ORDER BY place, rowid", (key,))
    characters = 0
    for count, (body,) in enumerate(found):
        characters += len(body)
        if count >= _MOST_SPANS or characters > _MOST_CHARACTERS:
            book.skip("too_long")
        else:
            yield json.loads(body)


class Found(NamedTuple):
    """The numbers of runs and sessions, and the starts of the first and the last (ISO 8601)."""

    runs: int
    sessions: int
    first_at: str
    last_at: str


class Spool:
    """The runs that were found, and those of them on their way to the file."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        columns = "id TEXT PRIMARY KEY, session TEXT, began_at TEXT, body BLOB"
        self._file.execute(f"CREATE TABLE runs ({columns})")

    def __len__(self) -> int:
        return int(self._file.execute("SELECT count(body) FROM runs").fetchone()[0])

    @property
    def found(self) -> Found:
        """What was found so far."""
        row = self._file.execute(
            "SELECT count(*), count(DISTINCT session), coalesce(min(began_at), ''),"
            " coalesce(max(began_at), '') FROM runs"
        ).fetchone()
        return Found(*row)

    def note(self, run: RecordedRun) -> bool:
        """Note that a run was found; False if it was noted before."""
        noted = self._file.execute(
            "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, NULL)",
            (run.trace.id, run.thread_id or run.trace.id, run.trace.metadata.created_at),
        )
        return noted.rowcount > 0

    def put(self, run: RecordedRun) -> None:
        """Take a run that was noted; the last one of an id counts."""
        body = zlib.compress(run.model_dump_json().encode(), 1)
        taken = (body, run.trace.metadata.created_at, run.trace.id)
        self._file.execute("UPDATE runs SET body = ?, began_at = ? WHERE id = ?", taken)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove runs that were abandoned."""
        self._file.executemany("DELETE FROM runs WHERE id = ?", ((id,) for id in ids))

    def ordered(self) -> Iterator[RecordedRun]:
        """Yield the runs by the time at which they began; at the same time, as they were read."""
        found = "SELECT body FROM runs WHERE body IS NOT NULL ORDER BY began_at, rowid"
        for (body,) in self._file.execute(found):
            yield RecordedRun.model_validate_json(zlib.decompress(body))

    def close(self) -> None:
        """Remove it."""
        self._file.close()
