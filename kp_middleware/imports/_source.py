"""A source while it is read: the values of a file, the runs in it, and the book of its reader."""

import gzip
import json
import re
import time
import zlib
from codecs import getreader
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, cast
from uuid import UUID, uuid5

from kp_middleware.recording import Limits, ModelCall, Place, Recorder, assemble, jsonable
from kp_middleware.runs import RecordedRun
from kp_middleware.spans.messages import ChatMessage, Json, Result, as_number
from kp_middleware.spans.replay import BufferedSpan, replay
from kp_middleware.traces import PrivacyLevel, StepType, Visibility

Tool: TypeAlias = str | tuple[str, str]
"""The name of a tool, or that and the name of its MCP server."""

_NAMESPACE: Final = UUID("6f0cb5c4-9f0e-5d0c-8a53-0d1a4f2c7be1")
_VERDICTS: Final = ("reward", "resolved", "success", "target", "score")
_MOST_LINE: Final = 16 << 20  # bytes; longer lines are skipped and counted
_MOST_DOCUMENT: Final = 32 << 20
_HEAD_BYTES: Final = 64 << 10
_CHUNK: Final = 1 << 20
_BETWEEN: Final = frozenset(" \t\r\n,")
_MESSAGE: Final = re.compile(r'\[\s*\{\s*"(?:role|content|type)"\s*:')


def verdict(document: Json) -> bool | None:
    """Return what a source says about the end of a run: half a point or more is a success.

    >>> verdict({"reward": 1.0}), verdict({"resolved": False}), verdict({"messages": []})
    (True, False, None)
    """
    for key in _VERDICTS:
        said: Any = document.get(key)
        if isinstance(said, bool):
            return said
        if (points := as_number(said)) is not None:
            return points >= 0.5
    return None


def mean_verdict(scores: Iterable[object]) -> bool | None:
    """Return what several scores from 0 to 1 say together, or None without one."""
    said = [one for score in scores if (one := as_number(score)) is not None and 0 <= one <= 1]
    return sum(said) / len(said) >= 0.5 if said else None


class Filling(NamedTuple):
    """The parts of a document that no source has; private unless somebody says otherwise."""

    domain: str = "general"
    visibility: Visibility = "private"
    privacy_level: PrivacyLevel = "aggregated"
    agent_id: str | None = None


class SourceRun:
    """A run of a source, bounded like any recorded run; the same key always gives the same id."""

    def __init__(
        self, book: "Book", key: str, session: str | None = None, *, must_answer: bool = False
    ) -> None:
        self._book = book
        named = f"{book.source}:{key}".encode(errors="replace").decode()
        self.recorder = Recorder(lambda _: None, book.limits, framework=book.source)
        self.recorder.trace_id = self.id = f"kp:trace:{uuid5(_NAMESPACE, named)}"
        self.recorder.thread_id = session
        self._times_s: list[float] = []
        self._must_answer = must_answer
        self._has_answered = False
        self._ids: Counter[str] = Counter()
        # by id, the calls without a result: their own ids, tools and times
        self._open: defaultdict[str, deque[tuple[str, Tool, float | None]]] = defaultdict(deque)
        self.result = ""
        self.acted = False
        self.interrupted = False
        self.success: bool | None = None
        self.error_type: str | None = None

    def replayed(self, root: BufferedSpan, *, success: bool | None = None) -> Iterator["SourceRun"]:
        """Take all steps from the spans of a run; yield it if they tell anything that was said."""
        self.recorder.outcome(success=success)
        self.acted = replay(root, self.recorder)
        if self.acted:
            yield self
        else:
            self._book.skip("no_content")

    def take(
        self,
        said: ChatMessage,
        at_s: float | None = None,
        *,
        call: ModelCall | None = None,
        place: Place | None = None,
        took_ms: float | None = None,
    ) -> None:
        """Note what a message says at an epoch second; ``call`` counts before its own."""
        for result in said.results:
            self._returned(result, at_s, place, took_ms)
        if said.role == "user" and said.texts:
            words = "\n".join(said.texts)
            if not self.recorder.objective:
                self.recorder.set_objective(words)
            self._note("observation", at_s, content=words)
            self._has_answered = self.interrupted = False
        elif said.role == "assistant":
            call = call or ModelCall(said.model, said.input_tokens, said.output_tokens)
            self.used(call)
            for thought in filter(None, said.thoughts):
                took = None if call == ModelCall() else call
                self._note("thought", at_s, content=thought, took=took, place=place)
                call = ModelCall()
                if place is None:
                    self._has_answered, self.result = True, thought
            for tool, given, call_id, _ in said.calls:
                self._called(tool, dict(given), call_id or "", at_s, place)
            self.acted = True

    def used(self, call: ModelCall) -> None:
        """Count the tokens of a model call."""
        if call.model is not None:
            self.recorder.model = call.model
        if call.input_tokens is not None or call.output_tokens is not None:
            self.recorder.used_tokens(
                input_tokens=call.input_tokens or 0, output_tokens=call.output_tokens or 0
            )

    def _called(
        self, tool: Tool, given: Json, call_id: str, at_s: float | None, place: Place | None
    ) -> None:
        """Note a tool call; one whose id was taken before gets another."""
        match str(tool).split("__", 2):
            case ["mcp", server, own] if server and own:
                tool = own, server
        self._ids[call_id] += 1
        count = self._ids[call_id]
        own_id = f"{call_id}#{count}" if count > 1 or not call_id else call_id
        self._open[call_id].append((own_id, tool, at_s))
        self._note("tool_call", at_s, tool=tool, input=given, call_id=own_id, place=place)
        self._has_answered = False

    def _returned(
        self, result: Result, at_s: float | None, place: Place | None, took_ms: float | None
    ) -> None:
        """Note the result of the oldest call with this id that has none yet."""
        call_id, tool = result.call_id, cast("Tool | None", result.tool)
        if waiting := self._open.get(call_id or ""):
            call_id, tool, called_s = waiting.popleft()
            if took_ms is None and at_s is not None and called_s is not None:
                took_ms = max(0.0, (at_s - called_s) * 1000)
        kind: StepType = "error_recovery" if result.failed else "observation"
        noted = {"output_summary": result.output, "took": took_ms, "call_id": call_id}
        self._note(kind, at_s, tool=tool, **noted, place=place)
        self.acted, self._has_answered = True, False

    def recorded(self, filling: Filling) -> RecordedRun | None:
        """Return the run as recording hands it on, or None if the agent has done nothing."""
        recorder, times_s = self.recorder, self._times_s
        if not self.acted or recorder.log.count == 0:
            return None
        if not recorder.finished:
            now_s = time.time() if self._book.at_s is None else self._book.at_s
            recorder.started_at_s = min(times_s, default=now_s)
            recorder.clock_started_s = recorder.started_at_s  # steps have epoch seconds
            recorder.outcome(self.result, success=self.success)
            recorder.error_type = self.error_type
            has_end = self._has_answered or not self._must_answer
            recorder.finish(complete=has_end and not self.interrupted)
            took_ms = round((max(times_s) - min(times_s)) * 1000) if times_s else None
            recorder.duration_ms = took_ms
        run = assemble(recorder, **filling._asdict())
        told = {} if recorder.is_success_assumed else {"success_source": "verdict"}
        return None if run is None else run.model_copy(update={"part": None, **told})

    def _note(self, kind: StepType, at_s: float | None, **noted: Any) -> None:
        step = self.recorder.note(kind, **noted)
        if step is not None:
            step["at"] = at_s
        if at_s is not None:
            self._times_s.append(at_s)


