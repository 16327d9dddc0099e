"""The thread that exchanges runs with the shared log: append, decide, hand over, pull."""

import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np

from kp_middleware import shared_log
from kp_middleware.core.evaluation import Evaluation, RunFacts, evaluate
from kp_middleware.core.formula import Nearest
from kp_middleware.core.gates import Gate, Reason, ReasonCode, SettingsGate
from kp_middleware.embedding import Scorer
from kp_middleware.errors import SharedLogError
from kp_middleware.export import OwnExporter, Registry
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.pipeline._dispatch import (
    GATE_FAILED,
    Dispatch,
    PreparedBody,
    shape_of,
    warn_once,
    with_score,
)
from kp_middleware.pipeline._imports import sync_shared_outbox
from kp_middleware.pipeline._sending import shared_link
from kp_middleware.pipeline._worker import LAST_STEP_S, Worker
from kp_middleware.settings import Settings
from kp_middleware.shared_log import LockedLog, LoggedVector, SharedItem, SharedRun
from kp_middleware.storage import DATABASE_ERRORS, DecisionRequest, SqliteStore, fork_lock
from kp_middleware.traces import ReasoningTrace

T = TypeVar("T")

logger = logging.getLogger("kp_middleware")

_VERSION: Final = version("kp-middleware")
_EVERY_S: Final = 30.0  # between pulls and heartbeats; the length of a lease
_AT_ONCE: Final = 100
_MOST_BYTES: Final = 4_000_000
_CHECK_EVERY_S: Final = 1.0
_jitter: Final = random.Random().random  # noqa: S311 - spreads attempts; a program may have seeded the shared one


class _Candidate(NamedTuple):
    """A run to decide on, redacted before the log is locked; ``run`` lacks newer neighbors."""

    request: DecisionRequest
    row: SharedRun
    delivery: str | None  # why it is not sent: a key of `DELIVERY`
    prepared: PreparedBody
    run: RunFacts


