"""Rescore stored runs, in order of recording, with the current settings."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from kp_middleware.core.evaluation import Ending, Evaluation, RunFacts
from kp_middleware.core.formula import Score, Weights
from kp_middleware.embedding import Embedder, Scorer, Vector, VectorCache, embed_many, embedded_text
from kp_middleware.estimate import Features, features
from kp_middleware.pipeline._reevaluation import Reevaluation
from kp_middleware.pipeline._stages import Estimator
from kp_middleware.settings import Settings
from kp_middleware.storage import PastRun, SqliteStore
from kp_middleware.traces import ReasoningTrace

RescoreResult: TypeAlias = Literal[
    "changed",  # its score or its decision
    "cleared",  # of these: clears now
    "queued",  # of these: added to the outbox
    "withdrawn",  # of the changed: no longer clears
    "cancelled",  # of these: was pending in the outbox
    "unchanged",
    "left",  # was sent, is being sent, or was rejected
    "overtaken",  # was removed or replaced meanwhile
    "unscored",  # cannot be scored
    "embedded",  # had no vector of the current embedder
]

_BATCH: Final = 64  # documents in memory at once: 20 KB each, 1 MiB at most
_ROUNDING: Final = 1e-6  # of a similarity: it depends on a vector's alignment


class _Replayed(NamedTuple):
    """A run and its facts today; None if it is not selected or cannot be read."""

    run: PastRun
    today: RunFacts | None = None
    seen: tuple[ReasoningTrace, Features, Vector | None] | None = None  # input of the estimate
    new_vector: Vector | None = None  # if it had none by the current embedder


class Rescoring:
    """Rescores runs, the oldest first, each as if it had just ended, with the current settings.

    Success is estimated from the runs before each, with today's feedback on them. A run that was
    sent, is being sent or was rejected keeps its score, but gets a vector and features to compare
    others with. After an interruption, no run is embedded twice. A dry run works on a copy.

    Raises:
        EmbedderUnavailableError: If there is no model; nothing is changed.
        EmbedderNotReadyError: If the model is being downloaded.
    """

    def __init__(
        self,
        store: SqliteStore,
        settings: Settings,
        embedder: Embedder | None,
        *,
        domain: str | None = None,
        since: str | None = None,
        dry_run: bool = False,
    ) -> None:
        name = None if embedder is None else embedder.name  # before all else: it loads the model
        self._dry_run = dry_run
        store = store.copied() if dry_run else store
        self.counts: Counter[RescoreResult] = Counter()
        self._store = store
        self._settings = settings
        self._runs = store.past_runs(domain, since, name)
        self._embedder, self._name = embedder, name
        self._now_ms = 0
        self._cache = VectorCache(
            settings.cache_size, ttl_ms=settings.cache_ttl_ms, clock=lambda: self._now_ms
        )
        self._scorer = Scorer(embedder=embedder, cache=self._cache, profiles=settings.profiles)
        self._estimator = Estimator(store.estimates() if settings.estimate else None, embedder)
        self.unread: list[str] = []  # ids of those whose document cannot be read: they stay
        self._reevaluation = Reevaluation.from_settings(store, settings)
        self._cleared: list[int] = []
        self._done = (self._runs.first() or 1) - 1
        self._last_vector = 0

    def remaining(self) -> int:
        return self._runs.count(after=self._done)

    def steps(self) -> Iterator[int]:
        """Rescore in short steps; yield the number of selected runs of each."""
        before = self._runs.before(self._done + 1, self._settings.cache_size)
        for key, vector, self._now_ms in before:
            self._cache.add(np.frombuffer(vector, "<f4"), key, embedder=self._name or "")
        while runs := self._runs.after(self._done, _BATCH):
            replayed = self._replayed(runs)
            while some := [*islice(replayed, 8)]:  # runs in one transaction: 4 ms
                with self._store.transaction():
                    for one in some:
                        self._rescore(one)
                    self._done = some[-1].run.seq
                while self._cleared:
                    self._reevaluation.dispatch.queue_stored(self._cleared.pop(0))
                yield sum(one.run.is_selected for one in some)
                time.sleep(0.001)  # to let others write

    def _replayed(self, runs: Sequence[PastRun]) -> Iterator[_Replayed]:
        """Compare each selected run with all runs before it."""
        traces: dict[int, ReasoningTrace] = {}
        for run in filter(attrgetter("is_selected"), runs):
            try:
                document = self._runs.document(run.seq) or ""
                traces[run.seq] = ReasoningTrace.model_validate_json(document)
            except ValueError:
                self.unread.append(run.id)
        vectors: Iterator[Vector] = iter(())
        if (embedder := self._embedder) is not None:
            new = (traces[run.seq] for run in runs if run.seq in traces and run.vector is None)
            texts = (embedded_text(trace, embedder) for trace in new)
            vectors = embed_many(embedder.embed, texts, embedder)
        for run in runs:
            self._now_ms = run.ended_ms
            vector = None if run.vector is None else np.frombuffer(run.vector, dtype="<f4")
            if (trace := traces.get(run.seq)) is None:
                if vector is not None:
                    self._cache.add(vector, run.id, embedder=self._name or "")
                yield _Replayed(run)
                continue
            added = None
            if vector is None and embedder is not None:
                vector = added = self._cache.unit(next(vectors))
            today = self._compared(run, trace, vector)
            yield _Replayed(run, today, (trace, features(trace), vector), added)

    def _compared(self, run: PastRun, trace: ReasoningTrace, vector: Vector | None) -> RunFacts:
        then = None if run.score is None else run.score.nearest
        is_gone = run.score and run.nearest_seq is None and run.score.embedder == self._name
        shape = replace(run.shape, types=trace.shape.types)
        today = self._scorer.compare(trace, vector, shape, known=then if is_gone else None)
        if (near := today.nearest) and then and _are_close([then.similarity], [near.similarity]):
            return replace(today, nearest=near._replace(similarity=then.similarity))
        return today

    def _rescore(self, replayed: _Replayed) -> None:
        now = self._runs.run(replayed.run.seq)
        if now is None or now.recorded != replayed.run.recorded:
            self.counts["overtaken"] += replayed.run.is_selected
            return
        self._place_vector(now, replayed.new_vector)
        if now.is_selected:
            p, table = None, self._estimator.table
            if table is not None and replayed.seen is not None:
                p, estimate = self._estimator.estimate(now.seq, *replayed.seen)
                table.save(now.seq, replayed.seen[1].astype("<f4").tobytes(), estimate)
            self.counts.update(self._outcomes(now, replayed, p))

    def _place_vector(self, now: PastRun, new: Vector | None) -> None:
        """Store a missing vector; vectors are kept in the order of runs, in which caches evict."""
        if now.vector_seq is None:
            if new is not None:
                self.counts["embedded"] += 1
                numbers = new.astype("<f4", copy=False).tobytes()
                self._last_vector = self._runs.add_vector(now, numbers)
        elif now.vector_seq > self._last_vector:
            self._last_vector = now.vector_seq
        else:
            self._last_vector = self._runs.move_vector(now)

    def _outcomes(
        self, now: PastRun, replayed: _Replayed, p: float | None
    ) -> Iterator[RescoreResult]:
        if now.was_sent or replayed.run.was_sent:
            yield "left"
        elif replayed.today is None:
            yield "unscored"
        else:
            ending = now.ending if now.has_feedback else now.ending.with_estimate(p)
            p_then = now.p_success_then(p)
            evaluation = self._evaluated(now, replayed.today, ending, p, p_then)
            if self._is_unchanged(now, evaluation):
                self._runs.rank(now.seq, evaluation.verdict.key, p_then)
                yield "unchanged"
                return
            if ending != now.ending:
                self._store.save_ending(now.seq, ending)
            self._runs.mark_scored(now.seq)
            is_cleared = self._reevaluation.save(now.seq, evaluation, now, p_then)
            if is_cleared and not self._dry_run:
                self._cleared.append(now.seq)
            yield "changed"
            yield from self._changes_of_delivery(now, evaluation.verdict.decision)

    def _evaluated(
        self, now: PastRun, today: RunFacts, ending: Ending, p: float | None, p_then: float | None
    ) -> Evaluation:
        """Evaluate a run with its current ending, which may be feedback.

        It is ranked by ``p_then``, the estimate before its first feedback.
        """
        weights = self._scorer.weights(now.domain)
        ranked = replace(today, ending=ending, p_success=p_then)
        stays = p_then == now.p_success and _has_same_signals(now, ranked, weights)
        key = now.rank_key if stays else ranked.rank_key(weights)
        run = replace(ranked, p_success=ending.p_success(p), key=key)
        if run.rank_key(weights) != key and now.has_feedback:
            before = Ending(bool(now.success_before), now.confidence_before or 0.0)
            run = replace(run, first_ending=before)
        return self._reevaluation.evaluate(now.seq, run, weights, now)

    def _is_unchanged(self, now: PastRun, evaluation: Evaluation) -> bool:
        (score, verdict), before = evaluation, now.score
        if before is None or before.embedder != score.embedder:
            return False
        if not _are_close((before.value, *_measures(before)), (score.value, *_measures(score))):
            return False
        if self._settings.max_per_day is not None and now.gate == verdict.gate:
            return True
        then = now.gate, now.threshold, now.decision, now.credit, now.chosen
        return attrgetter("gate", "threshold", "decision", "credit", "chosen")(verdict) == then

    def _changes_of_delivery(self, run: PastRun, decision: str) -> Iterator[RescoreResult]:
        if decision == "forward" != run.decision:
            yield "cleared"
            if run.may_be_sent and self._settings.api_key is not None:
                yield "queued"
        elif run.decision == "forward" != decision:
            yield "withdrawn"
            if run.outbox == "pending":
                yield "cancelled"


def _has_same_signals(run: PastRun, today: RunFacts, weights: Weights) -> bool:
    if run.score is None or run.rank_key is None:
        return False
    signals = replace(today.signals, outcome_confidence=run.score.signals.outcome_confidence)
    return _are_close(_measures(run.score), (*signals, *weights))


def _measures(score: Score) -> tuple[float, ...]:
    return (*score.signals, *score.weights)


def _are_close(old: Sequence[float], new: Sequence[float]) -> bool:
    return all(abs(before - after) <= _ROUNDING for before, after in zip(old, new, strict=True))
