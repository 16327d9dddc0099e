import json

import pytest

from kp_middleware import KnowledgePulse, current_trace


@pytest.fixture
def as_json(type_command):
    """Run a command with ``--json`` and parse what it prints."""
    return lambda *words: json.loads(type_command(*words, "--json").stdout)


@pytest.fixture
def record(db):
    """Records runs of an agent, each worth sending, and waits until they are away."""

    def runs(*questions, flush_s=20, **settings):
        with KnowledgePulse(db=db, embedder=None, threshold=0, **settings) as kp:
            for question in questions:
                kp.capture(think)(question)
            kp.flush(flush_s)
        return kp

    return runs


def think(question):
    current_trace().thought(question)
    return "done"
