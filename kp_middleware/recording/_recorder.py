"""Take notes of one run, from any thread, for a few microseconds each.

Nothing here raises into the agent or keeps a reference to its objects: each note becomes bounded
plain JSON at once, and the frozen document is built later, on the worker's thread.
"""

import json
import math
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from time import perf_counter, time
from typing import Any, Final, NamedTuple, Protocol

from kp_middleware.recording._confidence import Sureness
from kp_middleware.recording._jsonable import BoundedCopy, jsonable
from kp_middleware.recording._limits import NAME_BYTES, Limits, bounded_text, size_bytes
from kp_middleware.recording._shield import shield
from kp_middleware.recording._step_log import BEGINNING, Beside, Late, StepFields, StepLog
from kp_middleware.recording._thread_notes import ThreadNotes
from kp_middleware.traces import StepType, fresh_id

_MAX_ERRORS: Final = 20
_MAX_TOOLS: Final = 64


class Sink(Protocol):
    """Takes a recorder whose run has ended."""

    def __call__(self, recorder: "Recorder", /) -> None:
        """Take it; must be quick and must not raise."""


class _Noted(NamedTuple):
    """An error that has a step; known by its ``__dict__``, because its ``id`` is soon another's."""

    attributes: dict[str, Any]
    step: StepFields


class LateNote(NamedTuple):
    """A step that turned out late, as an adapter knows it."""

    kind: StepType
    text: str
    after: StepFields
    tool: str | None = None
    beside: Beside | None = None


