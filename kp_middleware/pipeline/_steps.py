"""The steps of a run: keep, score, gate, queue."""

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from kp_middleware import privacy
from kp_middleware.asked import openings
from kp_middleware.core.endings import Ending
from kp_middleware.core.evaluation import Terms, evaluate
from kp_middleware.core.formula import Shape
from kp_middleware.core.gates import Gate, gate_of
from kp_middleware.embedding import Embedder, Scorer, Vector, VectorCache, embed_beginning
from kp_middleware.errors import EmbedderNotReadyError, TraceNotFoundError
from kp_middleware.estimate import Features, features
from kp_middleware.export import OwnExporter
from kp_middleware.outcomes import LIKELY
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._estimating import Estimating, kind_of
from kp_middleware.pipeline._intake import Intake
from kp_middleware.pipeline._judging import JudgeNotReadyError, Judging
from kp_middleware.pipeline._lifecycle import Retention
from kp_middleware.pipeline._queue import Feedback, FinishedRun
from kp_middleware.pipeline._reevaluate import Reevaluation, WarnOnce
from kp_middleware.pipeline._sharing import Sharing
from kp_middleware.recall import packed
from kp_middleware.recording import Recorder, shield
from kp_middleware.runs import RecordedRun
from kp_middleware.settings import Settings
from kp_middleware.storage import PASSING_TROUBLE, Store, StoredEstimate, is_damage
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

_EVERY: Final = 100  # runs that stay: one look takes a millisecond
_luck: Final = random.Random().random  # noqa: S311 - no secret; a program may have seeded the shared one
_MOMENT_S: Final = 1.0
_MOST_OF_OURS: Final = 10_000  # beyond, the file still knows of them


