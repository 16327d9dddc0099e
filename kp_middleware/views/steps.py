"""The steps of a run to display, and its calls over time."""

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kp_middleware.instants import epoch_s
from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.wording import counted, duration

__all__ = ["STEP_NAMES", "Call", "StepView", "idle_times", "timed_calls", "view_step"]

STEP_NAMES: Final = {
    "thought": "Agent",
    "tool_call": "Call",
    "observation": "Result",
    "error_recovery": "Error, recovered",
    "error": "Error",
    "user": "User",
}


class StepView(NamedTuple):
    """One step of a run; a missing or unknown text is empty."""

    number: int
    kind: str  # the protocol's, ``user`` for a user's message, or ``error`` for the fatal error
    name: str
    about: tuple[str, ...]
    at: str
    duration: str
    content: str
    input: str
    output: str


def view_step(run: Run, step: StepRecord) -> StepView:
    kind, at = step.type, ""
    if _ended(run, step):
        kind = "error"
    elif kind == "observation" and step.tool is None and step.content is not None:
        kind = "user"
    if step.started_at is not None:
        after_ms = (epoch_s(step.started_at) - epoch_s(run.started_at)) * 1000
        at = f"+{duration(after_ms)}" if after_ms >= 1 else "+0 ms"
    took_ms = step.latency_ms if step.model_latency_ms is None else step.model_latency_ms
    tokens = (step.input_tokens or 0) + (step.output_tokens or 0)
    about = (step.agent, step.tool, step.model, counted(tokens, "token") if tokens else None)
    given = json.dumps(step.input, ensure_ascii=False) if step.input else ""
    if len(given) > 72:
        given = json.dumps(step.input, ensure_ascii=False, indent=2)
    return StepView(
        step.number,
        kind,
        STEP_NAMES[kind],
        tuple(part for part in about if part),
        at,
        "" if took_ms is None else duration(took_ms),
        step.content or "",
        given,
        step.output_summary or "",
    )


def _ended(run: Run, step: StepRecord) -> bool:
    """Return whether a step is the error that ended its run, which is an observation."""
    name = (step.output_summary or "").partition(":")[0]
    return step.type == "observation" and name == run.error_type


class Call(NamedTuple):
    """A call of a model or a tool; ``start_ms`` counts from the start of the run."""

    kind: str  # ``model``, ``tool`` or ``error``
    name: str
    agent: str
    start_ms: float
    length_ms: float
    step: int
    tokens: int = 0

    @property
    def end_ms(self) -> float:
        return self.start_ms + self.length_ms


def timed_calls(run: Run) -> list[Call]:
    calls, began_s = [], epoch_s(run.started_at)
    for step in run.steps:
        if step.started_at is None:
            continue
        start_ms, agent = max(0.0, (epoch_s(step.started_at) - began_s) * 1000), step.agent or ""
        if (took_ms := step.model_latency_ms) is not None:
            name = step.model or "model"
            tokens = (step.input_tokens or 0) + (step.output_tokens or 0)
            calls.append(Call("model", name, agent, start_ms, took_ms, step.number, tokens))
        elif step.latency_ms is not None:
            failed = step.type == "error_recovery" or _ended(run, step)
            name, kind = step.tool or "call", "error" if failed else "tool"
            calls.append(Call(kind, name, agent, start_ms, step.latency_ms, step.number))
    return sorted(calls, key=lambda call: (call.start_ms, call.step))


def idle_times(calls: Sequence[Call], total_ms: float) -> Iterator[tuple[float, float]]:
    """Yield the periods, from the start of the run, without any of the calls."""
    end = 0.0
    for call in calls:
        if call.start_ms > end:
            yield end, call.start_ms
        end = max(end, call.end_ms)
    if total_ms > end:
        yield end, total_ms