class Recorder:
    """The notes of one run: what `current_trace()` gives inside it.

    ``thought``, ``tool_call``, ``observation``, ``error`` and ``outcome`` are for users; the rest
    is for adapters. Each may be called from any thread. Notes that come after ``finish`` are
    dropped.
    """

    def __init__(self, sink: Sink, limits: Limits, *, framework: str) -> None:
        self._sink = sink
        self._limits = limits
        self._lock = threading.RLock()  # the garbage collector may end another run while we note
        self._started = perf_counter()
        self._errors: deque[_Noted] = deque(maxlen=_MAX_ERRORS)
        self._tools: dict[str, StepFields] = {}
        self.log = StepLog(limits)
        self.last_step = BEGINNING
        self.trace_id = fresh_id()
        self.started_at_s = time()
        self.duration_ms: int | None = None
        self.framework = framework
        self.domain: str | None = None
        self.objective = ""
        self.result_summary = ""
        self.confidence: float | None = None
        self.sureness = Sureness()
        self.success: bool | None = None
        self.complete = True
        self.finished = False
        self.error_type: str | None = None
        self.unfinished: str | None = None
        self.agent_name: str | None = None
        self.model: str | None = None
        self.thread_id: str | None = None
        self.thread_notes = ThreadNotes()
        self.tags: tuple[str, ...] = ()
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None

    @shield
    def thought(self, content: str) -> None:
        """The agent reasoned, or said something."""
        self.note("thought", content)

    @shield
    def tool_call(
        self, tool: str, input: Mapping[str, object] | None = None, *, mcp_server: str | None = None
    ) -> None:
        """The agent called a tool with these arguments."""
        self.note("tool_call", tool=tool, mcp_server=mcp_server, input=input)

    @shield
    def observation(
        self,
        content: str | None = None,
        *,
        tool: str | None = None,
        output_summary: object = None,
        latency_ms: float | None = None,
    ) -> None:
        """The agent saw something: ``content`` is compared with other runs, a summary is only kept.

        Give what a person said as ``content``, and what a tool answered as ``output_summary``.
        """
        self.note("observation", content, tool, output_summary, latency_ms)

    @shield
    def error(
        self,
        error: BaseException | str,
        *,
        tool: str | None = None,
        latency_ms: float | None = None,
        beside: Beside | None = None,
    ) -> None:
        """Something failed. It is an ``error_recovery``, unless it turns out to end the run."""
        said = error if isinstance(error, str) else error_text(error)
        step = self.note("error_recovery", None, tool, said, latency_ms, beside)
        if step is not None and isinstance(error, BaseException):
            self._errors.append(_Noted(vars(error), step))

    def has_just_noted(self, error: BaseException) -> bool:
        """Whether this error is the last thing noted: then it is on its way out of the run."""
        noted = self._errors[-1] if self._errors else None
        return (
            noted is not None and noted.step is self.last_step and noted.attributes is vars(error)
        )

    @shield
    def outcome(
        self,
        result_summary: object = None,
        *,
        confidence: float | None = None,
        success: bool | None = None,
    ) -> None:
        """How the run ended; what is None is left as it was.

        Args:
            result_summary: The final answer.
            confidence: How sure the agent is, 0 to 1; anything else is counted and ignored.
            success: Whether the task was done; by default, whether the run ended without error.
        """
        if self.finished:
            return
        if result_summary is not None:
            self.result_summary = self._text(result_summary)
        if success is not None:
            self.success = bool(success)
        if confidence is not None:
            if not 0 <= confidence <= 1:
                raise ValueError(f"confidence is from 0 to 1, this is {confidence!r}")
            self.confidence = float(confidence)

    @shield
    def asked(self, objective: object) -> None:
        """What the run is for."""
        if not self.finished:
            self.objective = self._text(objective)

    @shield
    def used_tokens(self, *, input_tokens: int, output_tokens: int) -> None:
        """Add what one model call used."""
        with self._lock:
            if not self.finished:
                self.input_tokens = (self.input_tokens or 0) + int(input_tokens)
                self.output_tokens = (self.output_tokens or 0) + int(output_tokens)

    def finish(self, error: BaseException | None = None, *, complete: bool = True) -> None:
        """The run has ended; only the first call counts.

        Args:
            error: What ended it, or None.
            complete: False where it was cancelled, timed out or abandoned.
        """
        with self._lock:
            if self.finished:
                return
            self.finished = True
        self._conclude(error, complete=complete)
        self._sink(self)

    @shield
    def _conclude(self, error: BaseException | None, *, complete: bool) -> None:
        self.duration_ms = round((perf_counter() - self._started) * 1000)
        self.complete = complete and self.thread_notes.awaits != "human"
        if error is not None:
            self.error_type = type(error).__name__
            self.success = False
            self._end_with(error)
        elif self.success is None:
            self._stop()
        self._errors.clear()
        self.thread_notes.heard = None  # the agent's own object

    def _stop(self) -> None:
        """End as nobody says how: well, unless it waits, was closed, or its last word was cut."""
        if self.unfinished is not None and self.thread_notes.awaits != "human":
            self.complete = False
            self.error_type = self.unfinished
        self.success = self.complete

    def _end_with(self, error: BaseException) -> None:
        latest = {id(noted.attributes): noted.step for noted in self._errors}
        fatal = [latest[own] for cause in causes(error) if (own := id(vars(cause))) in latest]
        may_go_on = self.thread_notes.awaits is not None
        if not fatal:
            kind: StepType = "error_recovery" if may_go_on else "observation"
            text = self._text(error_text(error))
            self.log.append({"type": kind, "output_summary": text}, size_bytes(text))
        elif not may_go_on:
            for step in fatal:
                self.log.demote(step)

    def note(
        self,
        kind: StepType,
        content: object = None,
        tool: str | None = None,
        output_summary: object = None,
        latency_ms: float | None = None,
        beside: Beside | None = None,
        mcp_server: str | None = None,
        input: Mapping[str, object] | None = None,
    ) -> StepFields | None:
        """Add a step, unless the run is over: the way of adapters, which is the shorter.

        No value can make it raise.

        Returns:
            The step as it is kept, or None.
        """
        step: StepFields = {"type": kind}
        taken = 0
        try:
            if content is not None:
                text = step["content"] = self._text(content)
                taken += size_bytes(text)
            if tool is not None:
                step["tool"] = self._tool(tool, mcp_server)
            if input is not None:
                copy = BoundedCopy(self._limits.field_bytes)
                step["input"] = copy.of_mapping(input)
                taken += copy.size_bytes
            if output_summary is not None:
                text = step["output_summary"] = self._text(output_summary)
                taken += size_bytes(text)
            if latency_ms is not None and (took_ms := _duration_ms(latency_ms)) is not None:
                step["latency_ms"] = took_ms
            if beside is not None:
                step["beside"] = beside
            with self._lock:
                if self.finished:
                    return None
                self.log.append(step, taken)
                self.last_step = step
        except Exception as error:  # noqa: BLE001 - the agent never pays for being watched
            shield.swallow(f"a {kind}", error)
            return None
        return step

    @shield
    def note_late(self, notes: Iterable[LateNote]) -> None:
        """Add steps that turned out late where they belong: ``after`` what was the last step.

        Those after the same step stand in the order in which they are given.
        """
        late = [self._late(note) for note in notes]
        with self._lock:
            if late and not self.finished:
                self.log.insert(late)

    def _late(self, note: LateNote) -> Late:
        text = self._text(note.text)
        step: StepFields = {"type": note.kind}
        step["content" if note.kind == "thought" else "output_summary"] = text
        if note.tool is not None:
            step["tool"] = self._tool(note.tool, None)
        if note.beside is not None:
            step["beside"] = note.beside
        return step, size_bytes(text), note.after

    def _tool(self, name: str, mcp_server: str | None) -> StepFields:
        """The tool of a step; steps share it, because it is the same again and again."""
        if mcp_server is not None:
            server = bounded_text(str(mcp_server), NAME_BYTES)
            return {"name": bounded_text(str(name), NAME_BYTES), "mcp_server": server}
        if type(name) is not str or len(name) > NAME_BYTES:
            return {"name": bounded_text(str(name), NAME_BYTES)}
        known = self._tools.get(name)
        if known is None:
            if len(self._tools) == _MAX_TOOLS:
                self._tools.clear()
            known = self._tools[name] = {"name": bounded_text(name, NAME_BYTES)}
        return known

    def _text(self, value: object) -> str:
        """A text as it is, anything else as JSON."""
        limit = self._limits.field_bytes
        if type(value) is str:
            return bounded_text(value, limit)
        if issubclass(type(value), str):
            return bounded_text(str.__str__(value), limit)  # a subclass may read as another text
        return json.dumps(jsonable(value, limit), ensure_ascii=False)


def _duration_ms(value: object) -> float | None:
    """A time that something can have taken; anything else is left out."""
    if type(value) is float and 0 <= value < math.inf:
        return value
    if not isinstance(value, Real):
        return None
    try:
        duration_ms = float(value)
    except OverflowError:
        return None
    return duration_ms if 0 <= duration_ms < math.inf else None


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, at most ten."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ if cause.__suppress_context__ else cause.__context__


def error_text(error: BaseException) -> str:
    """``ValueError: what it says``, also where saying it raises."""
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return type(error).__name__
