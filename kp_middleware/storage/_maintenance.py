"""Maintenance of the file: status, integrity check, backup, pruning and vacuum."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from glob import escape
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from kp_middleware.database import Connection, Queries, is_damage
from kp_middleware.errors import DatabaseError


class FileStatus(NamedTuple):
    """The status of one file."""

    size_bytes: int  # with its WAL
    schema: int
    oldest: str | None
    newest: str | None
    waiting_since: Mapping[str, str]  # ``unscored``, ``paused``, ``pending``: when the oldest began
    registries: tuple[str, ...]
    dropped: int  # lost because the queue of unwritten runs was full
    set_aside: tuple[str, ...]  # copies of damaged files


_STATUS: Final = """
    SELECT (SELECT min(started_at) FROM traces), (SELECT max(started_at) FROM traces),
           (SELECT started_at FROM traces WHERE score IS NULL AND state = 'recorded'
            ORDER BY seq LIMIT 1),
           (SELECT started_at FROM traces WHERE score IS NULL AND state = 'paused'
            ORDER BY seq LIMIT 1),
           (SELECT started_at FROM traces WHERE seq = (
              SELECT min(trace_seq) FROM outbox WHERE state IN ('pending', 'sending')))
"""
SQLITE_VERSION: Final = sqlite3.sqlite_version
"""The version of Python's SQLite library."""

_PAGES: Final = 500  # 2 MB: some milliseconds
_OFTEN: Final = 20_000  # virtual instructions: less than a millisecond
_NO_ROOM: Final = "make room there, or name another folder"
_DAMAGED: Final = (
    "is damaged, and so would be its copy",
    "record a run, which saves what can be saved, and try again",
)

Soundness: TypeAlias = Literal["sound", "damaged", "not known"]
"""The result of `check_soundness`; ``not known`` after a timeout."""


class Maintenance(Queries):
    """The status of one file, whether it is sound, and copies of it."""

    def file_status(self, path: Path) -> FileStatus:
        """Return the status of the file."""
        oldest, newest, *waiting = self._row(_STATUS)
        since = dict(zip(("unscored", "paused", "pending"), waiting, strict=True))
        registries = self._column(
            "SELECT DISTINCT registry FROM outbox WHERE state IN ('pending', 'sending')"
        )
        return FileStatus(
            size_bytes=sum(
                file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists()
            ),
            schema=self._value("PRAGMA user_version"),
            oldest=oldest,
            newest=newest,
            waiting_since={name: instant for name, instant in since.items() if instant},
            registries=(*registries,),
            dropped=int(self._value("SELECT value FROM meta WHERE key = 'dropped'") or 0),
            set_aside=tuple(
                sorted(str(file) for file in path.parent.glob(f"{escape(path.name)}.corrupt-*Z"))
            ),
        )

    def check_soundness(self, *, limit_s: float = float("inf")) -> Soundness:
        """Check the integrity of the file's pages and rows, not of its indices."""
        return _check(self._sqlite, limit_s)

    def back_up(self, into: Path, *, tell: Callable[[int, int], None]) -> int:
        """Write a consistent copy of the file, check it, and return its number of runs.

        Other programs continue writing and never wait for this; their WAL grows until it is done.
        The copy has no WAL, so that it can be read from a read-only folder. ``VACUUM INTO`` is not
        used because it fails on a read-only file with generated columns (SQLite 3.40).
        """
        (_, _, source) = self._row("PRAGMA database_list")
        try:
            self._copy(into, tell)
            with closing(sqlite3.connect(into)) as copy:
                if _check(copy) == "sound":
                    return int(copy.execute("SELECT count(*) FROM traces").fetchone()[0])
        except sqlite3.Error as error:
            if not is_damage(error):
                problem = f"cannot be written to ({error})"
                raise DatabaseError(into.parent, problem, _NO_ROOM) from error
            raise DatabaseError(source, *_DAMAGED) from error
        raise DatabaseError(source, *_DAMAGED)

    def _copy(self, into: Path, tell: Callable[[int, int], None]) -> None:
        self._run("BEGIN")
        try:
            self._run("SELECT count(*) FROM meta")  # starts the snapshot
            with closing(sqlite3.connect(into)) as copy:
                self._sqlite.backup(
                    copy, pages=_PAGES, progress=lambda _, left, count: tell(count - left, count)
                )
                copy.execute("PRAGMA journal_mode = DELETE")  # a WAL needs a writable folder
        finally:
            self._connection.rollback()

    @property
    def _sqlite(self) -> sqlite3.Connection:
        return cast("sqlite3.Connection", self._connection)


