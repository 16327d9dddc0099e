"""Evaluate stored runs again, after feedback or with other settings, and update the outbox."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from kp_middleware.core.evaluation import Evaluation, RunFacts, evaluate
from kp_middleware.core.formula import Weights
from kp_middleware.core.gates import Gate, SettingsGate
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import instant
from kp_middleware.pipeline._dispatch import GATE_FAILED, Dispatch, warn_once
from kp_middleware.pipeline._intake import Feedback
from kp_middleware.settings import Settings
from kp_middleware.storage import CANCELLED_BY_USER, PastRun, Store


@dataclass(frozen=True)
class Reevaluation:
    """Evaluates stored runs again and updates the outbox. Nothing is sent twice."""

    store: Store
    dispatch: Dispatch
    gate: Gate
    warn: Callable[[BaseException], None]
    uses_stored_gate: bool = False  # feedback is decided by the gate stored with the run

    @classmethod
    def from_settings(cls, store: Store, settings: Settings) -> Self:
        """Create one for a command, which has no pipeline."""
        dispatch = Dispatch(store, settings)
        warn = partial(warn_once, set(), GATE_FAILED)
        return cls(store, dispatch, settings.gate, warn, uses_stored_gate=True)

    def apply(self, feedback: Feedback) -> bool:
        """Store feedback and evaluate the run again; False if it changes nothing."""
        with self.store.transaction():
            before = self.store.outcome(feedback.trace_id)
            if before is None:
                raise TraceNotFoundError(f"no run has the id {feedback.trace_id[:100]!r}")
            given = feedback.success, feedback.confidence
            ending = before.ending.reported(*given, "feedback")
            if before.last_feedback == given and ending[:2] == before.ending[:2]:
                return False
            given_at = instant(feedback.given_at_s)
            self.store.add_feedback(before, ending, given_at=given_at, given=given)
            is_cleared = before.state == "scored" and self._with_outcome(before.seq)
        if is_cleared:
            self.dispatch.queue_stored(before.seq)
        return True

    def evaluate(self, seq: int, run: RunFacts, weights: Weights, before: PastRun) -> Evaluation:
        """Evaluate a stored run by the current gate and the decisions before that run."""
        history = self.store.history(seq, before.domain, let_through_at=before.let_through_at)
        return evaluate(run, history, weights, self.gate, self.warn)

    def save(
        self, seq: int, evaluation: Evaluation, before: PastRun, p_success: float | None = None
    ) -> bool:
        """Store a new evaluation, in a transaction; return whether to queue the run afterwards."""
        verdict, is_cleared = evaluation.verdict, False
        if before.outbox in {"sent", "sending"}:
            verdict = verdict.with_delivery(before.outbox)
        elif (
            verdict.decision == "forward"
            and before.outbox in {None, "cancelled"}
            and before.outbox_reason != CANCELLED_BY_USER
        ):
            ending = self.store.ending(seq)
            reason = self.dispatch.blocking_reason(before.visibility, ending, before.started_at)
            is_cleared = reason is None
            verdict = verdict if reason is None else verdict.with_delivery(reason)
        evaluation = evaluation._replace(verdict=verdict)
        self.store.save_evaluation(seq, evaluation, p_success=p_success)
        self.dispatch.outbox.sync(seq)
        return is_cleared

    def _with_outcome(self, seq: int) -> bool:
        """Evaluate a scored run with its new ending, but the same signals, weights and rank."""
        before = self.store.scored(seq)
        if before is None or (stored := before.score) is None:
            return False
        ending = before.ending
        run = RunFacts(
            before.shape,
            ending,
            stored.nearest,
            stored.embedder,
            measured=stored.signals,
            p_success=ending.p_success(before.p_success),
            key=before.rank_key,
            was_chosen=before.chosen,
        )
        stored_gate = SettingsGate.named(before.gate or "") if self.uses_stored_gate else None
        found = replace(self, gate=stored_gate or self.gate).evaluate(
            seq, run, stored.weights, before
        )
        verdict = found.verdict._replace(key=None, credit=None, chosen=None)
        return self.save(seq, found._replace(verdict=verdict), before)
