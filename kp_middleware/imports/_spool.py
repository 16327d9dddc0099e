"""Temporary storage of runs that are not redacted yet, in an unnamed file of this process alone."""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from kp_middleware.runs import RecordedRun

_FOUND: Final = """
    SELECT count(*), count(DISTINCT session), coalesce(min(began_at), ''),
        coalesce(max(began_at), '') FROM runs
"""


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
    def found(self) -> tuple[int, int, str, str]:
        """The numbers of runs and sessions, and the first and the last start, in ISO 8601."""
        runs, sessions, first_at, last_at = self._file.execute(_FOUND).fetchone()
        return runs, sessions, first_at, last_at

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
        self._file.executemany("DELETE FROM runs WHERE id = ?", ((id,) for id in ids))

    def ordered(self) -> Iterator[RecordedRun]:
        """Yield the runs by the time at which they began; at the same time, as they were read."""
        found = "SELECT body FROM runs WHERE body IS NOT NULL ORDER BY began_at, rowid"
        for (body,) in self._file.execute(found):
            yield RecordedRun.model_validate_json(zlib.decompress(body))

    def close(self) -> None:
        self._file.close()
