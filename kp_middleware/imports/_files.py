"""The formats by name, the files of a source, and a staging table for their runs."""

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import ValidationError

from kp_middleware.imports._histories import (
    HISTORY_KEYS,
    has_messages,
    read_atif,
    read_messages,
    read_session,
    read_swe_agent,
)
from kp_middleware.imports._sessions import is_codex, read_claude_code, read_codex
from kp_middleware.imports._source import ImportContext, SourceRun, read_values
from kp_middleware.imports._spans import is_otlp, read_langfuse, read_langsmith, read_otlp
from kp_middleware.runs import RecordedRun
from kp_middleware.spans.messages import as_dict, as_list
from kp_middleware.traces import ReasoningTrace

_SQLITE: Final = b"SQLite format 3\0"
_SAMPLE_SIZE: Final = 50  # values
_ADD: Final = """
    INSERT INTO runs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
    SET (began_at, steps, body) = (excluded.began_at, excluded.steps, excluded.body)
    WHERE excluded.steps >= steps
"""
_TOTALS: Final = """
    SELECT count(*), count(DISTINCT session), coalesce(min(began_at), ''),
        coalesce(max(began_at), ''), count(body) FROM runs
"""

Reader: TypeAlias = Callable[
    [Iterable[object], ImportContext], Iterator[SourceRun | ReasoningTrace]
]


class Format(NamedTuple):
    read: Reader
    suffixes: tuple[str, ...] = (".jsonl", ".json")


def _read_traces(values: Iterable[object], context: ImportContext) -> Iterator[ReasoningTrace]:
    """Yield our own documents with their ids, as ``kp-middleware export`` writes them."""
    for value in values:
        row = as_dict(value)
        candidates = (row, as_dict(row, "document"), as_dict(row, "trace"))
        document = next((doc for doc in candidates if doc.get("@type") == "ReasoningTrace"), None)
        if document is None:
            context.skip("unknown_type")
            continue
        try:
            yield ReasoningTrace.model_validate(document)
        except (ValidationError, RecursionError):
            context.skip("invalid")


FORMATS: Final = {
    "claude-code": Format(read_claude_code, (".jsonl",)),
    "codex": Format(read_codex, (".jsonl",)),
    "messages": Format(read_messages, (".jsonl", ".json", ".sqlite", ".sqlite3", ".db")),
    "swe-agent": Format(read_swe_agent, (".traj", ".json", ".jsonl")),
    "atif": Format(read_atif),
    "otlp": Format(read_otlp),
    "langsmith": Format(read_langsmith),
    "langfuse": Format(read_langfuse),
    "traces": Format(_read_traces),
}
"""The formats by the names that users type."""

_DEFAULT_FOLDERS: Final = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude", ("projects",)),
    "codex": ("CODEX_HOME", ".codex", ("sessions", "archived_sessions")),
}
_SKIPPED_FOLDERS: Final = frozenset({"subagents", "tool-results"})  # of Claude Code's sessions


def default_folders(format_: str) -> list[Path]:
    return [
        Path(os.environ.get(variable) or Path.home() / default) / folder
        for name, (variable, default, folders) in _DEFAULT_FOLDERS.items()
        if format_ in {name, "auto"}
        for folder in folders
    ]


def find_files(format_: str, path: Path, context: ImportContext) -> Iterator[Path]:
    """Yield the files of a format in a folder, or the file; skip links and others' files."""
    if path.is_file():
        yield from _check_file(path, context)
        return
    formats = [one for name, one in FORMATS.items() if format_ in {name, "auto"}]
    suffixes = tuple(suffix for one in formats for suffix in one.suffixes)
    skipped = _SKIPPED_FOLDERS if format_ in {"claude-code", "auto"} else ()
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in skipped)
        for name in sorted(names):
            if name.removesuffix(".gz").endswith(suffixes):
                yield from _check_file(Path(folder) / name, context)
        for name in folders:
            if (Path(folder) / name).is_symlink():
                context.skip("link")


def _check_file(path: Path, context: ImportContext) -> Iterator[Path]:
    try:
        owner = path.lstat().st_uid
    except OSError:
        context.skip("unreadable")
        return
    if path.is_symlink():
        context.skip("link")
    elif hasattr(os, "getuid") and owner != os.getuid():
        context.skip("not_yours")
    elif path.is_file():
        yield path


def detect_format(path: Path) -> str:
    """Detect the format of a file from its first values, or the reason that it is unknown."""
    if _is_sqlite(path):
        return "messages"
    sample = islice(_read_rows(path, context := ImportContext("auto")), _SAMPLE_SIZE)
    found = next(filter(None, map(_detect_value, sample)), None)
    return found or next(iter({"utf_16", "not_utf_8"} & context.skipped.keys()), "unknown_format")


def _detect_value(value: object) -> str | None:
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
        ("swe-agent", has("trajectory") or has("trajectory_format")),
        ("swe-agent", has("messages") and "exit_status" in as_dict(line, "info")),
        ("messages", any(map(has, HISTORY_KEYS))),
        ("messages", has_messages(value)),
    )
    return next((name for name, matches in tests if matches), None)


def read_runs(path: Path, context: ImportContext) -> Iterator[SourceRun | ReasoningTrace]:
    try:
        if _is_sqlite(path):
            yield from read_session(path, context)
        else:
            yield from FORMATS[context.source].read(_read_rows(path, context), context)
    except (OSError, sqlite3.Error):
        context.skip("unreadable")


def _read_rows(path: Path, context: ImportContext) -> Iterator[object]:
    """Yield the values of a file, and the rows of each answer of an API."""
    for value in read_values(path, context):
        page = as_dict(value)
        rows = as_list(page.get("data")) or as_list(page.get("runs"))
        yield from [value] if page.keys() & {"id", "type", *HISTORY_KEYS} else rows or [value]


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


class StagedRuns:
    """The ids of all runs of an import, and in a temporary file those to store."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        columns = "id TEXT PRIMARY KEY, session TEXT, began_at TEXT, steps INT, body BLOB"
        self._file.execute(f"CREATE TABLE runs ({columns})")

    @property
    def totals(self) -> tuple[int, int, str, str, int, int]:
        """The numbers of runs and sessions, their first and last start, those new and known."""
        runs, sessions, first_at, last_at, new = self._file.execute(_TOTALS).fetchone()
        return runs, sessions, first_at, last_at, new, runs - new

    def add(self, run: RecordedRun, *, is_known: bool) -> None:
        """Add a run, unless a longer one has its id; of a known one only its facts."""
        body = None if is_known else zlib.compress(run.model_dump_json().encode(), 1)
        id, began_at = run.trace.id, run.trace.metadata.created_at
        row = (id, run.thread_id or id, began_at, run.shape.steps, body)
        self._file.execute(_ADD, row)

    def remove(self, ids: Iterable[str]) -> None:
        self._file.executemany("DELETE FROM runs WHERE id = ?", ((id,) for id in ids))

    def by_start(self) -> Iterator[RecordedRun]:
        staged = "SELECT body FROM runs WHERE body IS NOT NULL ORDER BY began_at, rowid"
        for (body,) in self._file.execute(staged):
            yield RecordedRun.model_validate_json(zlib.decompress(body))

    def close(self) -> None:
        self._file.close()
