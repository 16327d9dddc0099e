"""The recorder of one run, callable from any thread; a note takes a few microseconds.

Recording never raises into the agent and keeps no reference to its objects: each note becomes
bounded JSON immediately, and the worker's thread builds the document later.
"""

import json
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from numbers import Real
from time import perf_counter, time
from typing import Any, Final, TypeAlias

from kp_middleware.confidence import log_probabilities
from kp_middleware.recording._bounds import (
    BEGINNING,
    NAME_BYTES,
    LateNote,
    ModelCall,
    StepFields,
    StepLog,
    bounded_mapping,
    bounded_name,
    bounded_text,
    causes,
    error_text,
    jsonable,
    size_bytes,
)
from kp_middleware.recording._context import Place, current_place, current_recorder, shield
from kp_middleware.recording._extractors import Extractors, confidence_by
from kp_middleware.runs import Awaited
from kp_middleware.traces import Limits, StepType, fresh_id

GIVEN_UP: Final = (CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""The exceptions that abandon a run, which is then incomplete, not failed."""

OWN_CALL_IDS: Final = "kp:trace:"
"""The prefix of generated tool call ids."""

_LONGEST_MS: Final = 1e12  # 30 years

_NO_EXTRACTORS: Final = Extractors()

Sink: TypeAlias = Callable[["Recorder"], None]


@dataclass(slots=True)
class ThreadNotes:
    """The state of a run in its thread, set by an adapter; see `ThreadPart`."""

    agent: str | None = None
    follows: bool = False
    has_guessed_objective: bool = False  # from messages before it resumed, not its own input
    answers: tuple[str, ...] = ()
    awaits: Awaited | None = None
    questions: tuple[str, ...] = ()
    pending_calls: Mapping[str, str] = field(default_factory=dict)  # tool names by id
    repeats_calls: bool = False  # steps may repeat those of an earlier part, with the same ids
    last_decision_input: object = None  # of the last recorded decision: several roots receive it

    def resume(self, answers: tuple[str, ...] = ()) -> Mapping[str, str]:
        """Resume a paused run; return its pending calls if this recorder has them."""
        if self.awaits is None:
            self.follows, self.answers = True, answers
            return {}
        pending = self.pending_calls
        self.awaits, self.questions, self.pending_calls = None, (), {}
        return pending


class Recorder:
    """The recorder of one run, which `current_trace()` returns inside it.

    ``thought``, ``tool_call``, ``observation``, ``error`` and ``outcome`` are for users, the others
    for adapters. All are thread-safe. Notes after ``finish`` are dropped.
    """

    def __init__(self, sink: Sink, limits: Limits, *, framework: str) -> None:
        self._sink = sink
        self._limits = limits
        self._lock = threading.RLock()  # the garbage collector may end another run during a note
        self.clock: Callable[[], float] = perf_counter
        self.clock_started_s, self.started_at_s = self.clock(), time()  # taken together
        # errors are known by their `__dict__`: an id may be reused
        self._errors: deque[tuple[dict[str, Any], StepFields]] = deque(maxlen=20)
        self._tools: dict[str, StepFields] = {}
        self.log = StepLog(limits)
        self.last_step = BEGINNING
        self.trace_id = fresh_id()
        self.duration_ms: int | None = None
        self.framework = framework
        self.domain: str | None = None
        self.objective = ""
        self.result_summary = ""
        self.confidence: float | None = None
        self.is_extracted = False
        self.extractors = _NO_EXTRACTORS
        self.from_logprobs: list[float | None] = []  # of the last answer outside of any tool
        self.success: bool | None = None
        self.is_success_assumed = self.finished = False
        self.complete = True
        self._calls = count(1)
        self.error_type: str | None = None
        self.unfinished: str | None = None
        self.agent_name: str | None = None
        self.model: str | None = None
        self.thread_id: str | None = None
        self.thread_notes = ThreadNotes()
        self.tags: tuple[str, ...] = ()
        self.owner: str | None = None
        self.recalled: dict[str, None] = {}
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.later_bytes = 0
        self.write: Callable[[], object] | None = None

    def at(self, at_s: float) -> None:
        """Set the time of the following notes, in seconds since the epoch, to record a past run.

        The time set before the first step is the start of the run.
        """
        if self.clock is perf_counter and not self.log.kept:
            self.started_at_s = at_s
        now = self.clock_started_s + at_s - self.started_at_s
        self.clock = lambda: now

    @shield
    def thought(
        self,
        content: str,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        latency_ms: float | None = None,
    ) -> None:
        """Note a thought or an answer of the agent.

        Args:
            content: The text.
            model: The name of the model that wrote it.
            input_tokens: Number of tokens that the model read.
            output_tokens: Number of tokens that it wrote.
            latency_ms: Duration of the model call, in milliseconds.
        """
        read, written = (n if n is None else int(n) for n in (input_tokens, output_tokens))
        call = ModelCall(model, read, written, _valid_ms(latency_ms))
        self.note("thought", content, took=call, place=current_place())
        if model is not None:
            self.model = bounded_name(model)
        if read is not None or written is not None:
            self.used_tokens(input_tokens=read or 0, output_tokens=written or 0)

    @shield
    def tool_call(
        self,
        tool: str,
        input: Mapping[str, object] | None = None,
        *,
        mcp_server: str | None = None,
        call_id: str | None = None,
    ) -> None:
        """Note a tool call with its arguments.

        If calls run concurrently, give the observation of the result the same ``call_id``.
        """
        named = tool if mcp_server is None else (tool, mcp_server)
        self.note("tool_call", tool=named, input=input, place=current_place(), call_id=call_id)

    @shield
    def observation(
        self,
        content: str | None = None,
        *,
        tool: str | None = None,
        output_summary: object = None,
        latency_ms: float | None = None,
        call_id: str | None = None,
    ) -> None:
        """Note an observation: ``content`` is compared with other runs, a summary is only stored.

        Pass a person's message as ``content``, and a tool's result as ``output_summary``.
        """
        place = current_place()
        self.note("observation", content, tool, output_summary, latency_ms, place, call_id)

    @shield
    def error(
        self,
        error: BaseException | str,
        *,
        tool: str | None = None,
        latency_ms: float | None = None,
        call_id: str | None = None,
        place: Place | None = None,
    ) -> None:
        """Note an error, as an ``error_recovery`` unless the same error ends the run."""
        text = error if isinstance(error, str) else error_text(error)
        place = current_place() if place is None else place
        step = self.note("error_recovery", None, tool, text, latency_ms, place, call_id)
        if step is not None and isinstance(error, BaseException):
            self._errors.append((vars(error), step))

    def already_recorded(self, error: BaseException) -> bool:
        """Return True if this error is the last step, and so is propagating out of the run."""
        if not self._errors:
            return False
        attributes, step = self._errors[-1]
        return step is self.last_step and attributes is vars(error)

    @shield
    def outcome(
        self,
        result_summary: object = None,
        *,
        confidence: float | None = None,
        success: bool | None = None,
    ) -> None:
        """Set the outcome of the run; None leaves a value as it was.

        Args:
            result_summary: The final answer.
            confidence: The agent's confidence, 0 to 1.
            success: True if the task was done; by default, True if the run ended without error.
                Other values, such as ``"no"``, are ignored, and counted in `kp.stats().swallowed`.
        """
        if self.finished:
            return
        if result_summary is not None:
            self.result_summary, _ = self._sized_text(result_summary)
        if success in (True, False):
            self.success = bool(success)
        if confidence is not None:
            if not 0 <= confidence <= 1:
                raise ValueError(f"confidence must be a number (0 to 1), got {confidence!r}")
            self.confidence = float(confidence)
        if success not in (None, True, False):
            raise TypeError(f"success must be a bool, got {success!r}")

    @shield
    def extract_confidence(self, *results: object) -> None:
        """Extract the confidence from the run's result, unless it is set."""
        if self.confidence is None and not self.finished:
            self.confidence = self.extractors.confidence(results, self.from_logprobs)
            self.is_extracted = self.confidence is not None

    def record_logprobs(self, answer: object) -> None:
        """Set the confidence from an answer's log-probabilities."""
        self.from_logprobs = [confidence_by(log_probabilities, answer)]

    def new_call_id(self) -> str:
        """Return a new id for a tool call without one."""
        return f"{self.trace_id}#{next(self._calls)}"

    @shield
    def set_objective(self, objective: object) -> None:
        """Set the objective of the run."""
        if not self.finished:
            self.objective, _ = self._sized_text(objective)

    @shield
    def used_tokens(self, *, input_tokens: int, output_tokens: int) -> None:
        """Add the tokens of one model call."""
        with self._lock:
            if not self.finished:
                self.input_tokens = (self.input_tokens or 0) + int(input_tokens)
                self.output_tokens = (self.output_tokens or 0) + int(output_tokens)

    def finish(
        self, error: BaseException | None = None, *, complete: bool = True, is_noted: bool = False
    ) -> None:
        """Finish the run; only the first call counts.

        Args:
            error: The error that ended it, or None.
            complete: False if the run was cancelled, timed out or abandoned.
            is_noted: True if the error has a step already.
        """
        with self._lock:
            if self.finished:
                return
            self.finished = True
        self.duration_ms = round((self.clock() - self.clock_started_s) * 1000)
        self.complete = complete and self.thread_notes.awaits != "human"
        if error is not None:
            self._fail(error, is_noted=is_noted)
        elif self.success is None:  # nobody said: only what names a reason, a cut-off, is known
            if self.unfinished is not None and self.thread_notes.awaits != "human":
                self.complete, self.error_type = False, self.unfinished
            self.success = self.complete
            self.is_success_assumed = self.complete or self.error_type is None
        self._errors.clear()  # release the agent's objects
        self.thread_notes.last_decision_input = None
        self._sink(self)

    def finish_later(self, write: Callable[[], object], size_bytes: int) -> None:
        """Queue the run; ``write`` adds its steps and finishes it on the worker's thread."""
        self.write, self.later_bytes = shield(write), size_bytes
        sink, self._sink = self._sink, lambda _: None
        sink(self)

    @shield
    def _fail(self, error: BaseException, *, is_noted: bool) -> None:
        self.error_type = type(error).__name__
        self.success = False
        if is_noted:
            return
        latest = {id(attributes): step for attributes, step in self._errors}
        fatal = [latest[key] for cause in causes(error) if (key := id(vars(cause))) in latest]
        if not fatal:
            text, size = self._sized_text(error_text(error))
            fatal.append({"type": "error_recovery", "at": self.clock(), "output_summary": text})
            self.log.append(fatal[0], size)
        if self.thread_notes.awaits is None:  # else it may resume
            for step in fatal:
                self.log.mark_fatal(step)

    def note(
        self,
        kind: StepType,
        content: object = None,
        tool: str | tuple[str, str] | None = None,
        output_summary: object = None,
        took: float | ModelCall | None = None,
        place: Place | None = None,
        call_id: str | None = None,
        input: Mapping[str, object] | None = None,
    ) -> StepFields | None:
        """Add a step, unless the run is finished: the fast path for adapters, which never raises.

        Args:
            kind: The type of the step.
            content: The text that is embedded and compared.
            tool: The tool's name, or its name and that of its MCP server.
            output_summary: A value that is only stored.
            took: The latency of a tool in milliseconds, or the model call behind the step; an
                invalid latency is ignored.
            place: The place in the run; None means the run's own agent.
            call_id: The id of the tool call that the step makes or answers.
            input: The arguments of a tool call.

        Returns:
            The step as it is stored, or None.
        """
        step: StepFields = {"type": kind, "at": self.clock(), "place": place}
        step_bytes = 0
        try:
            if content is not None:
                step["content"], step_bytes = self._sized_text(content)
            if tool is not None:
                known = self._tools.get(tool) if type(tool) is str else None
                step["tool"] = known or self._tool(tool)
            if input is not None:
                step["input"], size = bounded_mapping(input, self._limits.field_bytes)
                step_bytes += size
            if output_summary is not None:
                step["output_summary"], size = self._sized_text(output_summary)
                step_bytes += size
            if type(took) is ModelCall:
                step["model_call"] = took
            elif (took_ms := _valid_ms(took)) is not None:
                step["latency_ms"] = took_ms
            if call_id is not None:
                step["call_id"] = call_id if type(call_id) is str else str(call_id)
            with self._lock:
                if self.finished:
                    return None
                self.log.append(step, step_bytes)
                self.last_step = step
        except Exception as error:  # noqa: BLE001 - recording must never break the agent
            shield.swallow(f"a {kind}", error)
            return None
        return step

    @shield
    def note_late(self, notes: Iterable[LateNote]) -> None:
        """Insert steps that are reported late, each after its step ``after``."""
        late = []
        for kind, content, after, tool, place, call_id, at in notes:
            text, size = self._sized_text(content)
            step: StepFields = {"type": kind, "at": self.clock() if at is None else at}
            step |= {"content" if kind == "thought" else "output_summary": text, "place": place}
            if tool is not None:
                step["tool"] = self._tool(tool)
            if call_id is not None:
                step["call_id"] = bounded_name(call_id)
            late.append((step, size, after))
        with self._lock:
            if late and not self.finished:
                self.log.insert(late)

    def _tool(self, name: str | tuple[str, str]) -> StepFields:
        """Return the tool of a step; steps with the same tool share it."""
        if isinstance(name, tuple):
            return dict(zip(("name", "mcp_server"), map(bounded_name, name), strict=True))
        tool = {"name": bounded_name(name)}
        if type(name) is str and len(name) <= NAME_BYTES:
            self._tools[name] = tool
        return tool

    def _sized_text(self, value: object) -> tuple[str, int]:
        """Return a value as bounded text, and its size in bytes."""
        limit = self._limits.field_bytes
        if type(value) is str and value.isascii():  # nearly always
            size = len(value)
            if size <= limit and "\0" not in value:
                return value, size
        if issubclass(type(value), str):
            text = bounded_text(str.__str__(value), limit)  # a subclass may override `__str__`
        else:
            text = json.dumps(jsonable(value, limit), ensure_ascii=False)
        return text, size_bytes(text)


def _valid_ms(took: object) -> float | None:
    is_number = type(took) is float or isinstance(took, Real)  # the first is quicker
    return float(took) if is_number and 0 <= took < _LONGEST_MS else None  # type: ignore[operator, arg-type]


def current_trace() -> Recorder:
    """Return the recorder of the current run; outside any run, a recorder that drops every note.

    >>> current_trace().thought("outside any run, this does nothing")
    """
    return current_recorder() or _null_recorder()


@cache
def _null_recorder() -> Recorder:
    recorder = Recorder(lambda _: None, Limits(), framework="none")
    recorder.finish()  # then it drops every note
    return recorder
