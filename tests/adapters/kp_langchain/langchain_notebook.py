"""A stand-in for the pipeline, which keeps what was recorded."""

from collections.abc import Callable
from typing import Any

from framework_dumps import RunCollector

from kp_middleware import KnowledgePulse, ReasoningTrace, Step
from kp_middleware.recording import Recorder, captured
from kp_middleware.runs import RecordedRun
from kp_middleware.storage import Run, StepRecord


class Notebook(RunCollector):
    """Takes the runs that have ended, as a pipeline does, and counts those that have begun."""

    def __init__(self) -> None:
        super().__init__()
        self.started = 0

    def start_recording(self, framework: str, /) -> Recorder:
        self.started += 1
        return super().start_recording(framework)

    def capture(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """The function, each call of which is a run, as ``kp.capture`` makes it."""
        return captured(function, lambda: self.start_recording("python"), **options)

    @property
    def run(self) -> RecordedRun:
        """The only one."""
        [run] = self.runs
        return run

    @property
    def trace(self) -> ReasoningTrace:
        """Of the only run."""
        return self.run.trace

    @property
    def scopes(self) -> list[tuple[str | None, str]]:
        """The steps of the only trace, each with the inner agent that took it."""
        return [*zip((facts.agent for facts in self.run.facts), self.story, strict=True)]

    @property
    def story(self) -> list[str]:
        """The steps of the only trace, a line each."""
        return story(self.run)


def agents_of(run: RecordedRun) -> dict[int, str]:
    """The inner agents by the position of the step that they took."""
    return {at: facts.agent for at, facts in enumerate(run.facts) if facts.agent is not None}


def story(run: RecordedRun | Run) -> list[str]:
    """The steps of a run, recorded or stored, in a line each, without their times."""
    return [_line(step) for step in getattr(run, "trace", run).steps]


def _line(step: Step | StepRecord) -> str:
    tool = f" {getattr(step.tool, 'name', step.tool)}" if step.tool else ""
    given = f"({', '.join(f'{k}={v!r}' for k, v in step.input.items())})" if step.input else ""
    said = next((f": {text}" for text in (step.content, step.output_summary) if text), "")
    return f"{step.type}{tool}{given}{said}"


def comparable(run: RecordedRun) -> dict[str, object]:
    """The run without ids and times."""
    plain = run.model_dump(mode="json")
    plain["trace"].pop("id")
    plain["trace"]["metadata"].pop("created_at")
    plain.pop("duration_ms")
    for step in plain["trace"]["steps"]:
        step.pop("latency_ms", None)
    plain["facts"] = [[*facts[1:-1]] for facts in plain["facts"]]
    plain["shape"]["types"].sort()
    return plain


def stored_runs(kp: KnowledgePulse) -> list[Run]:
    """All runs in the file of a pipeline, the oldest first."""
    return [kp.run(run.id) for run in reversed(kp.runs(limit=100))]


def stored_run(kp: KnowledgePulse) -> Run:
    """The only one."""
    [run] = stored_runs(kp)
    return run
