"""The steps of a running agent, in order and in bounded memory."""

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from numbers import Real
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.core.formula import Shape
from kp_middleware.recording._limits import Limits
from kp_middleware.traces import Step, StepType


class ModelCall(NamedTuple):
    """The model call that a step came from; each is None where it is not known."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float | None = None


StepFields: TypeAlias = dict[str, Any]
"""One step of the document, without its ``step_id``: plain JSON, never null.

`BESIDE` names the keys that are no part of the document.
"""

BESIDE: Final = ("at", "place", "call_id", "model_call")
"""What is known of a step and the document has no place for."""

STEP_OVERHEAD_BYTES: Final = 64
"""About what a step takes in a document beside its texts and its input."""

_MARKER: Final = re.compile(r"\[\d+ of \d+ steps left out here\]")


BEGINNING: Final[StepFields] = {}
"""Stands for the step before the first."""

_Entry: TypeAlias = tuple[StepFields, int]
"""A step and its size in bytes: a plain tuple, because one is made for each note."""

Late: TypeAlias = tuple[StepFields, int, StepFields]
"""A step that turned out late, its size in bytes, and the step before it, or `BEGINNING`."""


class StepLog:
    """The beginning and the end of a run, each half of the limits, and true counts of all of it.

    Where steps are left out, their marker is one of the limit. The last step is kept whatever its
    size.
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
        """How many steps there were."""
        return self.kept + self._left_out.total()

    @property
    def kept(self) -> int:
        """How many steps are kept."""
        return len(self._head) + len(self._tail)

    @property
    def size_bytes(self) -> int:
        """About what is kept, as it will be written."""
        return self._head_bytes + self._tail_bytes

    def append(self, step: StepFields, size_bytes: int) -> None:
        """Add one step, of which ``size_bytes`` are texts and input."""
        size_bytes += STEP_OVERHEAD_BYTES
        if (
            not self._tail
            and len(self._head) < self._most_head_steps
            and self._head_bytes + size_bytes <= self._most_head_bytes
        ):
            self._head.append((step, size_bytes))
            self._head_bytes += size_bytes
            return
        self._tail.append((step, size_bytes))
        self._tail_bytes += size_bytes
        self._shorten_tail()

    def insert(self, late: Iterable[Late]) -> None:
        """Add steps that turned out late where they belong, in one pass.

        Where the step before one was left out, so is this; where none was, and that step is not
        here at all, it comes last.
        """
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
        """Return the tool call of this id, if it is kept."""
        calls = (step for step in self._kept() if step.get("call_id") == call_id)
        return next((step for step in calls if step["type"] == "tool_call"), None)

    def demote(self, step: StepFields) -> None:
        """The error of this step was not survived: it is an observation, not a recovery."""
        if all(kept is not step for kept in self._kept()):
            self._left_out[step["type"]] -= 1
            self._left_out["observation"] += 1
        step["type"] = "observation"

    def steps(self) -> list[StepFields]:
        """What was kept, with a marker and the count where steps were left out."""
        left_out = self._left_out.total()
        gap = [marker(left_out, self.count)] if left_out else []
        return [step for step, _ in self._head] + gap + [step for step, _ in self._tail]

    def shape(self) -> Shape:
        """The true counts, also of the steps that were not kept."""
        types = self._left_out + Counter(step["type"] for step in self._kept())
        return Shape(
            steps=self.count,
            types=frozenset(types),
            tools=len(self.tools()),
            recoveries=types["error_recovery"],
        )

    def tools(self) -> set[str]:
        """The names of all tools."""
        kept = {step["tool"]["name"] for step in self._kept() if "tool" in step}
        return kept | self._left_out_tools

    def _shorten_head(self) -> None:
        """What no longer fits is the first of the rest, or left out where that begins later."""
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
    """Each entry and what follows it, which is taken out of ``following``."""
    for entry in entries:
        yield entry
        yield from following.pop(id(entry[0]), ())


def marker(left_out: int, count: int) -> StepFields:
    """Stands where steps were left out."""
    words = f"[{left_out} of {count} steps left out here]"
    return {"type": "observation", "output_summary": words}


def is_marker(step: Step) -> bool:
    """Whether it only stands for others."""
    return (
        step.type == "observation"
        and step.tool is None
        and step.content is None
        and _MARKER.fullmatch(step.output_summary or "") is not None
    )


def set_duration(step: StepFields, took: float | ModelCall) -> None:
    """Set how long a tool took in milliseconds, or the model call that the step came from."""
    if type(took) is ModelCall:
        step["model_call"] = took
    elif (took_ms := _duration_ms(took)) is not None:
        step["latency_ms"] = took_ms


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
