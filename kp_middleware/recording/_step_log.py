"""The steps of a running agent, in order and in bounded memory."""

from collections import Counter, deque
from typing import Any, NamedTuple, TypeAlias

from kp_middleware.recording._limits import Limits
from kp_middleware.scores import Shape
from kp_middleware.traces import StepType

StepFields: TypeAlias = dict[str, Any]
"""One step of the document, without its ``step_id``: plain JSON, never null."""

_STEP_OVERHEAD_BYTES = 64


class _Entry(NamedTuple):
    step: StepFields
    size_bytes: int


class StepLog:
    """The first and the last half of at most ``limits.steps`` steps, and true counts of all."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._head: list[_Entry] = []
        self._head_length = limits.steps // 2
        self._tail: deque[_Entry] = deque()
        self._types: Counter[StepType] = Counter()
        self._tools: set[str] = set()
        self.count = 0
        self.size_bytes = 0

    def append(self, step: StepFields, size_bytes: int) -> StepFields:
        """Add one step, of which ``size_bytes`` are texts and input; returns what is kept of it."""
        self.count += 1
        self._types[step["type"]] += 1
        if "tool" in step:
            self._tools.add(step["tool"]["name"])
        return self._keep(step, size_bytes)

    def demote(self, step: StepFields) -> None:
        """The error of this step was not survived: it is an observation, not a recovery."""
        self._types[step["type"]] -= 1
        step["type"] = "observation"
        self._types["observation"] += 1

    def steps(self) -> list[StepFields]:
        """What was kept, with a marker and the count where steps were left out."""
        left_out = self.count - len(self._head) - len(self._tail)
        gap = [_marker(left_out, self.count)] if left_out else []
        return [e.step for e in self._head] + gap + [e.step for e in self._tail]

    def shape(self) -> Shape:
        """The true counts, also of the steps that were not kept."""
        return Shape(
            steps=self.count,
            types=frozenset(+self._types),
            tools=len(self._tools),
            recoveries=self._types["error_recovery"],
        )

    def _keep(self, step: StepFields, size_bytes: int) -> StepFields:
        size_bytes += _STEP_OVERHEAD_BYTES
        if len(self._tail) >= self._limits.steps - self._head_length:
            self.size_bytes -= self._tail.popleft().size_bytes
        if self.size_bytes + size_bytes > self._limits.trace_bytes:
            step, size_bytes = _without_texts(step), _STEP_OVERHEAD_BYTES
        self.size_bytes += size_bytes
        half = self._head if len(self._head) < self._head_length else self._tail
        half.append(_Entry(step, size_bytes))
        return step


def _marker(left_out: int, count: int) -> StepFields:
    words = f"[{left_out} of {count} steps left out here]"
    return {"type": "observation", "output_summary": words}


def _without_texts(step: StepFields) -> StepFields:
    kept = {key: step[key] for key in ("type", "tool", "latency_ms") if key in step}
    return kept | {"output_summary": "[left out: the trace is at its size limit]"}
