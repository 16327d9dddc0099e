"""The endings of runs: judges, estimates, feedback, and decisions by what is known now."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from typing import Final, NamedTuple, Self

import numpy as np

from kp_middleware.core.evaluation import (
    Ending,
    Evaluation,
    Run,
    default_confidence,
    evaluate,
)
from kp_middleware.core.formula import Weights
from kp_middleware.core.gates import Gate
from kp_middleware.embedding import Embedder, Vector
from kp_middleware.errors import KnowledgePulseError, TraceNotFoundError
from kp_middleware.estimate import FEATURES, Features, Foretold, Known, Process, is_trusted
from kp_middleware.instants import instant
from kp_middleware.outcomes import Judge, probability
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._threads import Feedback, start_daemon
from kp_middleware.privacy import Policy
from kp_middleware.recording import shield
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    CANCELLED_BY_HAND,
    EstimateTable,
    Kind,
    KnownRun,
    PastRun,
    Store,
    StoredEstimate,
)
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

_MOST: Final = 10_000
is_judging: Final[ContextVar[bool]] = ContextVar("kp_middleware_is_judging", default=False)
"""True while a judge is asked: its own calls are not recorded, nor judged in turn."""


class JudgeNotReadyError(KnowledgePulseError):
    """The run's judge is asked: look again when it has answered."""


class _Question(NamedTuple):
    """A judge that is asked about one run, until an instant on the monotonic clock."""

    trace_id: str
    deadline: float
    answer: Future[float | None]


class Judging:
    """Asks each run's judge once, one at a time: one that hangs leaves one thread behind."""

    def __init__(self, on_answer: Callable[[], None]) -> None:
        self._on_answer = on_answer
        self.judges: dict[str, Judge] = {}
        """Those that have not been heard, by the id of their run's thread or trace."""
        self._question: _Question | None = None

    def expect(self, run: str, judge: Judge) -> None:
        """Remember the judge of a run; the oldest is dropped."""
        self.judges[run] = judge
        if len(self.judges) > _MOST:
            del self.judges[next(iter(self.judges))]

    def told(self, run: str, trace: ReasoningTrace) -> float | None:
        """Return the probability of success that the run's judge tells, or None if none does."""
        asked = self._question
        if asked is None or (asked.answer.done() and asked.trace_id != trace.id):
            asked = self._question = self._asked(self.judges[run], trace)
        if asked.trace_id == trace.id:
            if asked.answer.done():
                return asked.answer.result()
            if time.monotonic() < asked.deadline:
                raise JudgeNotReadyError("the run's judge is asked")
        shield.count("judge: no answer in time")
        return None

    def _asked(self, judge: Judge, trace: ReasoningTrace) -> _Question:
        """Ask on a thread of its own, which may be left behind."""
        answer: Future[float | None] = Future()

        def ask() -> None:
            is_judging.set(True)
            told = None
            try:
                said = judge.judge(trace)
                if isawaitable(said):
                    said = asyncio.run(asyncio.wait_for(said, judge.timeout_s))
                told = probability(said)
            except Exception as error:  # noqa: BLE001 - the user's own may raise anything
                shield.swallow("judge", error, "a judge failed, and is ignored")
            answer.set_result(told)
            self._on_answer()

        start_daemon("kp-judge", ask)
        return _Question(trace.id, time.monotonic() + judge.timeout_s, answer)


_AGE: Final = 200  # runs after which what was told of one no longer counts
_SEEN: Final = 1000  # runs that tell what is usual


class _Solved(NamedTuple):
    """A process, what it has learned from, and the width of its vectors."""

    known: Sequence[KnownRun]
    process: Process
    width: int


class Estimating:
    """Estimates whether runs did their task. Each kind of run is solved once per told run."""

    def __init__(self, table: EstimateTable, embedder: Embedder | None) -> None:
        self._table = table
        self._embedder = embedder
        self._solved: dict[Kind, _Solved] = {}

    def of(
        self, seq: int, trace: ReasoningTrace, own: Features, vector: Vector | None
    ) -> tuple[float | None, StoredEstimate | None]:
        """Return the probability of success, None where nothing is known, and what to `save`."""
        kind = Kind(trace.metadata.task_domain, trace.metadata.framework)
        known = self._table.known(kind, before=seq, age=_AGE)
        if not known:
            return None, None
        solved = self._solved.get(kind)
        if (
            solved is None
            or solved.known != known
            or not solved.process.holds_at(1 + self._table.count(kind, before=seq, most=_SEEN))
        ):
            solved = self._solve(kind, seq, known, own)
        if solved is None:
            return None, None
        self._solved[kind] = solved
        said = solved.process.estimate(own, _of_width(solved.width, vector))
        return said.p, StoredEstimate(said.raw, said.base, len(known), said.reasons)

    def save(self, seq: int, own: Features, estimate: StoredEstimate | None) -> None:
        """Store an estimate, and what it was read from; in a transaction."""
        self._table.save(seq, own.astype("<f4").tobytes(), estimate)

    def _solve(
        self, kind: Kind, seq: int, known: Sequence[KnownRun], own: Features
    ) -> _Solved | None:
        """Solve all that is known before a run; None where none of it is of this version."""
        success = dict(known)
        embedder = None if self._embedder is None else self._embedder.name
        learned = [
            (run, read)
            for run in self._table.learned(success, embedder)
            if len(read := _read(run.features)) == len(FEATURES)
        ]
        if not learned:
            return None
        trusted = is_trusted(
            Foretold(run.p, run.base, success[run.seq])
            for run, _ in learned
            if run.p is not None and run.base is not None
        )
        vectors = [None if run.vector is None else _read(run.vector) for run, _ in learned]
        width = max((len(vector) for vector in vectors if vector is not None), default=0)
        of = Known(
            np.array([read for _, read in learned]),
            np.array([_of_width(width, vector) for vector in vectors]),
            np.array([success[run.seq] for run, _ in learned]),
        )
        seen = [_read(one) for one in self._table.seen(kind, before=seq, most=_SEEN)]
        usual = np.array([*(one for one in seen if len(one) == len(own)), own])
        return _Solved(known, Process(usual, of, is_trusted=trusted), width)


