"""Runs of which something is learned later, and what then waits to leave."""

import json

from pipeline_helpers import trace_of as made_of

from kp_middleware import Step

GATE = 0.5
UNREACHABLE = {"api_key": "kp_x", "registry_url": "http://127.0.0.1:9"}


def trace_of(*, success=True, confidence=None, recoveries=0):
    kinds = ["thought", *["error_recovery"] * recoveries, "observation"]
    steps = [Step(step_id=at, type=kind, content="x") for at, kind in enumerate(kinds)]
    facts = {"domain": "medical", "success": success, "confidence": confidence}
    return made_of("Diagnose", steps=steps, **facts)


def body(connection, trace_id):
    """The outbox row of a trace: its state, its reason, its document and its key."""
    ((state, reason, document, key),) = connection.execute(
        "SELECT o.state, o.reason, o.body, o.idempotency_key FROM outbox o"
        " JOIN traces t ON t.seq = o.trace_seq WHERE t.id = ?",
        (trace_id,),
    ).fetchall()
    return state, reason, json.loads(document or "null"), key


def end_of(document):
    return document["metadata"]["success"], document["outcome"]["confidence"]