def _check(connection: sqlite3.Connection, limit_s: float = float("inf")) -> Soundness:
    until = time.monotonic() + limit_s
    connection.set_progress_handler(lambda: time.monotonic() > until, _OFTEN)
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


_AT_ONCE: Final = 8  # runs in one transaction: others wait for some milliseconds
_NEVER: Final = "9999"  # later than any instant
_DOOMED: Final = """
    FROM traces t
    WHERE t.seq > :after AND t.seq < :newest AND t.started_at < :before
      AND (:domain IS NULL OR t.domain = :domain) AND (:below IS NULL OR t.score < :below)
      AND t.state IN ('scored', 'incomplete', 'failed')
      AND t.shared_seq IS NOT -1  -- to be shipped to the shared log
      AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.trace_seq = t.seq
                      AND o.state IN ('pending', 'sending', iif(:keep_sent, 'sent', 'sending')))
"""


class PruneSelection(NamedTuple):
    """The traces to remove: those that no rule keeps."""

    newest: int  # from this ``seq`` on, all are kept
    before: str  # later ones are kept
    domain: str | None
    below: float | None  # those that score as much, or have no score, are kept; None: any
    keep_sent: bool


class Pruning(Queries):
    """Removal of traces from one file, in batches small enough not to block other programs."""

    def doomed(
        self,
        *,
        before: str | None = None,
        keep: int | None = None,
        domain: str | None = None,
        below: float | None = None,
        keep_sent: bool = False,
    ) -> PruneSelection:
        """Select the traces to remove: those that none of these options keeps."""
        newest = self._value(
            "SELECT seq FROM traces WHERE :domain IS NULL OR domain = :domain"
            " ORDER BY seq DESC LIMIT 1 OFFSET :kept",
            {"domain": domain, "kept": max(0, (keep or 0) - 1)},
        )
        first_kept = 0 if newest is None else newest + (not keep)  # 0: there are fewer
        return PruneSelection(first_kept, before or _NEVER, domain, below, keep_sent)

    def count(self, doomed: PruneSelection) -> int:
        """Count the selected traces."""
        return int(self._value(f"SELECT count(*) {_DOOMED}", {**doomed._asdict(), "after": 0}))

    def batches(self, doomed: PruneSelection) -> Iterator[int]:
        """Remove the selected traces, oldest first; yield the number removed by each batch."""
        last = 0
        while seqs := self._next(doomed, last):
            last = seqs[-1]
            removed = self._run(
                f"DELETE FROM traces WHERE seq IN (SELECT t.seq {_DOOMED}"
                " AND t.seq IN (SELECT value FROM json_each(:seqs))) RETURNING seq",
                {**doomed._asdict(), "after": 0, "seqs": json.dumps(seqs)},
            ).fetchall()
            yield len(removed)

    def _next(self, doomed: PruneSelection, last: int) -> list[int]:
        return self._column(
            f"SELECT t.seq {_DOOMED} ORDER BY t.seq LIMIT {_AT_ONCE}",
            {**doomed._asdict(), "after": last},
        )


def vacuum(connection: Connection) -> None:
    """Return unused space to the disk; others wait meanwhile, about a second per 100 MB."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
