"""A stand-in for the pipeline, which keeps what was recorded."""

import pytest
from scripted_agents import agent
from scripted_models import calls, says

from kp_langchain import KPCallbackHandler
from kp_middleware.recording import Limits, Recorder, assemble
from kp_middleware.runs import RecordedRun
from kp_middleware.traces import ReasoningTrace, Step


class Notebook:
    """Takes the runs that have ended, as a pipeline does."""

    def __init__(self) -> None:
        self.started = 0
        self.ended: list[Recorder] = []

    def start_recording(self, framework: str) -> Recorder:
        self.started += 1
        return Recorder(self.ended.append, Limits(), framework=framework)

    @property
    def runs(self) -> list[RecordedRun]:
        """Of those that have ended and have steps."""
        runs = [
            assemble(
                recorder,
                domain="general",
                visibility="network",
                privacy_level="aggregated",
                agent_id=None,
            )
            for recorder in self.ended
        ]
        return [run for run in runs if run is not None]

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
    def story(self) -> list[str]:
        """The steps of the only trace, a line each."""
        return [line(step) for step in self.trace.steps]


def line(step: Step) -> str:
    """A step in one line, without its time."""
    tool = f" {step.tool.name}" if step.tool else ""
    given = f"({', '.join(f'{k}={v!r}' for k, v in step.input.items())})" if step.input else ""
    said = next((f": {text}" for text in (step.content, step.output_summary) if text), "")
    return f"{step.type}{tool}{given}{said}"


@pytest.fixture
def notebook():
    return Notebook()


@pytest.fixture
def handler(notebook):
    return KPCallbackHandler(notebook)


@pytest.fixture
def config(handler):
    return {"callbacks": [handler]}


@pytest.fixture
def adding():
    """An agent that adds once, then answers."""
    return agent(calls("I need to add.", add={"a": 1, "b": 2}), says("The answer is 3."))
