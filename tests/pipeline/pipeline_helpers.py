"""Runs, misbehaving models and log readers for tests of the pipeline."""

import threading
from contextlib import closing

from kp_middleware import ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.errors import EmbedderNotReadyError
from kp_middleware.testing import StandInEmbedder

STEPS = (
    Step(step_id=0, type="thought", content="x"),
    Step(step_id=1, type="observation", output_summary="y"),
)


class SideEffectEmbedder(StandInEmbedder):
    """Lets something else happen, once, when it is asked to embed."""

    def __init__(self, happen=lambda: None):
        super().__init__()
        self.happen = happen

    def embed(self, text, /):
        happen, self.happen = self.happen, lambda: None
        happen()
        return super().embed(text)


class NotReady(StandInEmbedder):
    """A model that is still being downloaded."""

    def embed(self, text, /):
        self.asked.append(text)
        raise EmbedderNotReadyError(text)


def sending_to(registry):
    """Settings with which every run clears and goes to this registry."""
    return {"registry_url": registry.url, "api_key": registry.api_key, "threshold": 0}


def trace_of(objective="Ask", *, steps=STEPS, metadata=None, **facts):
    """A run of a thought and an observation, unless it has other steps."""
    trace = ReasoningTrace.of(objective, steps, **facts)
    changed = trace.metadata.model_copy(update=metadata or {})
    return trace.model_copy(update={"metadata": changed})


def echo(kp):
    """An agent whose answer is its question."""
    return kp.capture(lambda text: text)


def column_of(path, name, table="traces"):
    """One column of a table of a file, in the order of its rows."""
    with closing(connect(path, read_only=True)) as connection:
        return [
            value for (value,) in connection.execute(f"SELECT {name} FROM {table} ORDER BY rowid")
        ]


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def wait_until(condition):
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)
