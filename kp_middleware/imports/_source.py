"""Read the JSON values of a file, and build runs from the messages and spans in them."""

import gzip
import json
import re
import time
import zlib
from codecs import getreader
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, cast
from uuid import UUID, uuid5

from kp_middleware.recording import ModelCall, Place, Recorder, ToolCall, assemble, jsonable
from kp_middleware.runs import RecordedRun
from kp_middleware.spans.messages import (
    ChatMessage,
    Json,
    Result,
    as_number,
    parse_json,
    sum_tokens,
)
from kp_middleware.spans.replay import BufferedSpan, replay
from kp_middleware.traces import Limits, PrivacyLevel, StepType, Visibility

ToolName: TypeAlias = str | tuple[str, str]
"""The name of a tool, or that and the name of its MCP server."""

_NAMESPACE: Final = UUID("6f0cb5c4-9f0e-5d0c-8a53-0d1a4f2c7be1")
_MAX_LINE_BYTES: Final = 16 << 20  # bytes; longer lines are skipped and counted
_MAX_DOCUMENT_CHARACTERS: Final = 32 << 20
_HEAD_BYTES: Final = 64 << 10
_CHUNK: Final = 1 << 20
_SEPARATORS: Final = frozenset(" \t\r\n,")
_MAX_GUESSES: Final = 100  # calls that a result without an id may answer
_MESSAGE_LIST: Final = re.compile(r'\[\s*\{\s*"(?:role|content|type)"\s*:')


def verdict(document: Json) -> bool | None:
    """Return the success that a source reports; a score of 0.5 or more is a success.

    >>> verdict({"reward": 1.0}), verdict({"resolved": False}), verdict({"messages": []})
    (True, False, None)
    """
    for key in ("reward", "resolved", "success", "target", "score"):
        value: Any = document.get(key)
        if isinstance(value, bool):
            return value
        if (score := as_number(value)) is not None:
            return score >= 0.5
    return None


def mean_verdict(scores: Iterable[object]) -> bool | None:
    valid = [score for score in map(as_number, scores) if score is not None and 0 <= score <= 1]
    return sum(valid) / len(valid) >= 0.5 if valid else None


class RunDefaults(NamedTuple):
    """The metadata that no source has; private by default."""

    domain: str = "general"
    visibility: Visibility = "private"
    privacy_level: PrivacyLevel = "aggregated"
    agent_id: str | None = None


