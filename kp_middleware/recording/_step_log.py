"""The steps of a running agent, in order and in bounded memory."""

from collections import Counter, deque
from typing import Any, TypeAlias

from kp_middleware.recording._limits import Limits
from kp_middleware.scores import Shape
from kp_middleware.traces import StepType

StepFields: TypeAlias = dict[str, Any]
"""One step of the document, without its ``step_id``: plain JSON, never null."""

_STEP_OVERHEAD_BYTES = 64


_Entry: TypeAlias = tuple[StepFields, int]
"""A step and its size in bytes: a plain tuple, because one is made for each note."""


class StepLog:
    """The beginning and the end of a run, each half of the limits, and true counts of all of it.

    Its last step is kept whatever its size.
    """

    def __init__(self, limits: Limits) -> None:
        self._head: list[_Entry] = []
        self._head_bytes = 0
        self._most_head_steps = limits.steps // 2
        self._most_head_bytes = limits.trace_bytes // 2
        self._tail: deque[_Entry] = deque()
        self._tail_bytes = 0
        self._most_tail_steps = limits.steps - self._most_head_steps
        self._most_tail_bytes = limits.trace_bytes - self._most_head_bytes
        self._types: Counter[StepType] = Counter()
        self._tools: set[str] = set()
        self.count = 0

    @property
    def size_bytes(self) -> int:
        """About what is kept."""
        return self._head_bytes + self._tail_bytes

    def append(self, step: StepFields, size_bytes: int) -> None:
        """Add one step, of which ``size_bytes`` are texts and input."""
        self.count += 1
        self._types[step["type"]] += 1
        if "tool" in step:
            self._tools.add(step["tool"]["name"])
        self._keep(step, size_bytes + _STEP_OVERHEAD_BYTES)

    def demote(self, step: StepFields) -> None:
        """The error of this step was not survived: it is an observation, not a recovery."""
        self._types[step["type"]] -= 1
        step["type"] = "observation"
        self._types["observation"] += 1

    def steps(self) -> list[StepFields]:
        """What was kept, with a marker and the count where steps were left out."""
        left_out = self.count - len(self._head) - len(self._tail)
        gap = [_marker(left_out, self.count)] if left_out else []
        return [step for step, _ in self._head] + gap + [step for step, _ in self._tail]

    def shape(self) -> Shape:
        """The true counts, also of the steps that were not kept."""
        return Shape(
            steps=self.count,
            types=frozenset(+self._types),
            tools=len(self._tools),
            recoveries=self._types["error_recovery"],
        )

    def _keep(self, step: StepFields, size_bytes: int) -> None:
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
        while len(self._tail) > 1 and self._tail_overflows():
            self._tail_bytes -= self._tail.popleft()[1]

    def _tail_overflows(self) -> bool:
        too_many = len(self._tail) > self._most_tail_steps
        return too_many or self._tail_bytes > self._most_tail_bytes


def _marker(left_out: int, count: int) -> StepFields:
    words = f"[{left_out} of {count} steps left out here]"
    return {"type": "observation", "output_summary": words}
