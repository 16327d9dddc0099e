"""The formats by name: their readers, where their tools keep them, and how each is told."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import ValidationError

from kp_middleware.imports._atif import read_atif
from kp_middleware.imports._claude_code import read_claude_code
from kp_middleware.imports._codex import is_codex, read_codex
from kp_middleware.imports._langfuse import read_langfuse
from kp_middleware.imports._langsmith import read_langsmith
from kp_middleware.imports._messages import has_messages, read_messages
from kp_middleware.imports._otlp import is_otlp, read_otlp
from kp_middleware.imports._run import Book, SourceRun
from kp_middleware.imports._swe_agent import read_swe_agent
from kp_middleware.spans import fields
from kp_middleware.traces import ReasoningTrace

Reader: TypeAlias = Callable[[Iterable[object], Book], Iterator[SourceRun | ReasoningTrace]]


def read_traces(values: Iterable[object], book: Book) -> Iterator[ReasoningTrace]:
    """Yield our own documents, as ``kp-middleware export`` writes them: ids are kept."""
    for value in values:
        row = fields(value)
        places = (row, fields(row.get("document")), fields(row.get("trace")))
        document = next((one for one in places if one.get("@type") == "ReasoningTrace"), None)
        if document is None:
            book.skip("unknown_type")
            continue
        try:
            yield ReasoningTrace.model_validate(document)
        except (ValidationError, RecursionError):
            book.skip("invalid")


class Format(NamedTuple):
    """A format: its reader, the suffixes of its files, and where its tool keeps them.

    Folders that are ``apart`` hold parts of sessions, not sessions.
    """

    read: Reader
    suffixes: tuple[str, ...]
    apart: frozenset[str] = frozenset()
    folders: Callable[[], tuple[Path, ...]] = tuple


def _claude_folders() -> tuple[Path, ...]:
    home = os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude"
    return (Path(home) / "projects",)


def _codex_folders() -> tuple[Path, ...]:
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    return home / "sessions", home / "archived_sessions"


SQLITE_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")

FORMATS: Final = {
    "claude-code": Format(
        read_claude_code,
        (".jsonl",),
        frozenset({"subagents", "tool-results"}),
        _claude_folders,
    ),
    "codex": Format(read_codex, (".jsonl",), folders=_codex_folders),
    "messages": Format(read_messages, (".jsonl", ".json", *SQLITE_SUFFIXES)),
    "swe_agent": Format(read_swe_agent, (".traj", ".traj.json", ".json", ".jsonl")),
    "atif": Format(read_atif, (".json", ".jsonl")),
    "otlp": Format(read_otlp, (".jsonl", ".json")),
    "langsmith": Format(read_langsmith, (".jsonl", ".json")),
    "langfuse": Format(read_langfuse, (".jsonl", ".json")),
    "traces": Format(read_traces, (".jsonl", ".json")),
}
"""The formats by the names that users type."""


def format_of(value: object) -> str | None:
    """Return the name of the format of one value of a file, or None if it says too little.

    >>> format_of({"messages": []}), format_of({"a": 1})
    ('messages', None)
    """
    line = fields(value)
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
        ("swe_agent", has("messages") and "exit_status" in fields(line.get("info"))),
        ("messages", has("messages") or has("traj")),
        ("messages", has_messages(value)),
    )
    return next((name for name, fits in tests if fits), None)
