"""Evaluate stored runs again: what feedback and rescoring have in common."""

import logging
from functools import partial
from typing import Final, Self

from kp_middleware.core.evaluation import (
    Ending,
    Evaluation,
    Run,
    Terms,
    Verdict,
    default_confidence,
    evaluate,
)
from kp_middleware.core.formula import Weights
from kp_middleware.core.gates import Gate
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import instant
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._queue import Feedback
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.storage import CANCELLED_BY_HAND, Belief, PastRun, Store

logger = logging.getLogger("kp_middleware")


GATE_FAILED: Final = "a run stays here, the gate failed"


def warn_once(kinds: set[str], what: str, error: BaseException) -> None:
    """Log one warning for each kind of failure, and the rest for debugging."""
    kind = f"{what}: {type(error).__name__}"
    level = logging.DEBUG if kind in kinds else logging.WARNING
    kinds.add(kind)
    logger.log(level, "%s: %s", kind, error)


_LEFT: Final = ("sent", "sending")


class Reevaluation:
    """Evaluates stored runs again, and lets the outbox follow. Nothing is sent twice."""

    def __init__(
        self,
        store: Store,
        dispatch: Dispatch,
        gate: Gate,
    ) -> None:
        self._store = store
        self._dispatch = dispatch
        self._gate = gate
        self._warn = partial(warn_once, set(), GATE_FAILED)

    @classmethod
    def of(cls, store: Store, settings: Settings) -> Self:
        """Build one from settings alone: for a command, which has no pipeline."""
        dispatch = Dispatch(store, settings, Policy.of(settings))
        return cls(store, dispatch, settings.gate)

    def learn(self, feedback: Feedback) -> bool:
        """Store feedback and evaluate the run again; False if it was told the same before."""
        with self._store.transaction():
            before = self._store.belief(feedback.trace_id)
            if before is None:
                raise TraceNotFoundError(f"no run has the id {feedback.trace_id[:100]!r}")
            ending = _ended(feedback, before.ending)
            if _is_known(feedback, before, ending):
                return False
            self._store.add_feedback(
                before,
                ending,
                given_at=instant(feedback.given_at_s),
                told=(feedback.success, feedback.confidence),
            )
            leaves = before.state == "scored" and self._with_outcome(before.seq)
        if leaves:
            self.queue(before.seq)
        return True

    def evaluate(self, seq: int, run: Run, weights: Weights, before: PastRun) -> Evaluation:
        """Evaluate a stored run by today's gate, with what was decided before that run."""
        history = self._store.history(seq, before.domain, let_through_at=before.let_through_at)
        return evaluate(run, history, Terms(weights, self._gate, self._warn))

    def save(
        self,
        seq: int,
        evaluation: Evaluation,
        before: PastRun,
        p_success: float | None = None,
    ) -> bool:
        """Store another evaluation in a transaction; return whether to queue it after that."""
        verdict, leaves = self._delivered(seq, evaluation.verdict, before)
        told = evaluation._replace(verdict=verdict)
        self._store.save_evaluation(seq, told, p_success=p_success)
        self._dispatch.sync(seq)
        return leaves

    def queue(self, seq: int) -> None:
        """Queue a trace that clears now, redacted; after a crash, the next process does."""
        self._dispatch.queue_stored(seq)

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

    def _delivered(self, seq: int, verdict: Verdict, before: PastRun) -> tuple[Verdict, bool]:
        if before.outbox in _LEFT:
            return verdict.staying(before.outbox), False
        is_queued = before.outbox not in {None, "cancelled"}
        stays = is_queued or before.outbox_reason == CANCELLED_BY_HAND
        if stays or verdict.decision == "withhold":
            return verdict, False
        blocking_reason = self._dispatch.blocking_reason(
            before.visibility, self._store.ending(seq), before.started_at
        )
        return (
            (verdict, True)
            if blocking_reason is None
            else (verdict.staying(blocking_reason), False)
        )


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


def _is_known(feedback: Feedback, before: Belief, ending: Ending) -> bool:
    """Return whether the same was told last, and is what the trace says: it may be given twice."""
    is_repeated = before.last_told == (feedback.success, feedback.confidence)
    return is_repeated and ending[:2] == before.ending[:2]
