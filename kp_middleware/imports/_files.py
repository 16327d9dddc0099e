"""The formats by name, the files of a source and the runs in them, and a spool for the runs."""

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import ValidationError

from kp_middleware.imports._histories import (
    has_messages,
    read_atif,
    read_messages,
    read_session,
    read_swe_agent,
)
from kp_middleware.imports._sessions import is_codex, read_claude_code, read_codex
from kp_middleware.imports._source import Book, SourceRun, values_in
from kp_middleware.imports._spans import is_otlp, read_langfuse, read_langsmith, read_otlp
from kp_middleware.runs import RecordedRun
from kp_middleware.spans.messages import as_dict
from kp_middleware.traces import ReasoningTrace

_SQLITE: Final = b"SQLite format 3\0"
_LOOKED_AT: Final = 50
_FOUND: Final = """
    SELECT count(*), count(DISTINCT session), coalesce(min(began_at), ''),
        coalesce(max(began_at), '') FROM runs
"""

Reader: TypeAlias = Callable[[Iterable[object], Book], Iterator[SourceRun | ReasoningTrace]]


class Format(NamedTuple):
    """A format: its reader, and the suffixes of its files."""

    read: Reader
    suffixes: tuple[str, ...] = (".jsonl", ".json")


def _read_traces(values: Iterable[object], book: Book) -> Iterator[ReasoningTrace]:
    """Yield our own documents, as ``kp-middleware export`` writes them: ids are kept."""
    for value in values:
        row = as_dict(value)
        places = (row, as_dict(row, "document"), as_dict(row, "trace"))
        document = next((one for one in places if one.get("@type") == "ReasoningTrace"), None)
        if document is None:
            book.skip("unknown_type")
            continue
        try:
            yield ReasoningTrace.model_validate(document)
        except (ValidationError, RecursionError):
            book.skip("invalid")


FORMATS: Final = {
    "claude-code": Format(read_claude_code, (".jsonl",)),
    "codex": Format(read_codex, (".jsonl",)),
    "messages": Format(read_messages, (".jsonl", ".json", ".sqlite", ".sqlite3", ".db")),
    "swe_agent": Format(read_swe_agent, (".traj", ".json", ".jsonl")),
    "atif": Format(read_atif),
    "otlp": Format(read_otlp),
    "langsmith": Format(read_langsmith),
    "langfuse": Format(read_langfuse),
    "traces": Format(_read_traces),
}
"""The formats by the names that users type."""

_FOLDERS: Final = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude", ("projects",)),
    "codex": ("CODEX_HOME", ".codex", ("sessions", "archived_sessions")),
}
_PARTS: Final = frozenset({"subagents", "tool-results"})  # of Claude Code's sessions


def folders_of(format_: str) -> list[Path]:
    """Return the folders in which the tool of a format, or any, keeps its runs."""
    return [
        Path(os.environ.get(variable) or Path.home() / usual) / folder
        for name, (variable, usual, folders) in _FOLDERS.items()
        if format_ in {name, "auto"}
        for folder in folders
    ]


def files_of(format_: str, path: Path, book: Book) -> Iterator[Path]:
    """Yield the files of a format in a folder, or the file itself, by name.

    Links are not followed, and what another user owns is not read: both are counted.
    """
    if path.is_file():
        yield from _checked(path, book)
        return
    kinds = [one for name, one in FORMATS.items() if format_ in {name, "auto"}]
    suffixes = tuple(suffix for one in kinds for suffix in one.suffixes)
    parts = _PARTS if format_ in {"claude-code", "auto"} else ()
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in parts)
        for name in sorted(names):
            if name.endswith(suffixes):
                yield from _checked(Path(folder) / name, book)
        for name in folders:
            if (Path(folder) / name).is_symlink():
                book.skip("link")


def _checked(path: Path, book: Book) -> Iterator[Path]:
    try:
        owner = path.lstat().st_uid
    except OSError:
        book.skip("unreadable")
        return
    if path.is_symlink():
        book.skip("link")
    elif hasattr(os, "getuid") and owner != os.getuid():
        book.skip("not_yours")
    elif path.is_file():
        yield path


def format_in(path: Path) -> str | None:
    """Tell the format of a file from its beginning, or None if it is none of ours."""
    if _is_sqlite(path):
        return "messages"
    found = islice(values_in(path, Book("auto")), _LOOKED_AT)
    return next(filter(None, map(_format_of, found)), None)


def _format_of(value: object) -> str | None:
    """Return the name of the format of one value of a file, or None if it says too little."""
    line = as_dict(value)
    has = line.keys().__contains__
    tests: tuple[tuple[str, Any], ...] = (
        ("traces", line.get("@type") == "ReasoningTrace"),
        ("codex", is_codex(line)),
        ("otlp", is_otlp(line)),
        ("langsmith", has("run_type") and (has("trace_id") or has("dotted_order"))),
        ("langfuse", has("observations") or has("traceId")),
        ("langfuse", has("trace_id") and (has("parent_observation_id") or has("trace_name"))),
        ("atif", str(line.get("schema_version", "")).startswith("ATIF")),
        ("claude-code", has("sessionId") or (has("leafUuid") and has("summary"))),
        ("swe_agent", has("trajectory") or has("trajectory_format")),
        ("swe_agent", has("messages") and "exit_status" in as_dict(line, "info")),
        ("messages", has("messages") or has("traj")),
        ("messages", has_messages(value)),
    )
    return next((name for name, fits in tests if fits), None)


def runs_in(path: Path, book: Book) -> Iterator[SourceRun | ReasoningTrace]:
    """Yield the runs of one file, in the format of the book."""
    try:
        if _is_sqlite(path):
            yield from read_session(path, book)
        else:
            yield from FORMATS[book.source].read(values_in(path, book), book)
    except (OSError, sqlite3.Error):
        book.skip("unreadable")


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


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
