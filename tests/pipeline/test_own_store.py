"""Runs kept elsewhere than in a file go the same way: recorded, redacted, scored, exported."""

import json

import pytest
from memory_store import MemoryStore

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.testing import StandInEmbedder

SECRET = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8t" * 2


@pytest.fixture
def exported():
    return []


@pytest.fixture
def kp(exported):
    store = MemoryStore()
    pulse = KnowledgePulse(
        store=store, exporter=exported.append, embedder=StandInEmbedder(), threshold=0.35
    )
    with pulse:
        pulse.kept = store
        yield pulse


def ask(kp, question, *, confidence=0.9):
    @kp.capture
    def answer(question):
        step = kp.tool(lambda key: f"looked up with {key}", name="search")
        step(SECRET)
        current_trace().thought("It is forty-two, says the search")
        current_trace().outcome(confidence=confidence)
        return f"42, {question}"

    return answer(question)


def test_a_run_is_recorded_redacted_scored_decided_and_exported(kp, exported):
    ask(kp, "What is six times seven?")

    backlog = kp.flush(20)

    (run,) = kp.kept.runs
    (item,) = exported
    assert not backlog
    assert run.state == "scored"
    assert run.evaluation.verdict.decision == "forward"
    assert 0.35 <= run.evaluation.score.value <= 1
    assert SECRET not in run.run.model_dump_json()
    assert SECRET.encode() not in item.body
    document = json.loads(item.body)
    assert document["id"] == run.run.trace.id
    assert document["metadata"]["quality_score"] == run.evaluation.score.value
    assert kp.stats().sent == 1


def test_what_does_not_clear_stays(kp, exported):
    ask(kp, "What is six times seven?", confidence=0.0)

    kp.flush(20)

    assert kp.kept.runs[0].evaluation.verdict.decision == "withhold"
    assert (exported, kp.stats().scored) == ([], 1)


def test_a_second_run_is_compared_with_the_first(kp):
    ask(kp, "What is six times seven?")
    kp.flush(20)
    ask(kp, "What is six times seven?")
    kp.flush(20)

    first, second = (run.evaluation.score.signals.novelty for run in kp.kept.runs)

    assert first > second


def test_what_reads_the_file_reads_no_other_where_runs_are_elsewhere(kp):
    with pytest.raises(TypeError, match="query your store"):
        kp.runs()

    assert kp.recall("What is six times seven?") == []