class NextRun:
    """Ours first, in their order; then those that others have left.

    What another process has recorded it is about to score itself, and a run that two embed is work
    in vain. So we come to its runs only when they have waited for a moment under our eyes; where
    we meet another process all the same, we go on at another place. What waits when we begin may
    be a dead process's: that we do at once.
    """

    def __init__(
        self,
        store: Store,
        *,
        luck: Callable[[], float] = _luck,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._luck = luck
        self._steady = steady
        self._ours: deque[int] = deque(maxlen=_MOST_OF_OURS)
        self._looked_s = -math.inf
        self._seen_until = self._left_until = 0
        self._from = 0

    def add(self, seqs: Iterable[int]) -> None:
        """Add runs that this process has just written."""
        self._ours.extend(seqs)

    def ours(self) -> int | None:
        """Return the next run of this process that waits, or None."""
        while self._ours and not self._store.is_recorded(self._ours[0]):
            self._ours.popleft()
        return self._ours[0] if self._ours else None

    def oldest(self, *, at_once: bool = False) -> int | None:
        """Return the next run that waits, or None; ``at_once`` includes others' newest."""
        self._look(at_once=at_once)
        ours = self.ours()
        return self._of_others() if ours is None else ours

    def go_elsewhere(self) -> None:
        """Continue at a random place: another process has scored this run first."""
        first = self._store.next_recorded(0, self._left_until)
        if first is not None:
            self._from = first + int(self._luck() * (self._left_until - first))

    def in_s(self) -> float:
        """Return the seconds until there may be a run to score; infinity if none waits."""
        if self._store.last_recorded() is None:
            return math.inf
        return max(0.0, self._looked_s + _MOMENT_S - self._steady())

    def _look(self, *, at_once: bool) -> None:
        now_s = self._steady()
        is_first = self._looked_s == -math.inf
        if now_s < self._looked_s + _MOMENT_S and not at_once:
            return
        newest = self._store.last_recorded() or 0
        self._left_until = newest if is_first or at_once else self._seen_until
        self._seen_until, self._looked_s = newest, now_s

    def _of_others(self) -> int | None:
        seq = self._store.next_recorded(self._from, self._left_until)
        if seq is None and self._from:
            self._from = 0
            seq = self._store.next_recorded(0, self._left_until)
        return seq


_ON_NO_TRACE: Final = (
    "feedback was dropped, %s: give it after the run has ended, to a pipeline on the same file;"
    " more are counted, not logged"
)


class Stages:
    """All stages on one connection, in one thread at a time; each call is one short step."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        embedder: Embedder | None,
        gate: Gate | None = None,
        exporter: OwnExporter | None = None,
        *,
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._cache = VectorCache.sharing(
            store.vectors(), settings.cache_size, ttl_ms=settings.cache_ttl_ms
        )
        self._scorer = Scorer(embedder=embedder, cache=self._cache, profiles=settings.profiles)
        self._gate = gate or gate_of(settings)
        self._embedder = embedder if settings.recall else None
        self._withheld = 0
        self._warn_once = WarnOnce()
        policy = privacy.Policy.of(settings)
        self.intake = Intake(store, settings, policy)
        self.dispatch = Dispatch(store, settings, policy, exporter)
        self.next = NextRun(store)
        self._reevaluation = Reevaluation(store, self.dispatch, self._gate)
        self._retention = Retention(store, settings.retention_days)
        self._judging = Judging(on_answer)
        is_shared = settings.shared is not None
        self._sharing = Sharing.of(store, settings, self._gate) if is_shared else None
        table = store.estimates() if settings.estimate else None
        self._estimating = None if table is None else Estimating(table, embedder)

    def keep(self, run: FinishedRun) -> None:
        """Write a run, if it has a step, without its secrets, or what is told of one."""
        if isinstance(run, Feedback):
            self._learn(run)
        else:
            self.next.add(self.intake.keep(run))
            if isinstance(run, Recorder) and run.confidence_estimate.judge is not None:
                self._judging.expect(run.thread_id or run.trace_id, run.confidence_estimate.judge)

    def score_next(self, *, at_once: bool = False) -> bool:
        """Score a run that waits, ours first, or do what else is left; False if nothing is, now.

        ``at_once`` includes runs that another process may be about to score.

        Raises:
            EmbedderNotReadyError, JudgeNotReadyError: If it waits for the model, or for a judge.
        """
        seq = self.next.oldest(at_once=at_once)
        if seq is not None:
            self._score(seq)
            return True
        return self.dispatch.queue_left() or self.end_overdue()

    def bring_in(self, runs: Iterable[RecordedRun]) -> Iterator[int]:
        """Write runs of other tools in their order and score them; yield how many are done."""
        written: deque[tuple[int, ReasoningTrace]] = deque()
        taken = 0

        def kept() -> Iterator[ReasoningTrace]:
            nonlocal taken
            for run in runs:
                taken += 1
                if one := self.intake.bring_in(run):
                    written.append(one)
                    yield one[1]

        for vector in self._scorer.embed_many(kept()):
            seq, trace = written.popleft()
            self._score(seq, embedded=(trace, vector))
            yield taken - len(written)
        yield taken

    def score_ours(self) -> bool:
        """Score the next run that we wrote; False if none waits. Raises as `score_next`."""
        seq = self.next.ours()
        if seq is not None:
            self._score(seq)
        return seq is not None

    def end_overdue(self) -> bool:
        """End the first run that has waited too long for what follows; False if none has."""
        ended = self.intake.end_overdue()
        self.next.add(ended)
        return bool(ended)

    def remove_old(self) -> bool:
        """Remove a few traces that are too old; False if there are none."""
        removed = self._retention.remove_some()
        if removed:
            self._cache.reload()  # it may remember their vectors
        return removed

    def _score(
        self,
        seq: int,
        *,
        embedded: tuple[ReasoningTrace, Vector | None] | None = None,
    ) -> None:
        """Score a run that waits, after its judge; ``embedded`` is its document with its vector."""
        started = time.perf_counter()
        try:
            stored = self._store.stored(seq)
            if embedded is None:
                trace = ReasoningTrace.model_validate_json(stored.document)
                if self._judging:
                    self._ask_its_judge(seq, trace)
                embedded = trace, self._embedded(trace)  # slow: outside the transaction
            shape = Shape(stored.steps, embedded[0].shape.types, stored.tools, stored.recoveries)
            opening = None if embedded[1] is None else self._opening(stored.said)
            self._score_and_queue(seq, *embedded, opening, shape, started=started)
        except (EmbedderNotReadyError, JudgeNotReadyError, *PASSING_TROUBLE):
            raise
        except Exception as error:
            if is_damage(error):
                raise
            logger.warning("trace %d is kept but cannot be scored", seq, exc_info=True)
            self._store.fail(seq, "not_scored", error)

    def _ask_its_judge(self, seq: int, trace: ReasoningTrace) -> None:
        run = self._store.unsaid(seq)
        if run is None or not self._judging.is_expected(run):
            return
        told = self._judging.told(run, trace)
        if told is not None:
            with self._store.transaction():
                ending = self._store.ending(seq).extracted(told >= LIKELY, told)
                self._store.save_ending(seq, ending)
        self._judging.close(run)

    def _score_and_queue(
        self,
        seq: int,
        trace: ReasoningTrace,
        vector: Vector | None,
        opening: bytes | None,
        shape: Shape,
        *,
        started: float,
    ) -> None:
        if vector is not None:
            self._scorer.load()
        own = features(trace)
        p, estimate = None, None
        if self._estimating is not None:
            p, estimate = self._estimating.of(seq, kind_of(trace), own, vector)
        try:
            with self._store.transaction():
                if not self._store.is_recorded(seq):
                    self.next.go_elsewhere()  # another process was first
                    return
                ending = self._ending(seq, own, p, estimate)
                p_success = ending.p_success(p)
                trace = trace.ended(success=ending.success, confidence=ending.confidence)
                run = replace(
                    self._scorer.compare(trace, vector, shape),
                    p_success=p_success,
                    is_stated=ending.is_stated,
                )
                metadata = trace.metadata
                history = self._store.history(seq, metadata.task_domain)
                weights = self._scorer.weights(metadata.task_domain)
                evaluation = evaluate(run, history, Terms(weights, self._gate, self._warn_of_gate))
                blocking_reason = self.dispatch.blocking_reason(
                    metadata.visibility, ending, metadata.created_at
                )
                took_ms = (time.perf_counter() - started) * 1000
                self._save_opening(seq, opening)
                if self._sharing is not None and self._sharing.asks(trace, evaluation.verdict):
                    self._sharing.ask(seq, trace.id, run, took_ms)
                    return
                leaves = evaluation.verdict.decision == "forward"
                if leaves and blocking_reason is not None:
                    leaves, verdict = False, evaluation.verdict.staying(blocking_reason)
                    evaluation = evaluation._replace(verdict=verdict)
                self._store.save_evaluation(seq, evaluation, took_ms=took_ms, p_success=p_success)
                if self._sharing is not None:
                    self._sharing.mark(seq, trace)
        except BaseException:
            self._cache.reload()  # what it remembers of this run was rolled back
            raise
        if evaluation.verdict.decision == "withhold" and trace.metadata.visibility != "private":
            self._warn_of_withheld()
        if leaves:
            self.dispatch.queue(seq, trace, evaluation.score.value)

    def _warn_of_withheld(self) -> None:
        """Warn now and then if no recent run of the file has cleared the gate."""
        self._withheld += 1
        if self._withheld != 1 and self._withheld % _EVERY:  # others may have scored the rest
            return
        if (words := self._store.forwarding_warning(time.time())) is not None:
            logger.warning("nothing leaves: %s", words)

    def _save_opening(self, seq: int, opening: bytes | None) -> None:
        if opening is not None and self._embedder is not None:
            self._store.save_opening(seq, self._embedder.name, opening)

    def _ending(
        self, seq: int, own: Features, p: float | None, estimate: StoredEstimate | None
    ) -> Ending:
        """Return the ending as it is known now; store the estimate and what follows from it."""
        ending = self._store.ending(seq)  # feedback may have come meanwhile
        if self._estimating is None:
            return ending
        self._estimating.save(seq, own, estimate)
        estimated = ending.estimated(p)
        if estimated != ending:
            self._store.save_ending(seq, estimated)
        return estimated

    def _learn(self, told: Feedback) -> None:
        try:
            self._reevaluation.learn(told)
        except TraceNotFoundError as error:
            if shield.count("feedback on no trace"):
                logger.warning(_ON_NO_TRACE, error)

    def _embedded(self, trace: ReasoningTrace) -> Vector | None:
        """Return the embedding, or None if the embedder fails; warn once per kind of failure."""
        try:
            return self._scorer.embed(trace)
        except (EmbedderNotReadyError, *PASSING_TROUBLE):
            raise
        except Exception as error:  # noqa: BLE001 - a user's embedder may raise anything
            self._warn_once.warn("novelty is 0.5, the embedder failed", error)
            return None

    def _opening(self, said: str) -> bytes | None:
        """Return the vectors of the beginning of what people said, to recall the run by."""
        if self._embedder is None or not said.strip():
            return None
        try:
            opening, first_line = openings(said)
            vectors = embed_beginning(opening, len(first_line), self._embedder)
            return b"".join(packed(self._cache.unit(vector)) for vector in vectors)
        except Exception as error:  # noqa: BLE001 - a user's embedder may raise anything
            self._warn_once.warn("a run is recalled by its words alone, the embedder failed", error)
            return None

    def _warn_of_gate(self, error: BaseException) -> None:
        self._warn_once.warn("a run stays here, the gate failed", error)
