"""The files of a source, and what is in each of them."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

from kp_middleware.imports._formats import FORMATS, format_of
from kp_middleware.imports._messages import read_session
from kp_middleware.imports._run import Book, SourceRun
from kp_middleware.imports._values import values_in
from kp_middleware.traces import ReasoningTrace

_SQLITE: Final = b"SQLite format 3\0"
_LOOKED_AT: Final = 50
_ITEMS: Final = """
    SELECT session_id, id, message_data, created_at FROM agent_messages ORDER BY session_id, id
"""


def files_of(format_: str, path: Path, book: Book) -> Iterator[Path]:
    """Yield the files of a format in a folder, or the file itself, by name.

    Links are not followed, and what another user owns is not read: both are counted.
    """
    kinds = [one for name, one in FORMATS.items() if format_ in {name, "auto"}]
    apart = frozenset[str]().union(*(one.apart for one in kinds))
    if path.is_file():
        yield from _checked(path, book)
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in apart)
        for name in sorted(names):
            if any(name.endswith(one.suffixes) for one in kinds):
                yield from _checked(Path(folder) / name, book)
        for name in folders:
            if (Path(folder) / name).is_symlink():
                book.skip("link")


def format_in(path: Path) -> str | None:
    """Tell the format of a file from its beginning, or None if it is none of ours."""
    if _is_sqlite(path):
        return "messages"
    found = islice(values_in(path, Book("auto")), _LOOKED_AT)
    return next(filter(None, map(format_of, found)), None)


def runs_in(path: Path, book: Book) -> Iterator[SourceRun | ReasoningTrace]:
    """Yield the runs of one file, in the format of the book."""
    try:
        if _is_sqlite(path):
            yield from _session_runs(path, book)
        else:
            yield from FORMATS[book.source].read(values_in(path, book), book)
    except (OSError, sqlite3.Error):
        book.skip("unreadable")


def _checked(path: Path, book: Book) -> Iterator[Path]:
    try:
        found = path.lstat()
    except OSError:
        book.skip("unreadable")
        return
    if path.is_symlink():
        book.skip("link")
    elif hasattr(os, "getuid") and found.st_uid != os.getuid():
        book.skip("not_yours")
    elif path.is_file():
        yield path


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _session_runs(path: Path, book: Book) -> Iterator[SourceRun]:
    """Yield the runs of the Agents SDK's ``SQLiteSession``; nothing is written beside it."""
    log = path.with_name(f"{path.name}-wal")
    is_at_rest = not (log.is_file() and log.stat().st_size)
    address = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if is_at_rest else ''}"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        rows = connection.execute(_ITEMS)
        yield from read_session(((str(a), str(b), str(c), str(d)) for a, b, c, d in rows), book)
