"""Pipelines that send nothing, and what they keep of feedback."""

import pytest
from feedback_runs import GATE, UNREACHABLE, trace_of
from unsent_store import UnsentStore


@pytest.fixture
def at_once(pulse, db):
    """Makes pipelines that do all at once, and send nothing: what waits, waits."""

    def make(**settings):
        usual = {"embedder": None, "sync": True, "threshold": GATE, "store": UnsentStore.at(db)}
        return pulse(**{**usual, **UNREACHABLE, **settings})

    return make


@pytest.fixture
def kp(at_once):
    return at_once()


@pytest.fixture
def submit(kp):
    """Submits a run; returns its id."""

    def put(success=True, **facts):
        trace = trace_of(success=success, **facts)
        kp.submit(trace)
        return trace.id

    return put


@pytest.fixture
def feedback_rows(connection):
    """The feedback of the file, in order."""
    return lambda: connection.execute(
        "SELECT success, confidence, success_before, confidence_before FROM feedback ORDER BY seq"
    ).fetchall()
