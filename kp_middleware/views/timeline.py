"""When the model and tool calls of a run began, and how long they took."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from kp_middleware.instants import epoch_s
from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.trace import ended_it

CallKind: TypeAlias = Literal["model", "tool", "error"]

MOST_CALLS: Final = 100


class Call(NamedTuple):
    """A call of a model or a tool; ``start_ms`` is from the beginning of the run."""

    kind: CallKind
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
    """The timed calls of a run in the order of their starts, at most 100.

    ``models_ms`` and ``tools_ms`` are how long at least one was at work; in the gaps, neither was.
    """

    calls: tuple[Call, ...]
    total_ms: float
    models_ms: float
    tools_ms: float
    waiting_ms: float
    gaps: tuple[tuple[float, float], ...]
    left_out: int

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents in the order of their first calls."""
        return tuple(dict.fromkeys(call.agent for call in self.calls))


def timeline(run: Run) -> Timeline:
    """Return the calls of a run; empty where nothing was timed."""
    began_s = epoch_s(run.started_at)
    calls = [call for step in run.steps for call in _calls(run, step, began_s)]
    calls.sort(key=lambda call: (call.start_ms, call.step))
    total_ms = max([run.duration_ms or 0.0, *(call.end_ms for call in calls)])
    gaps = (*_gaps(calls, total_ms),)
    return Timeline(
        tuple(calls[:MOST_CALLS]),
        total_ms,
        _covered_ms(call for call in calls if call.kind == "model"),
        _covered_ms(call for call in calls if call.kind != "model"),
        sum(end - start for start, end in gaps),
        gaps,
        max(0, len(calls) - MOST_CALLS),
    )


def _calls(run: Run, step: StepRecord, began_s: float) -> Iterable[Call]:
    if step.started_at is None:
        return
    start_ms = max(0.0, (epoch_s(step.started_at) - began_s) * 1000)
    agent = step.agent or ""
    if step.model_latency_ms is not None:
        tokens = (step.input_tokens or 0) + (step.output_tokens or 0) or None
        name = step.model or "model"
        yield Call("model", name, agent, start_ms, step.model_latency_ms, step.number, tokens)
    elif step.latency_ms is not None:
        failed = step.type == "error_recovery" or ended_it(run, step)
        kind: CallKind = "error" if failed else "tool"
        yield Call(kind, step.tool or "call", agent, start_ms, step.latency_ms, step.number)


def _covered_ms(calls: Iterable[Call]) -> float:
    """Return how long at least one of them, in the order of their starts, was going on."""
    covered = end = 0.0
    for call in calls:
        covered += max(0.0, call.end_ms - max(end, call.start_ms))
        end = max(end, call.end_ms)
    return covered


def _gaps(calls: Iterable[Call], total_ms: float) -> Iterator[tuple[float, float]]:
    """Yield when none of them, in the order of their starts, was going on."""
    end = 0.0
    for call in calls:
        if call.start_ms > end:
            yield end, call.start_ms
        end = max(end, call.end_ms)
    if total_ms > end:
        yield end, total_ms
