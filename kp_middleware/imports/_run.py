"""A run of a source while it is read, the book of the readers, and a spool of runs."""

import sqlite3
import time
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from kp_middleware.recording import Limits, ModelCall, Place, Recorder, assemble
from kp_middleware.runs import RecordedRun
from kp_middleware.spans.fields import Fields, number
from kp_middleware.spans.held_span import HeldSpan
from kp_middleware.spans.messages import Said
from kp_middleware.spans.replay import replay
from kp_middleware.traces import PrivacyLevel, StepType, Visibility

Skipped: TypeAlias = Literal[
    "not_json",
    "too_long",
    "too_deep",
    "unknown_type",
    "no_answer",
    "no_agent",
    "no_content",
    "unreadable",
    "not_yours",
    "link",
    "invalid",
    "unknown_format",
]
"""Why something of a source is not imported."""

_NAMESPACE: Final = UUID("6f0cb5c4-9f0e-5d0c-8a53-0d1a4f2c7be1")
_VERDICTS: Final = ("reward", "resolved", "success", "target", "score")
_HALF: Final = 0.5


def trace_id(source: str, key: str) -> str:
    """Return the trace id of a run of a source: always the same for the same run.

    >>> trace_id("codex", "a:1") == trace_id("codex", "a:1") != trace_id("codex", "a:2")
    True
    """
    return f"kp:trace:{uuid5(_NAMESPACE, f'{source}:{key}'.encode(errors='replace').decode())}"


def verdict(document: Fields) -> bool | None:
    """Return what a source says about the end of a run: half a point or more is a success.

    >>> verdict({"reward": 1.0}), verdict({"resolved": False}), verdict({"messages": []})
    (True, False, None)
    """
    for key in _VERDICTS:
        said: Any = document.get(key)
        if isinstance(said, bool):
            return said
        if (points := number(said)) is not None:
            return points >= _HALF
    return None


def mean_verdict(scores: Iterable[object]) -> bool | None:
    """Return what several scores from 0 to 1 say together, or None without one."""
    said = [one for score in scores if (one := number(score)) is not None and 0 <= one <= 1]
    return sum(said) / len(said) >= _HALF if said else None


class Filling(NamedTuple):
    """The parts of a document that no source has; private unless somebody says otherwise."""

    domain: str = "general"
    visibility: Visibility = "private"
    privacy_level: PrivacyLevel = "aggregated"
    agent_id: str | None = None


