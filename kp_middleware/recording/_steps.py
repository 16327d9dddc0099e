"""The log of a run's steps, in order and in bounded memory."""

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
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
    """A log of the first and the last steps of a run, half of the limits each, with true counts.

    The marker for steps that are left out counts towards the limit. The last step is always kept,
    whatever its size.
    """

    def __init__(self, limits: Limits) -> None:
        self._head: list[_Entry] = []
        self._head_bytes = 0
        self._most_head_steps = (limits.steps - 1) // 2
        self._most_head_bytes = limits.trace_bytes // 2
        self._tail: deque[_Entry] = deque()
        self._tail_bytes = 0
        self._most_tail_steps = limits.steps - self._most_head_steps
        self._most_tail_bytes = limits.trace_bytes - self._most_head_bytes
        self._left_out: Counter[StepType] = Counter()
        self._left_out_tools: set[str] = set()

    @property
    def count(self) -> int:
        """The number of steps of the run."""
        return len(self._head) + len(self._tail) + self._left_out.total()

    @property
    def kept(self) -> int:
        """The number of steps that are kept."""
        return len(self._head) + len(self._tail)

    @property
    def size_bytes(self) -> int:
        """The approximate size in the document of the steps that are kept."""
        return self._head_bytes + self._tail_bytes

    def append(self, step: StepFields, size_bytes: int) -> None:
        """Append a step; ``size_bytes`` is that of its texts and its input."""
        size_bytes += STEP_OVERHEAD_BYTES
        if (
            not (self._tail or self._left_out)
            and len(self._head) < self._most_head_steps
            and self._head_bytes + size_bytes <= self._most_head_bytes
        ):
            self._head.append((step, size_bytes))
            self._head_bytes += size_bytes
            return
        self._tail.append((step, size_bytes))
        self._tail_bytes += size_bytes
        self._shorten_tail()

    def leave_out(self, count: int) -> None:
        """Count steps as left out here that were left out before."""
        if count > 0:
            self._most_tail_steps -= not self._left_out
            self._left_out["observation"] += count
            self._shorten_tail()

    def insert(self, late: Iterable[Late]) -> None:
        """Insert late steps after those before them: where those are left out, so are they."""
        following: dict[int, list[_Entry]] = defaultdict(list)
        for step, size_bytes, after in late:
            following[id(after)].append((step, size_bytes + STEP_OVERHEAD_BYTES))
        self._head = [*following.pop(id(BEGINNING), ()), *_with(following, self._head)]
        self._tail = deque(_with(following, self._tail))
        lost = [*chain.from_iterable(following.values())]
        if self._left_out:
            for step, _ in lost:
                self._leave_out(step)
        else:
            (self._tail or self._head).extend(lost)
        self._head_bytes = sum(size for _, size in self._head)
        self._tail_bytes = sum(size for _, size in self._tail)
        self._shorten_head()
        self._shorten_tail()

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
        steps = [step for step, _ in self._head]
        if left_out := self._left_out.total():
            words = f"[{left_out} of {self.count} steps left out here]"
            steps.append({"type": "observation", "output_summary": words})
        return steps + [step for step, _ in self._tail]

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
        kept = {step["tool"]["name"] for step in self._kept() if "tool" in step}
        return kept | self._left_out_tools

    def _shorten_head(self) -> None:
        """Move the steps that no longer fit to the tail, or leave them out if others were."""
        while (
            len(self._head) > self._most_head_steps or self._head_bytes > self._most_head_bytes
        ) and self._head:
            last, size = self._head.pop()
            self._head_bytes -= size
            if self._left_out:
                self._leave_out(last)
            else:
                self._tail.appendleft((last, size))
                self._tail_bytes += size

    def _shorten_tail(self) -> None:
        while (
            len(self._tail) > self._most_tail_steps or self._tail_bytes > self._most_tail_bytes
        ) and len(self._tail) > 1:
            first, size = self._tail.popleft()
            self._tail_bytes -= size
            self._leave_out(first)

    def _leave_out(self, step: StepFields) -> None:
        if not self._left_out:
            self._most_tail_steps -= 1  # the marker's place
        self._left_out[step["type"]] += 1
        if "tool" in step:
            self._left_out_tools.add(step["tool"]["name"])

    def _kept(self) -> Iterator[StepFields]:
        return (step for step, _ in chain(self._head, self._tail))


def _with(following: dict[int, list[_Entry]], entries: Iterable[_Entry]) -> Iterator[_Entry]:
    """Yield each entry and those that follow it, removing them from ``following``."""
    for entry in entries:
        yield entry
        yield from following.pop(id(entry[0]), ())


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
    if type(value) is float and 0 <= value < math.inf:
        return value
    try:
        took_ms = float(value) if isinstance(value, Real) else math.nan
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
