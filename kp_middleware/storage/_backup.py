"""A copy of the file as it is at one moment, while other programs write to it."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, TypeAlias

from kp_middleware.database import in_words, is_damage
from kp_middleware.errors import DatabaseError

_PAGES: Final = 500  # 2 MB: some milliseconds
_OFTEN: Final = 20_000  # virtual instructions: less than a millisecond

Soundness: TypeAlias = Literal["sound", "damaged", "not known"]
"""What `check` has found; ``not known`` where the time was up."""


def back_up(
    connection: sqlite3.Connection, into: Path, *, tell: Callable[[int, int], None]
) -> None:
    """Write an exact copy of one moment, and check it.

    Other programs go on writing and never wait for this; their WAL grows until it is done. Not by
    ``VACUUM INTO``, which fails on a file with generated columns that is only read (SQLite 3.40).

    Args:
        connection: Of the file to be copied.
        into: An empty file, with the mode that the copy shall have.
        tell: Is called after some pages, with how many are written and how many there are.

    Raises:
        DatabaseError: If the file cannot be read or the copy cannot be written, or is damaged.
    """
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM meta")  # from here on we see this one moment
        with closing(sqlite3.connect(into)) as copy:
            connection.backup(
                copy, pages=_PAGES, progress=lambda _, left, all_: tell(all_ - left, all_)
            )
        with closing(sqlite3.connect(into)) as copy:
            soundness = check(copy)
    except sqlite3.Error as error:
        remedy = "make room on the disk, or name another folder"
        raise DatabaseError(into, f"cannot be written ({error})", remedy) from error
    finally:
        connection.rollback()
    if soundness != "sound":
        raise in_words(into, sqlite3.DatabaseError("is damaged, as is what it was made from"))


def check(connection: sqlite3.Connection, *, limit_s: float = float("inf")) -> Soundness:
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
