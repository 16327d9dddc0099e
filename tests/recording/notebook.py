"""Runs that are recorded without a pipeline."""

from kp_middleware.recording import Recorder, assemble, captured, recorded_tool
from kp_middleware.traces import Limits


class Notebook:
    """Takes the runs that have ended, and decorates functions as a pipeline does."""

    def __init__(self, limits=None):
        self.limits = limits or Limits()
        self.ended = []

    def start(self):
        return self.start_recording("python")

    def start_recording(self, framework, /):
        return Recorder(self.ended.append, self.limits, framework=framework)

    def capture(self, function, **naming):
        return captured(function, self.start, **naming)

    def tool(self, function, name=None):
        return recorded_tool(function, name)

    @property
    def runs(self):
        return [run_of(recorder) for recorder in self.ended]

    @property
    def run(self):
        [run] = self.runs
        return run

    @property
    def story(self):
        """The steps of the only run, a line each."""
        return [line(step) for step in self.run.trace.steps]


def run_of(recorder, **facts):
    pipeline = {"domain": "general", "visibility": "network", "privacy_level": "aggregated"}
    return assemble(recorder, **pipeline | {"agent_id": None} | facts)


def line(step):
    words = [step.type, step.tool and step.tool.name, step.input, step.content, step.output_summary]
    return " ".join(str(word) for word in words if word is not None)
