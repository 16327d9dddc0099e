"""The stages of a run: store, judge, estimate, score, gate, queue."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from kp_middleware import storage
from kp_middleware.core.evaluation import Ending, Evaluation, RunFacts, evaluate
from kp_middleware.core.formula import Shape
from kp_middleware.core.gates import Gate, SettingsGate
from kp_middleware.embedding import (
    Embedded,
    Embedder,
    MiniLMEmbedder,
    Scorer,
    Vector,
    VectorCache,
    embed_many,
)
from kp_middleware.errors import EmbedderNotReadyError, TraceNotFoundError
from kp_middleware.estimate import (
    Features,
    GaussianProcess,
    features,
    is_trusted,
)
from kp_middleware.export import OwnExporter
from kp_middleware.pipeline._delays import JudgeRunner, ModelLoader, ScoringDelayedError
from kp_middleware.pipeline._dispatch import (
    GATE_FAILED,
    Dispatch,
    ended_trace,
    is_transient,
    shape_of,
    warn_once,
)
from kp_middleware.pipeline._intake import Feedback, Intake, Submission, ThreadEnd
from kp_middleware.pipeline._reevaluation import Reevaluation
from kp_middleware.recall_text import LONG_CHARS, extract_user_text, quantize
from kp_middleware.recording import Recorder, shield
from kp_middleware.runs import RecordedRun
from kp_middleware.settings import Settings
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

_MAX_AGE: Final = 200  # runs after which feedback no longer counts
_USUAL_RUNS: Final = 1000  # runs that define what is usual, and whose feedback counts


@dataclass
class Estimator:
    """Estimates the success of runs. Each kind of run is fitted again after feedback."""

    table: storage.EstimateTable | None  # None: estimates are off
    embedder: Embedder | None
    fitted: dict[storage.RunKind, tuple[Sequence[storage.LabelledRun], GaussianProcess]] = field(
        default_factory=dict
    )

    def estimate(
        self, seq: int, trace: ReasoningTrace, own: Features, vector: Vector | None
    ) -> tuple[float | None, storage.StoredEstimate | None]:
        """Return the probability of success, or None, and the estimate to store."""
        metadata, table = trace.metadata, self.table
        kind = storage.RunKind(metadata.task_domain, metadata.framework)
        if table is None:
            return None, None
        labelled = table.labelled(kind, before=seq, age=_MAX_AGE, most=_USUAL_RUNS)
        if not labelled:
            return None, None
        learned, process = self.fitted.get(kind, (None, None))
        if (
            process is None
            or learned != labelled
            or 1 + table.count(kind, before=seq, most=_USUAL_RUNS) >= process.current_until
        ):
            name = None if vector is None or self.embedder is None else self.embedder.name
            process = self._fit(table, kind, seq, labelled, own, name)
        if process is None:
            return None, None
        self.fitted[kind] = labelled, process
        found = process.estimate(own, vector)
        return found.p, storage.StoredEstimate(found.raw, found.base, len(labelled), found.reasons)

    def _fit(
        self,
        table: storage.EstimateTable,
        kind: storage.RunKind,
        seq: int,
        labelled: Sequence[storage.LabelledRun],
        own: Features,
        embedder: str | None,
    ) -> GaussianProcess | None:
        """Fit the labeled runs before a run; None if none has features of this version."""
        success = dict(labelled)
        learned = [
            run for run in table.training_runs(success, embedder) if len(run.features) == own.nbytes
        ]
        if not learned:
            return None
        trusted = is_trusted(
            (run.p, run.base, success[run.seq])
            for run in learned
            if run.p is not None and run.base is not None
        )
        seen = table.seen_features(kind, before=seq, most=_USUAL_RUNS)
        return GaussianProcess(
            np.array([*(np.frombuffer(one, "<f4") for one in seen if len(one) == own.nbytes), own]),
            np.array([np.frombuffer(run.features, "<f4") for run in learned]),
            [np.frombuffer(run.vector or b"", "<f4") for run in learned],
            np.array([success[run.seq] for run in learned]),
            is_trusted=trusted,
        )


_WARN_EVERY: Final = 100  # withheld runs: a check takes a millisecond
_UNKNOWN_TRACE: Final = (
    "feedback was dropped: %s; give it after the run has ended, to a pipeline on the same file;"
    " further cases are counted, not logged"
)


class Stages:
    """The stages on one connection, for one thread at a time; each call is a short step."""

    def __init__(
        self,
        store: storage.Store,
        settings: Settings,
        embedder: Embedder | None,
        gate: Gate | None = None,
        exporter: OwnExporter | None = None,
        *,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._cache = VectorCache(
            settings.cache_size, ttl_ms=settings.cache_ttl_ms, table=store.vectors()
        )
        self._scorer = Scorer(embedder=embedder, cache=self._cache, profiles=settings.profiles)
        self._gate = gate or settings.gate
        self._embedder = embedder
        self._recalls = settings.recall
        self._withheld_count = 0
        self._warn = partial(warn_once, set(), GATE_FAILED)
        self._warned: set[str] = set()
        self.next = storage.RunPicker(store)
        self.dispatch = Dispatch(store, settings, exporter)
        self.intake = Intake(store, settings, self.dispatch.policy, self.next)
        self._reevaluation = Reevaluation(store, self.dispatch, self._gate, self._warn)
        self._retention = storage.Retention(store, settings.retention_days)
        self._judge_runner = JudgeRunner(on_ready or (lambda: None))
        self._loader: ModelLoader | None = None
        if on_ready is not None and isinstance(embedder, MiniLMEmbedder):
            self._loader = ModelLoader(embedder, on_ready)
        self._shared = None
        if settings.shared is not None and isinstance(store, storage.SqliteStore):
            self._shared = store.shared_runs()
        self._estimator = Estimator(store.estimates() if settings.estimate else None, embedder)

    def keep(self, submission: Submission) -> None:
        """Store a redacted run, or the outcome of an earlier one."""
        match submission:
            case Feedback():
                try:
                    self._reevaluation.apply(submission)
                except TraceNotFoundError as error:
                    if shield.count("feedback on no trace"):
                        logger.warning(_UNKNOWN_TRACE, error)
            case ThreadEnd():
                self.intake.end(submission)
            case _:
                self.intake.keep(submission)
                if isinstance(submission, Recorder) and submission.extractors.judge is not None:
                    thread = submission.thread_id or submission.trace_id
                    self._judge_runner.expect(thread, submission.extractors.judge)

    def score_next(self, *, at_once: bool = False) -> bool:
        """Score an unscored run, ours first, or queue or end one; False if there is none to do.

        ``at_once`` includes runs that another process may be about to score.

        Raises:
            EmbedderNotReadyError, ScoringDelayedError: If it waits for the model, or for a judge.
        """
        seq = self.next.pick(at_once=at_once)
        if seq is not None:
            self.score(seq)
            return True
        return (not self.dispatch.caught_up and self.dispatch.queue_left()) or self.intake.end()

    def import_runs(self, runs: Iterable[RecordedRun]) -> Iterator[int]:
        """Store and score runs of other tools, in their order; yield how many are done."""
        written: deque[tuple[int, ReasoningTrace, Shape]] = deque()
        taken = 0

        def kept() -> Iterator[tuple[ReasoningTrace, str]]:
            nonlocal taken
            for run in runs:
                taken += 1
                if imported := self.intake.import_run(run):
                    seq, trace = imported
                    stored = self._store.stored(seq)
                    written.append((seq, trace, shape_of(stored, trace)))
                    yield trace, stored.user_text if self._recalls else ""

        scorer, embedder = self._scorer, self._embedder
        for embedded in embed_many(lambda one: scorer.embed_with(*one), kept(), embedder):
            seq, trace, shape = written.popleft()
            self.score(seq, (trace, shape, embedded))
            yield taken - len(written)
        yield taken

    def remove_old(self) -> bool:
        removed = self._retention.remove_batch()
        if removed:
            self._cache.reload()  # it may hold their vectors
        return removed

    def score(self, seq: int, read: tuple[ReasoningTrace, Shape, Embedded] | None = None) -> None:
        """Score a run, after its judge has answered, and queue it if it clears.

        Raises as `score_next`.
        """
        started = time.perf_counter()
        try:
            to_queue = self._evaluate(seq, *(read or self._read(seq)), started)
            if to_queue is not None:
                self.dispatch.queue(seq, *to_queue)
        except (EmbedderNotReadyError, ScoringDelayedError):
            raise
        except Exception as error:
            if is_transient(error):
                raise
            logger.warning("trace %d is stored but cannot be scored", seq, exc_info=True)
            self._store.fail(seq, "not_scored", error)
        self.next.own.pop(seq, None)

    def _read(self, seq: int) -> tuple[ReasoningTrace, Shape, Embedded]:
        """Return the document, step counts and vectors of a run, after its judge has answered."""
        run = self.next.own.get(seq)
        if run is not None and len(run.trace.task.objective) <= LONG_CHARS:  # else it may be cut
            trace = run.trace
            types = frozenset(step.type for step in trace.steps)
            shape, text = replace(run.shape, types=types), extract_user_text(trace)
        else:
            stored = self._store.stored(seq)
            trace = ReasoningTrace.model_validate_json(stored.document)
            shape, text = shape_of(stored, trace), stored.user_text
        if self._judge_runner.judges:
            self._judge_runner.ask_judge(self._store, seq, trace)
        if self._loader is not None:
            self._loader.check()
            self._loader = None
        try:
            return trace, shape, self._scorer.embed_with(trace, text if self._recalls else "")
        except BaseException as error:  # a user's embedder may raise anything, a library panic
            if isinstance(error, EmbedderNotReadyError | KeyboardInterrupt) or is_transient(error):
                raise
            warn_once(self._warned, "the embedder failed: novelty is 0.5", error)
            return trace, shape, Embedded()

    def _evaluate(
        self, seq: int, trace: ReasoningTrace, shape: Shape, embedded: Embedded, started: float
    ) -> tuple[ReasoningTrace, float] | None:
        """Score a run and decide on it; return what to queue, None if it stays local."""
        vector, own = embedded.run, features(trace)
        if vector is not None and self._embedder is not None:
            self._cache.load(embedder=self._embedder.name)  # slow: outside the transaction
        p, estimate = self._estimator.estimate(seq, trace, own, vector)
        try:
            with self._store.transaction():
                if not self._store.is_recorded(seq, trace.id):
                    self.next.skip_ahead()  # another process was first
                    return None
                ending = self._ending_with_estimate(seq, own, p, estimate)
                trace = ended_trace(trace, ending)
                run = replace(
                    self._scorer.compare(trace, vector, shape),
                    ending=ending,
                    p_success=ending.p_success(p),
                )
                if embedded.task is not None and self._embedder is not None:
                    opening = quantize(embedded.task)
                    self._store.save_recall_vector(seq, self._embedder.name, opening)
                evaluation = self._decide(seq, run, trace, ending, started)
        except BaseException:
            self._cache.reload()  # this run was rolled back
            raise
        if evaluation is None:
            return None
        score, verdict = evaluation
        is_withheld = verdict.decision == "withhold"
        if is_withheld and trace.metadata.visibility != "private":
            self._withheld_count += 1  # other processes may have scored the rest
            if self._withheld_count == 1 or not self._withheld_count % _WARN_EVERY:
                warning = self._store.forwarding_warning(time.time())
                if warning is not None:
                    logger.warning("no recent run was forwarded: %s", warning)
        is_local = is_withheld or "delivery" in verdict.reason.args
        return None if is_local else (trace, score.value)

    def _ending_with_estimate(
        self, seq: int, own: Features, p: float | None, estimate: storage.StoredEstimate | None
    ) -> Ending:
        """Store the estimate of a run; return its ending, which may have had feedback meanwhile."""
        ending = before = self._store.ending(seq)
        if (table := self._estimator.table) is not None:
            table.save(seq, own.astype("<f4").tobytes(), estimate)
            ending = before.with_estimate(p)
            if ending != before:
                self._store.save_ending(seq, ending)
        return ending

    def _decide(
        self, seq: int, run: RunFacts, trace: ReasoningTrace, ending: Ending, started: float
    ) -> Evaluation | None:
        """Store the score and the decision; None if the shared log has to decide.

        A run that a fixed threshold withholds here would be withheld there, too, since more runs
        can only lower its novelty. So only runs that clear are left to the log; with a share or
        another gate, all are.
        """
        metadata, gate = trace.metadata, self._gate
        history = self._store.history(seq, metadata.task_domain)
        weights = self._scorer.weights(metadata.task_domain)
        evaluation = evaluate(run, history, weights, gate, self._warn)
        clears = evaluation.verdict.decision == "forward"
        is_private = metadata.visibility == "private"
        why = self.dispatch.blocking_reason(metadata.visibility, ending, metadata.created_at)
        took_ms = (time.perf_counter() - started) * 1000
        if self._shared is not None and not is_private:
            is_fixed = isinstance(gate, SettingsGate) and not gate.window
            if clears or not is_fixed:
                id_, similarity = (None, None) if run.nearest is None else run.nearest
                self._shared.request_decision(
                    storage.DecisionRequest(
                        seq, trace.id, 0, id_, similarity, run.embedder, run.p_success, took_ms
                    )
                )
                return None
        if clears and why is not None:
            evaluation = evaluation._replace(verdict=evaluation.verdict.with_delivery(why))
        self._store.save_evaluation(seq, evaluation, took_ms=took_ms, p_success=run.p_success)
        if self._shared is not None:
            self._shared.mark(seq, is_local=is_private)
        return evaluation
