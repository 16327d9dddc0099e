"""The steps of a run: keep, score, gate, queue."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

from kp_middleware import privacy
from kp_middleware.asked import LONG, said_in
from kp_middleware.core.evaluation import (
    Ending,
    Evaluation,
    Run,
    evaluate,
    known_success,
)
from kp_middleware.core.formula import Shape
from kp_middleware.core.gates import Gate, SettingsGate
from kp_middleware.embedding import Embedded, Embedder, Scorer, VectorCache
from kp_middleware.errors import EmbedderNotReadyError, TraceNotFoundError
from kp_middleware.estimate import features
from kp_middleware.export import OwnExporter
from kp_middleware.outcomes import LIKELY
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._endings import (
    GATE_FAILED,
    Estimating,
    JudgeNotReadyError,
    Judging,
    Reevaluation,
    warn_once,
)
from kp_middleware.pipeline._intake import Intake
from kp_middleware.pipeline._threads import Feedback, FinishedRun, ThreadEnd
from kp_middleware.recall import packed
from kp_middleware.recording import Recorder, shield
from kp_middleware.runs import RecordedRun
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    PASSING_TROUBLE,
    Asking,
    NextRun,
    Retention,
    SharedRuns,
    SqliteStore,
    Store,
    StoredRun,
    is_damage,
)
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

_EVERY: Final = 100  # runs that stay: one look takes a millisecond
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
        self._cache = VectorCache(
            settings.cache_size, ttl_ms=settings.cache_ttl_ms, table=store.vectors()
        )
        self._scorer = Scorer(embedder=embedder, cache=self._cache, profiles=settings.profiles)
        self._gate = gate or settings.gate
        self._embedder = embedder
        self._recalls = settings.recall
        self._withheld = 0
        self._warned: set[str] = set()
        policy = privacy.Policy.of(settings)
        self.next = NextRun(store)
        self.intake = Intake(store, settings, policy, self.next)
        self.dispatch = Dispatch(store, settings, policy, exporter)
        self._retention = Retention(store, settings.retention_days)
        self._judging = Judging(on_answer)
        self._shared = shared_runs(store) if settings.shared is not None else None
        table = store.estimates() if settings.estimate else None
        self._estimating = None if table is None else Estimating(table, embedder)

    def keep(self, run: FinishedRun) -> None:
        """Write a run, if it has a step, without its secrets, or what is told of one."""
        match run:
            case Feedback():
                try:
                    self._reevaluation.learn(run)
                except TraceNotFoundError as error:
                    if shield.count("feedback on no trace"):
                        logger.warning(_ON_NO_TRACE, error)
            case ThreadEnd():
                self.intake.end(run)
            case _:
                self.intake.keep(run)
                if isinstance(run, Recorder) and run.confidence_estimate.judge is not None:
                    thread = run.thread_id or run.trace_id
                    self._judging.expect(thread, run.confidence_estimate.judge)

    @cached_property
    def _reevaluation(self) -> Reevaluation:
        return Reevaluation(self._store, self.dispatch, self._gate)

    def score_next(self, *, at_once: bool = False) -> bool:
        """Score a run that waits, ours first, or do what else is left; False if nothing is, now.

        ``at_once`` includes runs that another process may be about to score.

        Raises:
            EmbedderNotReadyError, JudgeNotReadyError: If it waits for the model, or for a judge.
        """
        seq = self.next.oldest(at_once=at_once)
        if seq is not None:
            self.score(seq)
            return True
        return self.dispatch.queue_left() or self.end_overdue()

    def end_overdue(self) -> bool:
        """End the first run that has waited too long for what follows; False if none has."""
        return self.intake.next_end_in_s() <= 0 and self.intake.end()

    def bring_in(self, runs: Iterable[RecordedRun]) -> Iterator[int]:
        """Write runs of other tools in their order and score them; yield how many are done."""
        written: deque[tuple[int, ReasoningTrace, Shape]] = deque()
        taken = 0

        def kept() -> Iterator[tuple[ReasoningTrace, str]]:
            nonlocal taken
            for run in runs:
                taken += 1
                if one := self.intake.bring_in(run):
                    seq, trace = one
                    shape, said = _shape_and_said(self._store.stored(seq), trace)
                    written.append((seq, trace, shape))
                    yield trace, said if self._recalls else ""

        for embedded in self._scorer.embed_many_with(kept()):
            seq, trace, shape = written.popleft()
            self.score(seq, (trace, shape, embedded))
            yield taken - len(written)
        yield taken

    def remove_old(self) -> bool:
        """Remove a few traces that are too old; False if there are none."""
        removed = self._retention.remove_some()
        if removed:
            self._cache.reload()  # it may remember their vectors
        return removed

    def score(self, seq: int, read: tuple[ReasoningTrace, Shape, Embedded] | None = None) -> None:
        """Score a run that waits, after its judge, and queue it if it may leave.

        Raises as `score_next`.
        """
        started = time.perf_counter()
        try:
            leaves = self._evaluate(seq, *(read or self._read(seq)), started)
            if leaves is not None:
                self.dispatch.queue(seq, *leaves)
        except (EmbedderNotReadyError, JudgeNotReadyError, *PASSING_TROUBLE):
            raise
        except Exception as error:
            if is_damage(error):
                raise
            logger.warning("trace %d is kept but cannot be scored", seq, exc_info=True)
            self._store.fail(seq, "not_scored", error)
        self.next.done(seq)

    def _read(self, seq: int) -> tuple[ReasoningTrace, Shape, Embedded]:
        """Return a run's document, the counts of its steps, and its vectors; hear its judge."""
        run = self.next.remembered(seq)
        if run is not None and len(run.trace.task.objective) <= LONG:  # else it may be cut
            trace = run.trace
            shape, said = replace(run.shape, types=trace.shape.types), said_in(trace)
        else:
            stored = self._store.stored(seq)
            trace = ReasoningTrace.model_validate_json(stored.document)
            shape, said = _shape_and_said(stored, trace)
        if self._judging.judges:
            self._hear_its_judge(seq, trace)
        try:
            return trace, shape, self._scorer.embed_with(trace, said if self._recalls else "")
        except (EmbedderNotReadyError, *PASSING_TROUBLE):
            raise
        except Exception as error:  # noqa: BLE001 - a user's embedder may raise anything
            warn_once(self._warned, "novelty is 0.5, the embedder failed", error)
            return trace, shape, Embedded()

    def _hear_its_judge(self, seq: int, trace: ReasoningTrace) -> None:
        run = self._store.unsaid(seq)
        if run is None or run not in self._judging.judges:
            return
        told = self._judging.told(run, _ended(trace, self._store.ending(seq)))
        if told is not None:
            with self._store.transaction():
                ending = self._store.ending(seq).extracted(told >= LIKELY, told)
                self._store.save_ending(seq, ending)
        del self._judging.judges[run]

    def _evaluate(
        self, seq: int, trace: ReasoningTrace, shape: Shape, embedded: Embedded, started: float
    ) -> tuple[ReasoningTrace, float] | None:
        """Score a run and decide on it; return what to queue, None if it stays here."""
        vector = embedded.of_run
        if vector is not None:
            self._scorer.load()  # slow: outside the transaction
        own, metadata = features(trace), trace.metadata
        p, estimate = None, None
        if self._estimating is not None:
            p, estimate = self._estimating.of(seq, trace, own, vector)
        try:
            with self._store.transaction():
                if not self._store.is_recorded(seq, trace.id):
                    self.next.go_elsewhere()  # another process was first
                    return None
                ending = self._store.ending(seq)  # feedback may have come meanwhile
                if self._estimating is not None:
                    self._estimating.save(seq, own, estimate)
                    before, ending = ending, ending.estimated(p)
                    if ending != before:
                        self._store.save_ending(seq, ending)
                trace = _ended(trace, ending)
                run = replace(
                    self._scorer.compare(trace, vector, shape),
                    p_success=ending.p_success(p),
                    is_stated=ending.is_stated,
                )
                if embedded.opening is not None and self._embedder is not None:
                    opening = packed(embedded.opening)
                    self._store.save_opening(seq, self._embedder.name, opening)
                evaluation = self._decided(seq, run, trace, ending, started)
        except BaseException:
            self._cache.reload()  # what it remembers of this run was rolled back
            raise
        if evaluation is None:
            return None
        score, verdict = evaluation
        if verdict.decision == "withhold" and metadata.visibility != "private":
            self._warn_of_withheld()
        stays = verdict.decision == "withhold" or "delivery" in verdict.reason.args
        return None if stays else (trace, score.value)

    def _decided(
        self, seq: int, run: Run, trace: ReasoningTrace, ending: Ending, started: float
    ) -> Evaluation | None:
        """Store the score and the decision; None if another thread decides, which knows all hosts.

        What a fixed threshold withholds here it would withhold with all that others know: novelty
        only falls. So only what would clear asks, and all runs where a share or another gate
        decides.
        """
        metadata, gate = trace.metadata, self._gate
        history = self._store.history(seq, metadata.task_domain)
        weights = self._scorer.weights(metadata.task_domain)
        warn = partial(warn_once, self._warned, GATE_FAILED)
        evaluation = evaluate(run, history, weights, gate, warn)
        clears = evaluation.verdict.decision == "forward"
        is_private = metadata.visibility == "private"
        why = self.dispatch.blocking_reason(metadata.visibility, ending, metadata.created_at)
        took_ms = (time.perf_counter() - started) * 1000
        if self._shared is not None and not is_private:
            is_fixed = isinstance(gate, SettingsGate) and not gate.last
            if clears or not is_fixed:
                id_, similarity = (None, None) if run.nearest is None else run.nearest
                self._shared.ask(
                    Asking(seq, trace.id, 0, id_, similarity, run.embedder, run.p_success, took_ms)
                )
                return None
        if clears and why is not None:
            evaluation = evaluation._replace(verdict=evaluation.verdict.staying(why))
        self._store.save_evaluation(seq, evaluation, took_ms=took_ms, p_success=run.p_success)
        if self._shared is not None:
            self._shared.mark(seq, stays=is_private)
        return evaluation

    def _warn_of_withheld(self) -> None:
        """Warn now and then if no recent run of the file has cleared the gate."""
        self._withheld += 1
        if self._withheld != 1 and self._withheld % _EVERY:  # others may have scored the rest
            return
        if (words := self._store.forwarding_warning(time.time())) is not None:
            logger.warning("nothing leaves: %s", words)


def _shape_and_said(stored: StoredRun, trace: ReasoningTrace) -> tuple[Shape, str]:
    shape = Shape(stored.steps, trace.shape.types, stored.tools, stored.recoveries)
    return shape, stored.said


def _ended(trace: ReasoningTrace, ending: Ending) -> ReasoningTrace:
    """Return a document with its ending as the file has it, which says if success is assumed."""
    is_assumed = known_success(ending.success, ending.success_source) is None
    trace = trace.ended(success=ending.success, confidence=ending.confidence)
    source = {"success_source": "assumed" if is_assumed else None}
    return trace.model_copy(update={"metadata": trace.metadata.model_copy(update=source)})


def shared_runs(store: Store) -> SharedRuns:
    """Return the part of the file that is shared with other hosts; a user's own store raises."""
    if not isinstance(store, SqliteStore):
        raise TypeError("shared reads the file: a store of your own has none")
    return store.shared_runs()
