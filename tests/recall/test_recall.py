"""What is recalled for a task, and what is not."""

import pytest

from kp_middleware import KnowledgePulse, ReasoningTrace, Step
from kp_middleware.testing import StandInEmbedder


@pytest.fixture
def kp(db):
    with KnowledgePulse(db=db, embedder=StandInEmbedder(), sync=True) as kp:
        yield kp


def kept(kp, objective, *, success=True):
    trace = ReasoningTrace.of(objective, [Step(step_id=0, type="thought", content="Done.")])
    kp.submit(trace)
    if success is not None:
        kp.feedback(trace.id, success=success)
    return trace.id


def test_a_run_that_succeeded_is_recalled(kp):
    known = kept(kp, "Refund order A1, please.")

    (found,) = kp.recall("Refund order A2, please.")

    assert found.trace_id == known
    assert "Refund order A1" in found.as_message()
