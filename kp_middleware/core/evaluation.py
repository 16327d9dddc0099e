"""Score a run and apply the gate. Every decision goes through `evaluate`."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import NamedTuple

from kp_middleware.core.formula import (
    Nearest,
    Score,
    Shape,
    Signals,
    Weights,
    combine,
    fired_rules,
    measure,
    outcome_confidence,
)
from kp_middleware.core.gates import Decision, Gate, GateHistory, Reason, ReasonCode


@dataclass(frozen=True, slots=True)
class Run:
    """The input of an evaluation: what is known of a run.

    Attributes:
        shape: Its steps.
        confidence: The agent's own, from 0 to 1.
        success: Whether the task was done.
        nearest: The most similar run before it; None if there was none.
        embedder: The fingerprint of the embedder; None means nothing was compared.
        measured: Its signals as they were measured before: only the outcome is measured again. None
            measures all four.
    """

    shape: Shape
    confidence: float
    success: bool
    nearest: Nearest | None = None
    embedder: str | None = None
    measured: Signals | None = None

    def ended(self, *, success: bool, confidence: float) -> "Run":
        """Return the same run with another outcome."""
        return replace(self, success=success, confidence=confidence)

    @property
    def signals(self) -> Signals:
        """The four signals; only the outcome is recomputed if they were measured before."""
        if self.measured is None:
            return measure(
                self.shape,
                similarity=None if self.nearest is None else self.nearest.similarity,
                confidence=self.confidence,
                success=self.success,
            )
        outcome = outcome_confidence(self.confidence, success=self.success)
        return replace(self.measured, outcome_confidence=outcome)


class Verdict(NamedTuple):
    """A gate's decision on a score, as it is stored.

    Attributes:
        gate: Its name, with its setting.
        threshold: The score that it asked for.
        decision: ``forward`` or ``withhold``.
        reason: Why.
    """

    gate: str
    threshold: float
    decision: str
    reason: Reason

    def staying(self, delivery: str) -> "Verdict":
        """Return the same verdict with the reason why the run stays local: see `DELIVERY`."""
        args = {**self.reason.args, "delivery": delivery}
        return self._replace(reason=self.reason._replace(args=args))


class Evaluation(NamedTuple):
    """The score of a run and the gate's verdict."""

    score: Score
    verdict: Verdict


class Terms(NamedTuple):
    """The settings of an evaluation.

    Attributes:
        weights: Of the run's domain.
        gate: Decides.
        report: Is told why a gate failed to decide: the run stays.
    """

    weights: Weights
    gate: Gate
    report: Callable[[BaseException], None] = lambda _: None


def evaluate(run: Run, history: GateHistory, settings: Terms) -> Evaluation:
    """Score a run and decide whether to forward it.

    Args:
        run: What was measured of it.
        history: The decisions before it.
        settings: Weights and gate.
    """
    score = score_run(run, settings.weights)
    return Evaluation(score, decide(score, history, settings))


def score_run(run: Run, weights: Weights) -> Score:
    """Return the score of a run."""
    signals = run.signals
    rules = fired_rules(run.shape, success=run.success)
    value, adjustments = combine(signals, weights, rules)
    return Score(value, signals, weights, adjustments, run.nearest, run.embedder)


def decide(score: Score, history: GateHistory, settings: Terms) -> Verdict:
    """Return the gate's verdict; a run is withheld if its gate fails.

    Raises:
        Exception: What the history failed with: that is not the gate's fault, and may pass.
    """
    gate = settings.gate
    try:
        decided = _checked(gate.decide(score, history))
    except (Exception, SystemExit) as error:  # a user's gate may raise anything
        if (trouble := getattr(history, "trouble", None)) is not None:
            raise trouble from error
        settings.report(error)
        failed = Reason(ReasonCode.GATE_FAILED, {"error": type(error).__name__})
        decided = Decision("withhold", failed, 1.0)
    return Verdict(_storable(gate.name), decided.threshold, decided.decision, decided.told)


def _checked(decided: Decision) -> Decision:
    if decided.decision not in {"forward", "withhold"}:
        raise ValueError(f"{decided.decision!r} is no decision")
    if not isinstance(decided.threshold, Real) or not 0 <= decided.threshold <= 1:
        raise ValueError(f"a threshold is from 0 to 1, this is {decided.threshold!r}")
    return Decision(decided.decision, _checked_reason(decided.reason), float(decided.threshold))


def _checked_reason(reason: object) -> str | Reason:
    if not isinstance(reason, Reason):
        return _storable(reason)
    json.dumps(dict(reason.args), allow_nan=False)
    return Reason(ReasonCode(reason.code), reason.args)


def _storable(text: object) -> str:
    """Return the text without lone surrogates, which SQLite refuses."""
    return str(text).encode(errors="replace").decode()