class SourceRun:
    """A run of a source, with the limits of a recorded run; its key determines its id."""

    def __init__(self, context: "ImportContext", key: str, session: str | None = None) -> None:
        self._context = context
        full_key = f"{context.source}:{key}".encode(errors="replace").decode()
        self.recorder = Recorder(lambda _: None, context.limits, framework=context.source)
        self.recorder.trace_id = self.id = f"kp:trace:{uuid5(_NAMESPACE, full_key)}"
        self.recorder.thread_id = session
        self._times_s: list[float] = []
        self.requires_answer = False
        self._has_answered = False
        self._id_counts: Counter[str] = Counter()
        # by the source's id, the calls without a result: their unique ids, tools and times
        self._pending_calls = defaultdict[str, deque[tuple[str, ToolName, float | None]]](deque)
        self.result = ""
        self.has_activity = False
        self.interrupted = False

    def replay_spans(
        self, root: BufferedSpan, *, success: bool | None = None
    ) -> Iterator["SourceRun"]:
        self.recorder.outcome(success=success)
        self.has_activity = replay(root, self.recorder)
        if self.has_activity:
            yield self
        else:
            self._context.skip("no_content")

    def add_message(
        self,
        message: ChatMessage,
        at_s: float | None = None,
        *,
        call: ModelCall | None = None,
        place: Place | None = None,
        took_ms: float | None = None,
    ) -> None:
        """Add a message at an epoch second; ``call`` overrides its own model and tokens."""
        for result in message.results:
            self._add_result(result, at_s, place, took_ms)
        if message.role == "user" and message.texts:
            text = "\n".join(message.texts)
            if not self.recorder.objective:
                self.recorder.set_objective(text)
            self._note("observation", at_s, content=text)
            self._has_answered = self.interrupted = False
        elif message.role == "assistant":
            call = call or ModelCall(message.model, message.input_tokens, message.output_tokens)
            self.count_tokens(call)
            took = None if call == ModelCall() else call  # by the first thought or call
            for step in message.served:
                if isinstance(step, ToolCall):
                    self._add_call(step, at_s, place)
                else:
                    served = Result(step.output, tool=step.name, failed=step.failed)
                    self._add_result(served, at_s, place, None)
            for thought in filter(None, message.thoughts):
                self._note("thought", at_s, content=thought, took=took, place=place)
                took = None
            if place is None and message.texts:
                self._has_answered, self.result = True, message.texts[-1]
            for requested in message.calls:
                self._add_call(requested, at_s, place, took)
                took = None
            self.has_activity = True

    def count_tokens(self, call: ModelCall) -> None:
        if call.model is not None:
            self.recorder.model = call.model
        if call.input_tokens is not None or call.output_tokens is not None:
            self.recorder.used_tokens(
                input_tokens=call.input_tokens or 0, output_tokens=call.output_tokens or 0
            )

    def count_total(self, totals: Json, *keys: str) -> None:
        """Count the tokens of the whole run if those of its steps are unknown."""
        if self.recorder.input_tokens is None:
            self.count_tokens(ModelCall(None, *map(sum_tokens, map(totals.get, keys))))

    def _add_call(
        self, call: ToolCall, at_s: float | None, place: Place | None, took: ModelCall | None = None
    ) -> None:
        """Add a tool call; make its id unique."""
        tool, call_id = cast("ToolName", call.name), call.id or ""
        match str(tool).split("__", 2):
            case ["mcp", server, name] if server and name:
                tool = name, server
        self._id_counts[call_id] += 1
        count = self._id_counts[call_id]
        unique_id = f"{call_id}#{count}" if count > 1 or not call_id else call_id
        self._pending_calls[call_id].append((unique_id, tool, at_s))
        details = {"tool": tool, "input": dict(call.args), "took": took, "call_id": unique_id}
        self._note("tool_call", at_s, **details, place=place)
        self._has_answered = False

    def _add_result(
        self, result: Result, at_s: float | None, place: Place | None, took_ms: float | None
    ) -> None:
        """Add the result of the oldest pending call with its id, else of its tool, else of any."""
        call_id, tool = result.call_id, cast("ToolName | None", result.tool)
        pending = self._pending_calls
        nearest = [call_id] if call_id else islice(pending, _MAX_GUESSES)
        ids = [id for id in nearest if id in pending]
        if ids:
            key = min(ids, key=lambda id: pending[id][0][1] != tool)
            call_id, tool, called_s = pending[key].popleft()
            if not pending[key]:
                del pending[key]
            if took_ms is None and at_s is not None and called_s is not None:
                took_ms = max(0.0, (at_s - called_s) * 1000)
        kind: StepType = "error_recovery" if result.failed else "observation"
        details = {"output_summary": result.output, "took": took_ms, "call_id": call_id}
        self._note(kind, at_s, tool=tool, **details, place=place)
        self.has_activity, self._has_answered = True, False

    def to_recorded(self, defaults: RunDefaults) -> RecordedRun | None:
        """Return the recorded run, or None if the agent did nothing."""
        recorder, times_s = self.recorder, self._times_s
        if not self.has_activity or recorder.log.count == 0:
            return None
        has_raised = recorder.finished and recorder.error_type is not None
        if not recorder.finished:
            now_s = time.time() if self._context.at_s is None else self._context.at_s
            recorder.started_at_s = min(times_s, default=now_s)
            recorder.clock_started_s = recorder.started_at_s  # steps have epoch seconds
            recorder.outcome(self.result)
            has_end = self._has_answered or not self.requires_answer
            recorder.finish(complete=has_end and not self.interrupted)
            took_ms = round((max(times_s) - min(times_s)) * 1000) if len(times_s) > 1 else None
            recorder.duration_ms = took_ms
        run = assemble(recorder, **defaults._asdict())
        update = {} if recorder.is_success_assumed or has_raised else {"success_source": "verdict"}
        return None if run is None else run.model_copy(update={"part": None, **update})

    def _note(self, kind: StepType, at_s: float | None, **details: Any) -> None:
        step = self.recorder.note(kind, **details)
        if step is not None:
            step["at"] = at_s
        if at_s is not None:
            self._times_s.append(at_s)