class SharedLogSync:
    """Exchanges runs between the file and the log."""

    def __init__(
        self,
        store: SqliteStore,
        settings: Settings,
        gate: Gate | None,
        exporter: Registry | OwnExporter | None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._gate = gate or settings.gate
        self._runs = store.shared_runs()
        self._pod = self._runs.pod()
        link = shared_link(settings, self._pod)
        assert link is not None  # noqa: S101 - the thread runs only with a log
        self.link = link
        self._items = None
        if isinstance(exporter, Registry):
            self._items = shared_log.SharedOutbox(self.link, exporter.url, exporter.agent_id)
        newest = settings.cache_size
        self._log = shared_log.PostgresLog(self.link, self._pod, newest=newest, outbox=self._items)
        own = exporter if isinstance(exporter, OwnExporter) else None
        self._dispatch = Dispatch(store, settings, own)
        self._weights = Scorer(profiles=settings.profiles).weights
        self._warn = partial(warn_once, set(), GATE_FAILED)
        self._next_pull_s = self._next_heartbeat_s = 0.0
        self._batch_bytes = _MOST_BYTES

    def run(self) -> bool:
        """Exchange one batch; return whether more can be done at once."""
        if not self._runs.take_lease(_EVERY_S):
            return False
        try:
            requests = self._runs.decision_requests(_AT_ONCE)
            is_new = not self.link.is_open  # the server may be another one: pull first
            if requests or is_new or time.monotonic() >= self._next_pull_s:
                self._pull()
            self._decide(requests)
            seqs = self._runs.to_ship(_AT_ONCE)
            self._ship(seqs)
            self._revise()
            sync_shared_outbox(self.link, self._runs)
            if self._items is not None:
                left = self._runs.to_transfer(_AT_ONCE)
                for batch in self._batches(left, lambda one: len(one[1].body)):
                    taken = self._items.add([item for _, item in batch])
                    self._runs.mark_transferred([one for one in batch if one[1].id in taken])
        except shared_log.LogChangedError:
            words = "%s has changed, by a restore or a failover: missing runs are shipped again"
            logger.warning(words, self.link.address)
            self._ship_again()
            return True
        except SharedLogError:
            self._batch_bytes = max(100_000, self._batch_bytes // 2)  # a slow network
            raise
        self._heartbeat()
        self._batch_bytes = min(_MOST_BYTES, 2 * self._batch_bytes)
        return len(requests) == _AT_ONCE or len(seqs) == _AT_ONCE

    def has_backlog(self) -> bool:
        return any(self._runs.backlog()[:2])

    def any_due(self) -> bool:
        """Return whether any host has left something to send for this agent."""
        if self._items is None:
            return self._dispatch.sends and self._dispatch.outbox.any_pending()
        return self._items.next_due() is not None

    def close(self) -> None:
        """Let another process ship."""
        with suppress(*DATABASE_ERRORS):
            self._runs.release_lease()
        self.link.close()

    def _heartbeat(self) -> None:
        if time.monotonic() < self._next_heartbeat_s:
            return
        to_ship, undecided, since = self._runs.backlog()
        place = self._runs.place() or shared_log.LogPosition()
        settings = f"{self._gate.name}, {self._settings.embedder}"
        self.link.report(settings, place.seq, to_ship + undecided, since)
        self._next_heartbeat_s = time.monotonic() + _EVERY_S

    def _pull(self) -> None:
        if (ours := self._runs.last_place()) is not None:
            self._log.check(ours)
        before = self._runs.place()
        for batch in shared_log.batches(self._log.pull, before):
            if batch.position != before:
                self._runs.save_pulled(batch.rows, batch.position)
            if batch.deleted:
                self._runs.delete(batch.deleted)
        self._next_pull_s = time.monotonic() + _EVERY_S

    def _ship_again(self) -> None:
        there: dict[str, int] = {}
        after = 0
        while known := self._runs.appended(after, 1000):
            after = known[-1][0]
            there |= self._log.places([id_ for _, id_ in known])
        self._runs.reset(there, self._log.check(shared_log.LogPosition()))

    def _ship(self, seqs: Sequence[int]) -> None:
        def append(batch: Sequence[tuple[int, SharedRun]]) -> None:
            self._runs.mark_shipped(self._log.ship([row for _, row in batch]))

        rows = ((seq, self._row(run)) for seq, run in self._runs.runs(seqs, self._pod))
        for batch in self._batches(rows, lambda one: _size_bytes(one[1])):
            for (seq, _), error in shared_log.refused(batch, append):
                logger.warning("trace %d is not shared: %s", seq, error)
                self._runs.mark(seq, is_local=True)

    def _batches(self, items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
        batch: list[T] = []
        left = self._batch_bytes
        for item in items:
            left -= size(item)
            if batch and left < 0:
                yield batch
                batch, left = [], self._batch_bytes - size(item)
            batch.append(item)
        if batch:
            yield batch

    def _row(self, run: SharedRun) -> SharedRun:
        body = None
        if run.body is not None and self._settings.shared_documents == "redacted":
            with fork_lock, suppress(ValueError):  # unreadable: only its score is shared
                trace = ReasoningTrace.model_validate_json(run.body)
                body = self._dispatch.prepared(trace, run.score).body
        return self._as_shared(run, body)

    def _as_shared(self, run: SharedRun, body: bytes | None) -> SharedRun:
        """Return a run with the document to share: in full, redacted as ``body``, or none."""
        match self._settings.shared_documents:
            case "full":
                return replace(run, redactor="full")
            case "redacted" if body is not None:
                return replace(run, body=body.decode(), redactor=self._dispatch.policy.redactor)
        return replace(run, body=None)

    def _revise(self) -> None:
        """Publish later feedback; a run that clears only now may meet the daily limit."""
        for seq in self._runs.to_revise(_AT_ONCE):
            feedback_count = self._runs.feedback_count(seq)
            found = self._runs.runs([seq], self._pod)
            row = replace(self._row(found[0][1]), vector=None) if found else None
            if row is None or self._is_published(seq, row):
                self._runs.mark_revised(seq, feedback_count)
                continue
            score, verdict = row.evaluation
            args = {**verdict.reason.args, "limit": self._settings.max_per_day}
            reason = Reason(ReasonCode.DAILY_LIMIT, args)
            verdict = verdict._replace(decision="withhold", reason=reason, key=None)
            with self._store.transaction():
                self._store.save_evaluation(seq, Evaluation(score, verdict))
                self._dispatch.outbox.sync(seq)

    def _is_published(self, seq: int, row: SharedRun) -> bool:
        """Publish a revision; True also if the server refuses it for good."""
        gate = self._gate
        try:
            below_limit = gate.below_limit if isinstance(gate, SettingsGate) else None
            return self._log.revise(row, below_limit)
        except SharedLogError as error:
            if not shared_log.is_refusal(error):
                raise
            logger.warning("the feedback on trace %d is not shared: %s", seq, error)
            return True

    def _decide(self, requests: Sequence[DecisionRequest]) -> None:
        candidates = filter(None, map(self._candidate, requests))
        # a cleared document is written twice: to the log and to the outbox
        for batch in self._batches(candidates, lambda one: 2 * _size_bytes(one.row)):
            for candidate, error in shared_log.refused(batch, self._decide_batch):
                logger.warning("trace %d is not shared: %s", candidate.request.seq, error)
                self._fail(candidate.request.seq, error)

    def _fail(self, seq: int, error: Exception) -> None:
        with self._store.transaction():
            self._store.fail(seq, "not_scored", error)
            self._runs.mark(seq, is_local=True)

    def _decide_batch(self, batch: Sequence[_Candidate]) -> None:
        candidates = {candidate.row.id: candidate for candidate in batch}

        def decide_new(known: LockedLog) -> shared_log.Decisions:
            fresh = candidates.keys() - known.answered.keys()
            return [self._evaluated(candidates[id_], known) for id_ in candidates if id_ in fresh]

        first = min(candidate.request.place for candidate in batch)
        for place, run in self._log.decide(
            [*candidates], shared_log.LogPosition(first), decide_new
        ):
            self._store_decision(candidates[run.id], run.evaluation, place)

    def _candidate(self, request: DecisionRequest) -> _Candidate | None:
        """Read and redact a run to decide on; None if it cannot be read."""
        seq, near = request.seq, request.similarity
        try:
            with fork_lock:
                [(_, row)] = self._runs.runs([seq], self._pod)
                stored, ending = self._store.stored(seq), self._store.ending(seq)
                trace = ReasoningTrace.model_validate_json(stored.document)
                trace = trace.ended(success=ending.success, confidence=ending.confidence)
                about = trace.metadata
                run = RunFacts(
                    shape_of(stored, trace),
                    ending,
                    None if near is None else Nearest(request.nearest or "", near),
                    request.embedder,
                    p_success=ending.p_success(request.p_success),
                )
                why = self._dispatch.blocking_reason(about.visibility, ending, about.created_at)
                prepared = self._dispatch.prepared(trace, 0.0)
            row = replace(row, scorer=f"kp-middleware {_VERSION}", vector=request.vector)
            return _Candidate(request, row, why, prepared, run)
        except DATABASE_ERRORS:
            raise
        except Exception as error:
            logger.warning("trace %d is stored but cannot be scored", seq, exc_info=True)
            self._fail(seq, error)
            return None

    def _item(self, candidate: _Candidate, score: float) -> SharedItem | None:
        """Return the item for the registry; None if it cannot be redacted."""
        body, redactions, _ = candidate.prepared
        if body is None:
            return None
        body = with_score(body, score)
        key = idempotency_key(body, agent_id=self._settings.agent_id)
        counts = json.dumps(dict(redactions))
        return SharedItem(candidate.row.id, body, self._dispatch.policy.redactor, counts, key)

    def _evaluated(
        self, candidate: _Candidate, known: LockedLog
    ) -> tuple[SharedRun, SharedItem | None]:
        domain = candidate.row.domain
        run = replace(
            candidate.run, nearest=_nearest(candidate.run.nearest, candidate.request, known.newer)
        )
        history, weights = known.history(domain), self._weights(domain)
        evaluation = evaluate(run, history, weights, self._gate, self._warn)
        leaves = evaluation.verdict.decision == "forward"
        if leaves and candidate.delivery is not None:
            verdict = evaluation.verdict.with_delivery(candidate.delivery)
            leaves, evaluation = False, evaluation._replace(verdict=verdict)
        row, item = (
            candidate.row.evaluated(evaluation),
            self._item(candidate, evaluation.score.value),
        )
        row = self._as_shared(row, item and item.body)
        known.add(row)
        return row, item if leaves and self._items else None

    def _store_decision(self, candidate: _Candidate, evaluation: Evaluation, place: int) -> None:
        seq, verdict = candidate.request.seq, evaluation.verdict
        with self._store.transaction():
            if not self._runs.begin_decision(seq):
                return  # the trace was removed, or another process was first
            took_ms, p_success = candidate.request.took_ms, candidate.run.p_success
            self._store.save_evaluation(seq, evaluation, took_ms=took_ms, p_success=p_success)
            self._runs.mark_shipped({candidate.row.id: place})
            if verdict.decision != "forward" or "delivery" in verdict.reason.args:
                return
            item, why = self._item(candidate, evaluation.score.value), candidate.prepared.error_text
            redactor, outbox = self._dispatch.policy.redactor, self._dispatch.outbox
            outbox.add(seq, item and item.body, redactor=redactor, redactions={}, reason=why)
            if item is not None and self._items is not None:
                self._runs.mark_transferred([(seq, item)])


def _size_bytes(row: SharedRun) -> int:
    return len(row.body or "") + len(row.vector or b"")


def _nearest(
    local: Nearest | None, request: DecisionRequest, newer: Sequence[LoggedVector]
) -> Nearest | None:
    if request.vector is None:
        return local
    others = [
        one
        for one in newer
        if one.seq > request.place
        and one.embedder == request.embedder
        and len(one.vector) == len(request.vector)
    ]
    if not others:
        return local
    rows = np.frombuffer(b"".join(one.vector for one in others), "<f4").reshape(len(others), -1)
    similarities = rows @ np.frombuffer(request.vector, "<f4")
    at = int(similarities.argmax())
    found = Nearest(others[at].id, min(1.0, max(-1.0, float(similarities[at]))))
    return found if local is None or found.similarity > local.similarity else local


class SharedWorker(Worker):
    """The thread ``kp-shared``: one process per file ships for all."""

    def __init__(
        self,
        store: SqliteStore,
        db: Path,
        make: Callable[[SqliteStore], SharedLogSync],
        *,
        on_due: Callable[[], None],
    ) -> None:
        words = "runs are stored, but not shared for now"
        super().__init__("kp-shared", db, words)
        self._store = store
        self._make = make
        self._on_due = on_due
        self._requested = self._completed = 0

    def wait_until_shipped(self, deadline: float) -> bool:
        """Wait until all runs of the file are in the log; False if the deadline comes first."""
        with self._changed:
            self._requested += 1
            requested = self._requested
        self.start()
        with self._changed:
            return self._changed.wait_for(
                lambda: self._completed >= requested or self._thread is None,
                max(0.0, deadline - time.monotonic()),
            )

    def _work(self) -> None:
        sync: SharedLogSync | None = None
        failures = 0
        with closing(self._store.clone()) as store:
            while not self._stopping.is_set():
                self._wake.clear()
                requested = self._requested
                try:
                    if sync is None:
                        sync = self._make(store)
                    more = sync.run()
                    has_backlog = sync.has_backlog()
                    if sync.any_due():
                        self._on_due()
                except DATABASE_ERRORS as error:
                    self._report(error)
                    wait_s = min(2.0**failures, 60.0) * _jitter()
                    failures += 1
                    self._stopping.wait(max(wait_s, LAST_STEP_S))
                    continue
                self.trouble, failures = None, 0
                if not has_backlog:
                    with self._changed:
                        self._completed = requested
                        self._changed.notify_all()
                if not more:
                    self._stopping.wait(0.02)  # batch runs that end together
                    self._wake.wait(LAST_STEP_S if has_backlog else _CHECK_EVERY_S)
            if sync is not None:
                sync.close()
