"""The log of a run's steps, in order and in bounded memory."""

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain, takewhile
from numbers import Real
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.core.formula import Shape
from kp_middleware.recording._context import Place
from kp_middleware.recording._limits import Limits
from kp_middleware.runs import Awaited
from kp_middleware.traces import Step, StepType


class ModelCall(NamedTuple):
    """The model call behind a step; unknown values are None."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float | None = None


StepFields: TypeAlias = dict[str, Any]
"""A step of the document without its ``step_id``, and what `BESIDE` lists: plain JSON, no null."""

BESIDE: Final = ("at", "place", "call_id", "model_call")
"""The keys of a step that are not in the document."""

STEP_OVERHEAD_BYTES: Final = 64
"""The approximate size of a step in a document without its texts and its input."""

_MARKER: Final = re.compile(r"\[\d+ of \d+ steps left out here\]")

BEGINNING: Final[StepFields] = {}
"""A sentinel for the step before the first."""

_Entry: TypeAlias = tuple[StepFields, int]  # a step and its size in bytes

Late: TypeAlias = tuple[StepFields, int, StepFields]
"""A step reported late, its size in bytes, and the step before it, or `BEGINNING`."""


class StepLog:
    """A log of the first and the last steps of a run, with true counts of all.

    Steps beyond the limits are left out behind the first half; the marker that stands there counts
    towards the limit. The last step is always kept, whatever its size.

    Attributes:
        kept: The number of steps that are kept.
        size_bytes: Their approximate size in the document.
    """

    def __init__(self, limits: Limits) -> None:
        self._most_steps, self._most_bytes = limits.steps, limits.trace_bytes
        self._head: list[_Entry] = []  # empty until some are left out after it
        self._tail: deque[_Entry] = deque()
        self._is_cut = False
        self._left_out: Counter[StepType] = Counter()
        self._left_out_tools: set[str] = set()
        self.kept = self.size_bytes = 0

    @property
    def count(self) -> int:
        """The number of steps of the run."""
        return self.kept + self._left_out.total()

    def append(self, step: StepFields, size_bytes: int) -> None:
        """Append a step; ``size_bytes`` is that of its texts and its input."""
        size_bytes += STEP_OVERHEAD_BYTES
        self._tail.append((step, size_bytes))
        self.kept += 1
        self.size_bytes += size_bytes
        if self.kept > self._most_steps or self.size_bytes > self._most_bytes:
            self._shorten()

    def leave_out(self, count: int) -> None:
        """Count steps as left out here that were left out before."""
        if count > 0:
            if not self._is_cut:
                self._cut()
            self._left_out["observation"] += count
            self._shorten()

    def insert(self, late: Iterable[Late]) -> None:
        """Insert late steps after those before them: where those are left out, so are they."""
        following: dict[int, list[_Entry]] = defaultdict(list)
        for step, size_bytes, after in late:
            following[id(after)].append((step, size_bytes + STEP_OVERHEAD_BYTES))
        head, tail = following.pop(id(BEGINNING), []), list[_Entry]()
        for before, entries in ((self._head, head), (self._tail, tail)):
            for entry in before:
                entries += [entry, *following.pop(id(entry[0]), ())]
        lost = chain.from_iterable(following.values())
        if self._is_cut:
            half = self._half(head)
            for step, _ in (*head[half:], *lost):
                self._leave_out(step)
            del head[half:]
        else:
            head, tail = [], [*head, *tail, *lost]
        self._head, self._tail = head, deque(tail)
        self.kept = len(head) + len(tail)
        self.size_bytes = sum(size for _, size in (*head, *tail))
        self._shorten()

    def call(self, call_id: str) -> StepFields | None:
        """Return the tool call with this id, or None if it is not kept."""
        calls = (step for step in self._kept() if step.get("call_id") == call_id)
        return next((step for step in calls if step["type"] == "tool_call"), None)

    def demote(self, step: StepFields) -> None:
        """Turn a recovery into an observation: its error ended the run."""
        if all(kept is not step for kept in self._kept()):
            self._left_out[step["type"]] -= 1
            self._left_out["observation"] += 1
        step["type"] = "observation"

    def steps(self) -> list[StepFields]:
        """Return the steps that are kept, with a marker for those left out."""
        steps = [*self._kept()]
        if left_out := self._left_out.total():
            words = f"[{left_out} of {self.count} steps left out here]"
            steps.insert(len(self._head), {"type": "observation", "output_summary": words})
        return steps

    def shape(self) -> Shape:
        """Return the true counts, those left out included."""
        types = self._left_out + Counter(step["type"] for step in self._kept())
        return Shape(
            steps=self.count,
            types=frozenset(types),
            tools=len(self.tools()),
            recoveries=types["error_recovery"],
        )

    def tools(self) -> set[str]:
        """Return the names of all tools, those left out included."""
        return {*self._left_out_tools, *(s["tool"]["name"] for s in self._kept() if "tool" in s)}

    def _kept(self) -> Iterator[StepFields]:
        return (step for step, _ in chain(self._head, self._tail))

    def _shorten(self) -> None:
        """Leave out steps after the first half until the others are within the limits."""
        while len(self._tail) > 1 and (
            self.kept > self._most_steps or self.size_bytes > self._most_bytes
        ):
            if not self._is_cut:
                self._cut()
                continue
            step, size_bytes = self._tail.popleft()
            self.kept -= 1
            self.size_bytes -= size_bytes
            self._leave_out(step)

    def _cut(self) -> None:
        """Leave out steps from now on after the first half; the marker is one of the limit."""
        self._is_cut = True
        self._most_steps -= 1
        self._head = [self._tail.popleft() for _ in range(self._half(self._tail))]

    def _half(self, entries: Iterable[_Entry]) -> int:
        """Return how many of the first entries are within half of the limits."""
        sizes = accumulate(size for _, size in entries)
        fitting = [*takewhile(lambda size: size <= self._most_bytes // 2, sizes)]
        return min(len(fitting), self._most_steps // 2)

    def _leave_out(self, step: StepFields) -> None:
        self._left_out[step["type"]] += 1
        if "tool" in step:
            self._left_out_tools.add(step["tool"]["name"])


def is_marker(step: Step) -> bool:
    """Return whether a step is a marker for steps left out."""
    return (
        step.type == "observation"
        and step.tool is None
        and step.content is None
        and _MARKER.fullmatch(step.output_summary or "") is not None
    )


def duration_ms(value: object) -> float | None:
    """Return a finite duration of at least 0 as a float, or None for anything else."""
    try:
        took_ms = float(value) if type(value) is float or isinstance(value, Real) else math.nan
    except OverflowError:
        return None
    return took_ms if 0 <= took_ms < math.inf else None


@dataclass(slots=True)
class ThreadNotes:
    """An adapter's notes of a recorder's part in its thread; see `ThreadPart`.

    Attributes:
        overheard: True if its objective was stated before it resumed, and not by its own input.
        repeats_calls: True if steps may repeat those of an earlier part, with the same call ids.
        heard: The input whose decision is noted already, as it passes through several spans.
        owed: The tool calls without a result at its end: the tools' names by call id.
    """

    agent: str | None = None
    follows: bool = False
    overheard: bool = False
    answers: tuple[str, ...] = ()
    awaits: Awaited | None = None
    questions: tuple[str, ...] = ()
    owed: Mapping[str, str] = field(default_factory=dict)
    repeats_calls: bool = False
    heard: object = None

    def wait(self, awaits: Awaited, *, questions: tuple[str, ...], owed: Mapping[str, str]) -> None:
        """Pause the run, which may resume later."""
        self.awaits, self.questions, self.owed = awaits, questions, owed

    def go_on(self, answers: tuple[str, ...] = ()) -> Mapping[str, str]:
        """Resume a run that paused; return its calls without a result if this recorder has them."""
        if self.awaits is None:
            self.follows, self.answers = True, answers
            return {}
        owed = self.owed
        self.awaits, self.questions, self.owed = None, (), {}
        return owed


class LateNote(NamedTuple):
    """A step that an adapter reports late, to be inserted after an earlier one."""

    kind: StepType
    text: str
    after: StepFields
    tool: str | None = None
    place: Place | None = None
    call_id: str | None = None
    at: float | None = None  # by the recorder's clock
