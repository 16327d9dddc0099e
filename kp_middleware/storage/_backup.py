"""A copy of the file as it is at one moment, while other programs write to it."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, TypeAlias

from kp_middleware.database import is_damage
from kp_middleware.errors import DatabaseError

SQLITE_VERSION: Final = sqlite3.sqlite_version
"""Of the SQLite that Python came with."""

_PAGES: Final = 500  # 2 MB: some milliseconds
_OFTEN: Final = 20_000  # virtual instructions: less than a millisecond
_NO_ROOM: Final = "make room there, or name another folder"
_DAMAGED: Final = (
    "is damaged, and so would be its copy",
    "record a run, which saves what can be saved, and try again",
)

Soundness: TypeAlias = Literal["sound", "damaged", "not known"]
"""What `check_soundness` has found; ``not known`` where the time was up."""


def back_up(connection: sqlite3.Connection, into: Path, *, tell: Callable[[int, int], None]) -> int:
    """Write an exact copy of one moment, and check it; return how many traces are in it.

    Other programs go on writing and never wait for this; their WAL grows until it is done. The copy
    has no WAL, so that it can be read from a folder that nobody may write to. Not by
    ``VACUUM INTO``, which fails on a file with generated columns that is only read (SQLite 3.40).

    Args:
        connection: Of the file to be copied.
        into: An empty file, with the mode that the copy shall have.
        tell: Is called after some pages, with how many are written and how many there are.

    Raises:
        DatabaseError: If the file is damaged, or the copy cannot be written.
    """
    (_, _, source) = connection.execute("PRAGMA database_list").fetchone()
    try:
        _copy(connection, into, tell)
        count = _count_if_sound(into)
    except sqlite3.Error as error:
        if is_damage(error):
            raise DatabaseError(source, *_DAMAGED) from error
        raise DatabaseError(into.parent, f"cannot be written to ({error})", _NO_ROOM) from error
    if count is None:
        raise DatabaseError(source, *_DAMAGED)
    return count


def check_soundness(connection: sqlite3.Connection, *, limit_s: float = float("inf")) -> Soundness:
    """Whether all pages and rows of a file make sense; indices are not compared with their rows.

    Args:
        connection: Of the file.
        limit_s: How long it may take, in seconds.
    """
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


def _copy(connection: sqlite3.Connection, into: Path, tell: Callable[[int, int], None]) -> None:
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM meta")  # from here on we see this one moment
        with closing(sqlite3.connect(into)) as copy:
            connection.backup(
                copy, pages=_PAGES, progress=lambda _, left, count: tell(count - left, count)
            )
            copy.execute("PRAGMA journal_mode = DELETE")  # a WAL cannot be read where none can be
    finally:
        connection.rollback()


def _count_if_sound(path: Path) -> int | None:
    with closing(sqlite3.connect(path)) as copy:
        if check_soundness(copy) != "sound":
            return None
        return int(copy.execute("SELECT count(*) FROM traces").fetchone()[0])