class SourceRun:
    """A run of a source, bounded like any recorded run; times are epoch seconds."""

    def __init__(
        self, book: "Book", key: str, session: str | None, *, must_answer: bool = False
    ) -> None:
        self._recorder = Recorder(lambda _: None, book.limits, framework=book.source)
        self._recorder.trace_id = trace_id(book.source, key)
        self._recorder.thread_id = session
        self._began_at_s = book.at_s
        self._times_s: list[float] = []
        self._must_answer = must_answer
        self._has_answered = False
        self._ids: Counter[str] = Counter()
        self._open: defaultdict[str, deque[tuple[str, str | tuple[str, str], float | None]]]
        self._open = defaultdict(deque)  # the own id, tool and time of calls without a result
        self.result = ""
        self.acted = False
        self.interrupted = False
        self.success: bool | None = None
        self.error_type: str | None = None

    @property
    def id(self) -> str:
        return self._recorder.trace_id

    @property
    def has_objective(self) -> bool:
        """Whether somebody has said what it is for."""
        return bool(self._recorder.objective)

    def replay(self, root: HeldSpan) -> bool:
        """Take all steps from the spans of a run; False if they tell nothing that was said."""
        self._recorder.outcome(success=self.success)
        self.acted = replay(root, self._recorder)
        return self.acted

    def take(
        self,
        said: Said,
        at_s: float | None = None,
        *,
        call: ModelCall | None = None,
        place: Place | None = None,
    ) -> None:
        """Note what a message says; ``call`` goes before the one that the message tells."""
        for result in said.results:
            output, call_id, tool, failed = result
            self.returned(output, call_id, at_s, tool=tool, failed=failed, place=place)
        if said.role == "user" and said.texts:
            self.said("\n".join(said.texts), at_s)
        elif said.role == "assistant":
            if call is None and (said.model, said.read, said.written) != (None, None, None):
                call = ModelCall(said.model, said.read, said.written)
            for thought in said.thoughts or ("",):
                self.thought(thought, at_s, call=call, place=place)
                call = None
            for tool, given, call_id, _ in said.calls:
                self.called(_with_server(tool), dict(given), call_id, at_s, place=place)

    def said(self, words: str, at_s: float | None = None) -> None:
        """Note what a person said; the first words are the objective."""
        if not self.has_objective:
            self._recorder.set_objective(words)
        self._note("observation", at_s, content=words)
        self._has_answered = self.interrupted = False

    def thought(
        self,
        words: str,
        at_s: float | None = None,
        *,
        call: ModelCall | None = None,
        place: Place | None = None,
    ) -> None:
        """Note a thought or an answer of the agent, with the model call that it came from."""
        if call is not None:
            self.used(call)
        if words:
            self._note("thought", at_s, content=words, took=call, place=place)
            if place is None:
                self._has_answered, self.result = True, words
        self.acted = True

    def used(self, call: ModelCall) -> None:
        if call.model is not None:
            self._recorder.model = call.model
        if call.input_tokens is not None or call.output_tokens is not None:
            self._recorder.used_tokens(
                input_tokens=call.input_tokens or 0, output_tokens=call.output_tokens or 0
            )

    def called(
        self,
        tool: str | tuple[str, str],
        given: dict[str, object],
        call_id: str | None = None,
        at_s: float | None = None,
        *,
        place: Place | None = None,
    ) -> None:
        """Note a tool call; one whose id was taken before gets another."""
        named = call_id or ""
        self._ids[named] += 1
        count = self._ids[named]
        own = f"{named}#{count}" if count > 1 or not named else named
        self._open[named].append((own, tool, at_s))
        self._note("tool_call", at_s, tool=tool, input=given, call_id=own, place=place)
        self.acted, self._has_answered = True, False

    def returned(
        self,
        output: object,
        call_id: str | None = None,
        at_s: float | None = None,
        *,
        tool: str | tuple[str, str] | None = None,
        failed: bool = False,
        took_ms: float | None = None,
        place: Place | None = None,
    ) -> None:
        """Note the result of the oldest call with this id that has none yet."""
        waiting = self._open.get(call_id or "")
        if waiting:
            call_id, tool, called_s = waiting.popleft()
            if took_ms is None and at_s is not None and called_s is not None:
                took_ms = max(0.0, (at_s - called_s) * 1000)
        self._note(
            "error_recovery" if failed else "observation",
            at_s,
            tool=tool,
            output_summary=output,
            took=took_ms,
            call_id=call_id,
            place=place,
        )
        self.acted, self._has_answered = True, False

    def recorded(self, filling: Filling) -> RecordedRun | None:
        """Return the run as recording hands it on, or None if the agent has done nothing."""
        recorder = self._recorder
        if not self.acted or recorder.log.count == 0:
            return None
        if not recorder.finished:
            self._finish(recorder)
        run = assemble(recorder, **filling._asdict())
        told = {} if recorder.is_success_assumed else {"success_source": "verdict"}
        return None if run is None else run.model_copy(update={"part": None, **told})

    def _finish(self, recorder: Recorder) -> None:
        began_s = min(self._times_s, default=self._began_at_s)
        recorder.started_at_s = time.time() if began_s is None else began_s
        recorder.clock_started_s = recorder.started_at_s  # steps have epoch seconds
        recorder.outcome(self.result, success=self.success)
        recorder.error_type = self.error_type
        has_end = self._has_answered or not self._must_answer
        recorder.finish(complete=has_end and not self.interrupted)
        recorder.duration_ms = None
        if self._times_s:
            recorder.duration_ms = round((max(self._times_s) - min(self._times_s)) * 1000)

    def _note(self, kind: StepType, at_s: float | None, **noted: Any) -> None:
        step = self._recorder.note(kind, **noted)
        if step is not None:
            step["at"] = at_s
        if at_s is not None:
            times_s = (*self._times_s, at_s)
            self._times_s = [min(times_s), max(times_s)]


def _with_server(tool: str) -> str | tuple[str, str]:
    """Return the name of a tool, with that of its MCP server.

    >>> _with_server("Bash"), _with_server("mcp__github__get_issue")
    ('Bash', ('get_issue', 'github'))
    """
    match tool.split("__", 2):
        case ["mcp", server, own] if server and own:
            return own, server
    return tool


@dataclass
class Book:
    """Begins runs for the reader of one file, and counts what it skips.

    A run begins at each message of a person, unless whole sessions are wanted. ``retracted`` are
    ids of runs that were read, and abandoned later on in their session.
    """

    source: str
    limits: Limits = field(default_factory=Limits)
    whole_sessions: bool = False
    at_s: float | None = None
    path: Path | None = None
    skipped: Counter[Skipped] = field(default_factory=Counter)
    retracted: list[str] = field(default_factory=list)

    def skip(self, reason: Skipped) -> None:
        self.skipped[reason] += 1

    def begin(self, key: str, session: str | None = None) -> SourceRun:
        return SourceRun(self, key, session)

    def turn(self, run: SourceRun | None, key: str, session: str | None) -> SourceRun:
        """Return the run of what a person says next in a session: a new one, or the whole."""
        if run is not None and self.whole_sessions:
            return run
        return SourceRun(self, key, session, must_answer=True)


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
