"""Runs kept elsewhere than in a file go the same way: recorded, redacted, scored, exported."""
# ruff: noqa: ARG002

import json
import threading
from types import SimpleNamespace

import pytest

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.core.evaluation import Ending
from kp_middleware.export import OutboxItem
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.storage import Counts
from kp_middleware.testing import ListOutbox, Row, StandInEmbedder

SECRET = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8t" * 2


class MemoryStore:
    """Whole runs in their order: as much of a store as those need that meet no trouble."""

    def __init__(self):
        self.runs = []
        self.items = MemoryOutbox([])
        self.lock = threading.RLock()

    def nothing(self, *_, **__):
        """Return None: this store lacks the method, or need not do anything."""

    open = close = nothing
    vectors = save_recall_vector = estimates = stored_version = next_overdue = nothing
    forwarding_warning = nothing

    def clone(self):
        return self

    def transaction(self):
        return self.lock

    def record(self, run, *, seq=None, until=None, aliases=()):
        assert seq is until is None, "runs of threads are not kept here"
        told = run.trace.metadata.success, run.trace.outcome.confidence
        ending = Ending(*told, run.success_source, run.confidence_source)
        self.runs.append(SimpleNamespace(run=run, state="recorded", ending=ending))
        return len(self.runs)

    def next_recorded(self, first=0, last=2**63):
        return next((seq for seq in self._recorded() if first <= seq <= last), None)

    def last_recorded(self):
        return max(self._recorded(), default=None)

    def is_recorded(self, seq, trace_id=None):
        return seq in self._recorded()

    def ending(self, seq):
        return self.runs[seq - 1].ending

    def history(self, seq, domain, *, let_through_at=None):
        return SimpleNamespace(forwarded_in_a_day=None)  # a threshold asks it for nothing

    def save_evaluation(self, seq, evaluation, *, took_ms=None, p_success=None):
        vars(self.runs[seq - 1]).update(state="scored", evaluation=evaluation)

    def outbox(self, destination, agent_id):
        return self.items

    def counts(self):
        states, sent = [one.state for one in self.runs], self.items.states().count("sent")
        scored = states.count("scored")
        return Counts(len(states), states.count("recorded"), scored=scored, sent=sent)

    def _recorded(self):
        return [seq for seq, one in enumerate(self.runs, start=1) if one.state == "recorded"]


class MemoryOutbox(ListOutbox):
    """Items that wait or have gone."""

    def add(self, trace_seq, body, *, redactor, redactions, reason=None):
        item = OutboxItem(trace_seq, body, idempotency_key(body, agent_id=None))
        self.rows.append(Row(item, due_at=0.0))

    def sync(self, trace_seq):
        pass

    def any_pending(self):
        return "pending" in self.states()

    def next_unqueued(self, *, after):
        return None  # what clears is queued at once


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


def test_a_second_run_is_compared_with_the_first_and_stays_where_it_does_not_clear(kp, exported):
    for confidence in (0.9, 0.0):
        ask(kp, "What is six times seven?", confidence=confidence)
        kp.flush(20)

    first, second = (run.evaluation for run in kp.kept.runs)
    assert first.score.signals.novelty > second.score.signals.novelty
    assert (first.verdict.decision, second.verdict.decision) == ("forward", "withhold")
    assert (len(exported), kp.stats().scored) == (1, 2)


def test_what_reads_the_file_reads_no_other_where_runs_are_elsewhere(kp):
    with pytest.raises(TypeError, match="query your store"):
        kp.runs()

    assert kp.recall("What is six times seven?") == []