@dataclass
class Book:
    """What the reader of one file keeps: counts of what it skips, and the run of a session.

    ``retracted`` are ids of runs that were read, and abandoned later on in their session.
    """

    source: str
    limits: Limits = field(default_factory=Limits)
    whole_sessions: bool = False
    at_s: float | None = None
    path: Path | None = None
    run: SourceRun | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    retracted: list[str] = field(default_factory=list)

    def skip(self, reason: str) -> None:
        self.skipped[reason] += 1

    def turn(self, key: str, session: str | None) -> Iterator[SourceRun]:
        """Begin a run at what a person says, unless whole sessions are wanted; yield the last."""
        if self.run is None or not self.whole_sessions:
            yield from self.end()
            self.run = SourceRun(self, key, session, must_answer=True)

    def end(self) -> Iterator[SourceRun]:
        """Yield the run of the session that is over."""
        if self.run is not None:
            yield self.run
        self.run = None


def written(value: object) -> str:
    """Return a value as JSON; one nested too deeply is cut."""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return json.dumps(jsonable(value, _CHUNK), sort_keys=True)


def digest(value: object) -> str:
    """Return a fingerprint of a document that has no id of its own."""
    return sha256(written(value).encode()).hexdigest()[:32]


def values_in(path: Path, book: Book) -> Iterator[object]:
    """Yield the JSON values of a file, also of one in gzip, with at most one of them in memory.

    They are one a line, the elements of an array, or a document. What cannot be read is counted.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with cast("BinaryIO", gzip.open(path)) if is_packed else path.open("rb") as file:
            read = _reader_of(file.read(_HEAD_BYTES).decode("utf-8-sig", "replace").lstrip())
            file.seek(0)
            yield from read(file, book)
    except (OSError, UnicodeError, EOFError, zlib.error):
        book.skip("unreadable")


def _reader_of(head: str) -> Callable[[BinaryIO, Book], Iterator[object]]:
    first, newline, more = head.partition("\n")
    is_whole = not newline or not more.strip() or _is_json(first)
    if _MESSAGE.match(head):  # a bare list of messages, one a line or one a file
        return _lines if is_whole else _values
    if head.startswith("["):
        return _lines if first.startswith("[[") and _is_json(first) else partial(_values, at=1)
    is_cut = head.startswith("{") and not is_whole and first.rstrip()[-1:] in "{[,"
    return _values if is_cut else _lines


def _is_json(line: str) -> bool:
    with suppress(RecursionError):
        try:
            json.loads(line)
        except ValueError:
            return False
    return True


def _lines(file: BinaryIO, book: Book) -> Iterator[object]:
    while line := file.readline(_MOST_LINE + 1):
        if len(line) > _MOST_LINE:
            book.skip("too_long")
            while line and not line.endswith(b"\n"):
                line = file.readline(_CHUNK)
        elif line.strip():
            try:
                yield json.loads(line)
            except RecursionError:
                book.skip("too_deep")
            except ValueError:
                book.skip("not_json")


def _values(file: BinaryIO, book: Book, at: int = 0) -> Iterator[object]:
    """Yield the documents of a file, or from the character ``at`` the elements of an array."""
    source = getreader("utf-8-sig")(file, "replace")
    decode, is_array = json.JSONDecoder().raw_decode, at > 0
    left = source.read(_CHUNK).lstrip()
    while True:
        while left[at : at + 1] in _BETWEEN:
            at += 1
        if left.startswith("]", at):
            break
        try:
            value, at = decode(left, at)
        except RecursionError:
            book.skip("too_deep")
            break
        except ValueError:
            more = source.read(max(_CHUNK, len(left) - at))
            if not more or len(left) - at + len(more) > _MOST_DOCUMENT:
                if more or left[at:] or is_array:
                    book.skip("too_long" if more else "not_json")
                break
            left, at = left[at:] + more, 0
        else:
            yield value
