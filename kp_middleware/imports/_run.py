"""A run of a source while it is read, and the book in which the readers of sources write."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from kp_middleware.recording import Limits, ModelCall, Place, Recorder, assemble
from kp_middleware.runs import RecordedRun
from kp_middleware.spans import Fields, HeldSpan, Said, number, replay
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


class _Call(NamedTuple):
    """A tool call whose result is still to come."""

    id: str
    tool: str | tuple[str, str]
    at_s: float | None


class SourceRun:
    """A run of a source, bounded like any recorded run; times are epoch seconds."""

    def __init__(
        self,
        source: str,
        key: str,
        limits: Limits,
        *,
        session: str | None = None,
        at_s: float | None = None,
        must_answer: bool = False,
    ) -> None:
        self._recorder = Recorder(lambda _: None, limits, framework=source)
        self._recorder.trace_id = trace_id(source, key)
        self._recorder.thread_id = session
        self._began_at_s = at_s
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._must_answer = must_answer
        self._has_answered = False
        self._result = ""
        self._ids: Counter[str] = Counter()
        self._open: defaultdict[str, deque[_Call]] = defaultdict(deque)
        self.acted = False
        self.interrupted = False
        self.success: bool | None = None
        self.error_type: str | None = None

    @property
    def id(self) -> str:
        """Its trace id."""
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
            self.returned(
                result.output,
                result.call_id,
                at_s,
                tool=result.tool,
                failed=result.failed,
                place=place,
            )
        if said.role == "user" and said.texts:
            self.said("\n".join(said.texts), at_s)
        elif said.role == "assistant":
            if call is None and (said.model, said.read, said.written) != (None, None, None):
                call = ModelCall(said.model, said.read, said.written)
            for thought in said.thoughts or ("",):
                self.thought(thought, at_s, call=call, place=place)
                call = None
            for tool, given, call_id, _ in said.calls:
                self.called(_named(tool), dict(given), call_id, at_s, place=place)

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
                self._has_answered, self._result = True, words
        self.acted = True

    def used(self, call: ModelCall) -> None:
        """Count the tokens of a model call."""
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
        self._open[named].append(_Call(own, tool, at_s))
        self._note("tool_call", at_s, tool=tool, input=given, call_id=own, place=place)
        self.acted, self._has_answered = True, False

    def returned(
        self,
        output: object,
        call_id: str | None = None,
        at_s: float | None = None,
        *,
        tool: str | None = None,
        failed: bool = False,
        took_ms: float | None = None,
        place: Place | None = None,
    ) -> None:
        """Note the result of the oldest call with this id that has none yet."""
        waiting = self._open.get(call_id or "")
        call = waiting.popleft() if waiting else None
        if call is not None and took_ms is None and at_s is not None and call.at_s is not None:
            took_ms = max(0.0, (at_s - call.at_s) * 1000)
        self._note(
            "error_recovery" if failed else "observation",
            at_s,
            tool=tool if call is None else call.tool,
            output_summary=output,
            took=took_ms,
            call_id=call_id if call is None else call.id,
            place=place,
        )
        self.acted, self._has_answered = True, False

    def answered(self, result: str) -> None:
        """Set the result, where the source has one beside the agent's last words."""
        self._result = result or self._result

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
        began_s = self._began_at_s if self._first_s is None else self._first_s
        recorder.started_at_s = time.time() if began_s is None else began_s
        recorder.clock_started_s = recorder.started_at_s  # steps have epoch seconds
        recorder.outcome(self._result, success=self.success)
        recorder.error_type = self.error_type
        recorder.finish(
            complete=not self.interrupted and (self._has_answered or not self._must_answer)
        )
        took_s = None if self._first_s is None else (self._last_s or 0) - self._first_s
        recorder.duration_ms = None if took_s is None else round(took_s * 1000)

    def _note(self, kind: StepType, at_s: float | None, **noted: Any) -> None:
        step = self._recorder.note(kind, **noted)
        if step is not None:
            step["at"] = at_s
        if at_s is not None:
            self._first_s = at_s if self._first_s is None else min(self._first_s, at_s)
            self._last_s = at_s if self._last_s is None else max(self._last_s, at_s)


def _named(tool: str) -> str | tuple[str, str]:
    """Return the name of a tool, with that of its MCP server.

    >>> _named("Bash"), _named("mcp__github__get_issue")
    ('Bash', ('get_issue', 'github'))
    """
    match tool.split("__", 2):
        case ["mcp", server, own] if server and own:
            return own, server
    return tool


class Book:
    """Begins runs for the reader of one file, and counts what it skips.

    A run begins at each message of a person, unless whole sessions are wanted. ``retracted`` are
    ids of runs that were read, and abandoned later on in their session.
    """

    def __init__(
        self,
        source: str,
        limits: Limits | None = None,
        *,
        whole_sessions: bool = False,
        at_s: float | None = None,
        path: Path | None = None,
    ) -> None:
        self.source = source
        self.path = path
        self.limits = limits or Limits()
        self.at_s = at_s
        self.skipped: Counter[Skipped] = Counter()
        self.retracted: list[str] = []
        self._whole_sessions = whole_sessions

    def skip(self, reason: Skipped) -> None:
        """Count one thing that is not imported."""
        self.skipped[reason] += 1

    def begin(
        self, key: str, session: str | None = None, *, must_answer: bool = False
    ) -> SourceRun:
        """Begin a run."""
        return SourceRun(
            self.source,
            key,
            self.limits,
            session=session,
            at_s=self.at_s,
            must_answer=must_answer,
        )

    def turn(self, run: SourceRun | None, key: str, session: str | None) -> SourceRun:
        """Return the run of what a person says next in a session: a new one, or the whole."""
        if run is not None and self._whole_sessions:
            return run
        return self.begin(key, session, must_answer=True)
