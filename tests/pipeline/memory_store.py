"""A store in memory: what somebody writes who keeps runs elsewhere than in a file."""
# ruff: noqa: ARG002

import threading
from contextlib import contextmanager

from kp_middleware.core.evaluation import Ending
from kp_middleware.core.gates import Ranking
from kp_middleware.instants import to_milliseconds
from kp_middleware.outbox_items import OutboxItem, idempotency_key
from kp_middleware.storage import Counts, StoredOutcome, StoredRun, StoredVersion


class MemoryRun:
    """One run and what became of it."""

    def __init__(self, run):
        self.run = run
        self.state = "recorded" if run.complete else "incomplete"
        self.evaluation = self.reason = None
        told = run.trace.metadata.success, run.trace.outcome.confidence
        self.ending = Ending(*told, run.success_source, run.confidence_source)


class MemoryStore:
    """Runs that are whole, by the order in which they were recorded."""

    def __init__(self):
        self.runs = []
        self.items = MemoryOutbox(self)
        self._lock = threading.RLock()

    def open(self):
        return None

    def close(self):
        pass

    def clone(self):
        return self

    @contextmanager
    def transaction(self):
        with self._lock:
            before = [(one, dict(vars(one))) for one in self.runs]
            try:
                yield
            except BaseException:
                self.runs = [one for one, _ in before]
                [vars(one).update(facts) for one, facts in before]
                raise

    def repair(self, *, destination, redactor):
        return None

    def stored_version(self, trace_id):
        for seq, one in enumerate(self.runs, start=1):
            if one.run.trace.id == trace_id:
                began = to_milliseconds(one.run.trace.metadata.created_at)
                steps, ended = one.run.shape.steps, one.ending.success
                return StoredVersion(seq, began, steps, one.run.duration_ms, ended, False, False)
        return None

    def record(self, run, *, seq=None, until=None, aliases=()):
        assert seq is until is None, "runs of threads are not kept here"
        self.runs.append(MemoryRun(run))
        return len(self.runs)

    def fail(self, seq, code, error):
        self.runs[seq - 1].state, self.runs[seq - 1].reason = "failed", code

    def set_reason(self, seq, code):
        self.runs[seq - 1].reason = code

    def count_dropped(self, count):
        pass

    def paused(self, thread):
        return []

    overdue = paused

    def next_overdue(self):
        return None

    def paused_threads(self):
        return frozenset()

    def next_recorded(self, first=0, last=2**63):
        return next((seq for seq in self._recorded() if first <= seq <= last), None)

    def last_recorded(self):
        return max(self._recorded(), default=None)

    def is_recorded(self, seq, trace_id=None):
        return seq in self._recorded()

    def stored(self, seq):
        one = self.runs[seq - 1]
        shape, evaluation = one.run.shape, one.evaluation
        score = None if evaluation is None else evaluation.score.value
        document = one.run.trace.model_dump_json()
        return StoredRun(document, shape.steps, shape.tools, shape.recoveries, score)

    def save_recall_vector(self, seq, embedder, vector):
        pass

    def ending(self, seq):
        return self.runs[seq - 1].ending

    def estimates(self):
        return None

    def history(self, seq, domain, *, let_through_at=None):
        earlier = self.runs[: seq - 1]
        return MemoryHistory([one.evaluation for one in earlier if one.evaluation is not None])

    def save_evaluation(self, seq, evaluation, *, took_ms=None, p_success=None):
        self.runs[seq - 1].state, self.runs[seq - 1].evaluation = "scored", evaluation

    def outcome(self, trace_id):
        for seq, one in enumerate(self.runs, start=1):
            if one.run.trace.id == trace_id:
                return StoredOutcome(seq, one.state, one.ending, None)
        return None

    def add_feedback(self, before, after, *, given_at, given):
        self.runs[before.seq - 1].ending = after

    def vectors(self):
        return None

    def outbox(self, destination, agent_id):
        return self.items

    def prune(self, before):
        return 0

    def forwarding_warning(self, now_s):
        return None

    def counts(self):
        states = [one.state for one in self.runs]
        sent = len(self.items.receipts)
        return Counts(
            len(states), states.count("recorded"), scored=states.count("scored"), sent=sent
        )

    def _recorded(self):
        return [seq for seq, one in enumerate(self.runs, start=1) if one.state == "recorded"]


class MemoryHistory:
    """What was decided on the runs before."""

    def __init__(self, evaluations):
        self._evaluations = evaluations

    def ranking(self, gate, last):
        ranking = Ranking(last)
        for _, verdict in self._evaluations:
            ranking.add(verdict.key, chosen=verdict.chosen, credit=verdict.credit)
        return ranking

    def forwarded_in_a_day(self):
        return sum(one.verdict.decision == "forward" for one in self._evaluations)


class MemoryOutbox:
    """Items that wait, are blocked, or have gone."""

    def __init__(self, store):
        self._store = store
        self.waiting, self.blocked, self.receipts = {}, {}, {}

    def add(self, trace_seq, body, *, redactor, redactions, reason=None):
        if body is None:
            self.blocked[trace_seq] = reason
        else:
            key = idempotency_key(body, agent_id=None)
            self.waiting[trace_seq] = OutboxItem(trace_seq, body, key)

    def sync(self, trace_seq):
        pass

    def any_pending(self):
        return bool(self.waiting)

    def next_unqueued(self, *, after):
        known = {*self.waiting, *self.blocked, *self.receipts}
        forwarded = (
            seq
            for seq, one in enumerate(self._store.runs, start=1)
            if one.evaluation and one.evaluation.verdict.decision == "forward"
        )
        return next((seq for seq in forwarded if seq > after and seq not in known), None)

    def claim(self, now, /):
        return next(iter(self.waiting.values()), None)

    def next_due(self):
        return 0.0 if self.waiting else None

    def sent(self, item, receipt, /):
        self.receipts[item.trace_seq] = receipt
        del self.waiting[item.trace_seq]

    def rejected(self, item, error, /):
        self.block(item, error.reason)

    def block(self, item, reason, /):
        self.blocked[item.trace_seq] = reason
        del self.waiting[item.trace_seq]

    def postpone(self, item, error, /, *, retry_at, counted):
        pass

    def release(self, item, /):
        pass

    def retry_now(self):
        pass