@dataclass
class ImportContext:
    source: str
    limits: Limits = field(default_factory=Limits)
    whole_sessions: bool = False
    at_s: float | None = None  # the time of runs without timestamps
    path: Path | None = None
    run: SourceRun | None = None  # the open run of a session
    skipped: Counter[str] = field(default_factory=Counter)  # counts by reason
    retracted: list[str] = field(default_factory=list)  # ids of runs whose branch was abandoned

    def skip(self, reason: str) -> None:
        self.skipped[reason] += 1

    def start_turn(self, key: str, session: str | None) -> Iterator[SourceRun]:
        """Start a run at a person's message, unless ``whole_sessions``; yield the previous run."""
        if self.run is None or not self.whole_sessions:
            yield from self.end_run()
            self.run = SourceRun(self, key, session)
            self.run.requires_answer = True

    def end_run(self) -> Iterator[SourceRun]:
        if self.run is not None:
            yield self.run
        self.run = None


def to_json(value: object) -> str:
    """Return a value as JSON, truncated where it is nested too deeply."""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return json.dumps(jsonable(value, _CHUNK), sort_keys=True)


def content_key(value: object) -> str:
    return sha256(to_json(value).encode()).hexdigest()[:32]


def read_values(path: Path, context: ImportContext) -> Iterator[object]:
    """Yield the JSON values of a file, plain or gzipped: one per line, an array, or one alone."""
    try:
        with path.open("rb") as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
        with cast("BinaryIO", gzip.open(path)) if is_gzip else path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if head.startswith((b"\xff\xfe", b"\xfe\xff")) or head[:2].count(0) == 1:
                context.skip("utf_16")
                return
            read = _select_reader(head.decode("utf-8-sig", "replace").lstrip())
            file.seek(0)
            yield from read(file, context)
    except (OSError, UnicodeError, EOFError, zlib.error):
        context.skip("unreadable")


def _select_reader(head: str) -> Callable[[BinaryIO, ImportContext], Iterator[object]]:
    first, newline, rest = head.partition("\n")
    is_json = parse_json(first) is not first
    is_complete = not newline or not rest.strip() or is_json
    if _MESSAGE_LIST.match(head):  # a bare list of messages, per line or per file
        return _read_lines if is_complete else _read_documents
    if head.startswith("["):
        has_lists = first.startswith("[[") and is_json
        return _read_lines if has_lists else partial(_read_documents, at=1)
    spans_lines = head.startswith("{") and not is_complete and first.rstrip()[-1:] in "{[,"
    return _read_documents if spans_lines else _read_lines


def _read_lines(file: BinaryIO, context: ImportContext) -> Iterator[object]:
    while line := file.readline(_MAX_LINE_BYTES + 1):
        if len(line) > _MAX_LINE_BYTES:
            context.skip("too_long")
            while line and not line.endswith(b"\n"):
                line = file.readline(_CHUNK)
        elif line.strip():
            try:
                yield json.loads(line)
            except RecursionError:
                context.skip("too_deep")
            except UnicodeDecodeError as error:
                is_cut = error.end == len(line)  # within a character
                context.skip("not_json" if is_cut else "not_utf_8")
            except ValueError:
                context.skip("not_json")


def _read_documents(file: BinaryIO, context: ImportContext, at: int = 0) -> Iterator[object]:
    """Yield the documents of a file, or the elements of an array that starts before ``at``."""
    source = getreader("utf-8-sig")(file, "replace")
    decode, is_array = json.JSONDecoder().raw_decode, at > 0
    left = source.read(_CHUNK).lstrip()
    while True:
        while left[at : at + 1] in _SEPARATORS:
            at += 1
        if left.startswith("]", at):
            break
        try:
            value, at = decode(left, at)
        except RecursionError:
            context.skip("too_deep")
            break
        except ValueError:
            more = source.read(max(_CHUNK, len(left) - at))
            if not more or len(left) - at + len(more) > _MAX_DOCUMENT_CHARACTERS:
                if more or left[at:] or is_array:
                    context.skip("too_long" if more else "not_json")
                break
            left, at = left[at:] + more, 0
        else:
            yield value
