"""The steps of a run as they are shown, and its calls in time."""

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kp_middleware.instants import epoch_s
from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.wording import counted, duration

STEP_NAMES: Final = {
    "thought": "Agent",
    "tool_call": "Call",
    "observation": "Result",
    "error_recovery": "Error, recovered",
}
_SEEN_AS: Final = {**STEP_NAMES, "error": "Error", "user": "User"}
_ONE_LINE: Final = 72
_MOST_CALLS: Final = 100


class StepView(NamedTuple):
    """One step of a run; a text is empty where there is none or it is not known.

    ``kind`` is the protocol's, ``user`` for what a person said, or ``error`` for what ended it.
    """

    number: int
    kind: str
    name: str
    about: tuple[str, ...]
    at: str
    duration: str
    content: str
    input: str
    output: str


def view_step(run: Run, step: StepRecord) -> StepView:
    """Return what pages show of a step."""
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
    if len(given) > _ONE_LINE:
        given = json.dumps(step.input, ensure_ascii=False, indent=2)
    return StepView(
        step.number,
        kind,
        _SEEN_AS[kind],
        tuple(part for part in about if part),
        at,
        "" if took_ms is None else duration(took_ms),
        step.content or "",
        given,
        step.output_summary or "",
    )


def _ended(run: Run, step: StepRecord) -> bool:
    """Return whether a step is the error that ended its run: recorded as an observation."""
    name = (step.output_summary or "").partition(":")[0]
    return step.type == "observation" and name == run.error_type


class Call(NamedTuple):
    """A call of a model or a tool; ``start_ms`` is from the beginning of the run."""

    kind: str  # ``model``, ``tool`` or ``error``
    name: str
    agent: str
    start_ms: float
    length_ms: float
    step: int
    tokens: int | None = None

    @property
    def end_ms(self) -> float:
        """Its end, from the beginning of the run."""
        return self.start_ms + self.length_ms


class Timeline(NamedTuple):
    """The timed calls of a run in the order of their starts, at most 100, and the gaps between.

    ``models_ms`` and ``tools_ms`` are how long at least one was at work.
    """

    calls: tuple[Call, ...]
    total_ms: float
    models_ms: float
    tools_ms: float
    waiting_ms: float
    gaps: tuple[tuple[float, float], ...]
    left_out: int


def timeline(run: Run) -> Timeline:
    """Return the calls of a run; empty where nothing was timed."""
    calls = sorted(_calls(run), key=lambda call: (call.start_ms, call.step))
    total_ms = max([run.duration_ms or 0.0, *(call.end_ms for call in calls)])
    models = [call for call in calls if call.kind == "model"]
    tools = [call for call in calls if call.kind != "model"]
    gaps = [[*_gaps(some, total_ms)] for some in (models, tools, calls)]
    without_models, without_tools, idle = (sum(end - start for start, end in one) for one in gaps)
    return Timeline(
        tuple(calls[:_MOST_CALLS]),
        total_ms,
        total_ms - without_models,
        total_ms - without_tools,
        idle,
        tuple(gaps[-1]),
        max(0, len(calls) - _MOST_CALLS),
    )


def _calls(run: Run) -> Iterator[Call]:
    began_s = epoch_s(run.started_at)
    for step in run.steps:
        if step.started_at is None:
            continue
        start_ms, agent = max(0.0, (epoch_s(step.started_at) - began_s) * 1000), step.agent or ""
        if step.model_latency_ms is not None:
            tokens = (step.input_tokens or 0) + (step.output_tokens or 0) or None
            name = step.model or "model"
            yield Call("model", name, agent, start_ms, step.model_latency_ms, step.number, tokens)
        elif step.latency_ms is not None:
            failed = step.type == "error_recovery" or _ended(run, step)
            name, kind = step.tool or "call", "error" if failed else "tool"
            yield Call(kind, name, agent, start_ms, step.latency_ms, step.number)


def _gaps(calls: Iterable[Call], total_ms: float) -> Iterator[tuple[float, float]]:
    """Yield when none of them, in the order of their starts, was going on."""
    end = 0.0
    for call in calls:
        if call.start_ms > end:
            yield end, call.start_ms
        end = max(end, call.end_ms)
    if total_ms > end:
        yield end, total_ms