def _read(numbers: bytes) -> Features:
    return np.frombuffer(numbers, dtype="<f4")


def _of_width(width: int, vector: Vector | None) -> Vector:
    """Return a vector as it is compared: like no other where there is none."""
    return np.zeros(width, np.float32) if vector is None or len(vector) != width else vector


GATE_FAILED: Final = "a run stays here, the gate failed"


def warn_once(kinds: set[str], what: str, error: BaseException) -> None:
    """Log one warning for each kind of failure, and the rest for debugging."""
    kind = f"{what}: {type(error).__name__}"
    level = logging.DEBUG if kind in kinds else logging.WARNING
    kinds.add(kind)
    logger.log(level, "%s: %s", kind, error)


class Reevaluation:
    """Evaluates stored runs again, and lets the outbox follow. Nothing is sent twice."""

    def __init__(self, store: Store, dispatch: Dispatch, gate: Gate) -> None:
        self._store = store
        self.dispatch = dispatch
        self._gate = gate
        self._warn = partial(warn_once, set(), GATE_FAILED)

    @classmethod
    def of(cls, store: Store, settings: Settings) -> Self:
        """Build one from settings alone: for a command, which has no pipeline."""
        return cls(store, Dispatch(store, settings, Policy.of(settings)), settings.gate)

    def learn(self, feedback: Feedback) -> bool:
        """Store feedback and evaluate the run again; False if it was told the same before."""
        with self._store.transaction():
            before = self._store.belief(feedback.trace_id)
            if before is None:
                raise TraceNotFoundError(f"no run has the id {feedback.trace_id[:100]!r}")
            ending, told = _ended(feedback, before.ending), (feedback.success, feedback.confidence)
            if before.last_told == told and ending[:2] == before.ending[:2]:
                return False
            given_at = instant(feedback.given_at_s)
            self._store.add_feedback(before, ending, given_at=given_at, told=told)
            leaves = before.state == "scored" and self._with_outcome(before.seq)
        if leaves:
            self.dispatch.queue_stored(before.seq)
        return True

    def evaluate(self, seq: int, run: Run, weights: Weights, before: PastRun) -> Evaluation:
        """Evaluate a stored run by today's gate, with what was decided before that run."""
        history = self._store.history(seq, before.domain, let_through_at=before.let_through_at)
        return evaluate(run, history, weights, self._gate, self._warn)

    def save(
        self, seq: int, evaluation: Evaluation, before: PastRun, p_success: float | None = None
    ) -> bool:
        """Store another evaluation in a transaction; return whether to queue it after that."""
        verdict, leaves = evaluation.verdict, False
        if before.outbox in {"sent", "sending"}:
            verdict = verdict.staying(before.outbox)
        elif (
            verdict.decision == "forward"
            and before.outbox in {None, "cancelled"}
            and before.outbox_reason != CANCELLED_BY_HAND
        ):
            ending = self._store.ending(seq)
            why = self.dispatch.blocking_reason(before.visibility, ending, before.started_at)
            leaves = why is None
            verdict = verdict if why is None else verdict.staying(why)
        told = evaluation._replace(verdict=verdict)
        self._store.save_evaluation(seq, told, p_success=p_success)
        self.dispatch.outbox.sync(seq)
        return leaves

    def _with_outcome(self, seq: int) -> bool:
        """Evaluate a scored run by its ending alone: what was measured and its weights stay.

        So does its place in the share: those after it have been ranked behind it.
        """
        before = self._store.scored(seq)
        if before is None or (stored := before.score) is None:
            return False
        ending = before.ending
        run = Run(
            before.shape,
            ending.confidence,
            ending.success,
            stored.nearest,
            stored.embedder,
            measured=stored.signals,
            p_success=ending.p_success(before.p_success),
            is_stated=ending.is_stated,
            key=before.rank_key,
            was_chosen=None if before.chosen is None else bool(before.chosen),
        )
        score, verdict = self.evaluate(seq, run, stored.weights, before)
        verdict = verdict._replace(key=None, credit=None, chosen=None)
        return self.save(seq, Evaluation(score, verdict), before)


def _ended(feedback: Feedback, before: Ending) -> Ending:
    """Return the ending as it is known after the feedback."""
    ending = before
    if feedback.success is not None:
        ending = ending._replace(success=feedback.success, success_source="feedback")
    if feedback.confidence is not None:
        return ending._replace(confidence=feedback.confidence, confidence_source="feedback")
    unsaid = {"assumed", "estimated"} if feedback.success is not None else {"assumed"}
    confidence = default_confidence(success=ending.success)
    if before.confidence_source not in unsaid or confidence == before.confidence:
        return ending
    return ending._replace(confidence=confidence, confidence_source="assumed")
