"""The ending of a run, its score, and the gate: every decision goes through `evaluate`."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Final, NamedTuple

from kp_middleware.core.formula import (
    Nearest,
    Score,
    Shape,
    Signals,
    Weights,
    combine,
    fired_rules,
    measure,
)
from kp_middleware.core.gates import (
    Decision,
    Gate,
    GateHistory,
    Reason,
    ReasonCode,
    SettingsGate,
)

TOLD: Final = frozenset({"extracted", "feedback", "verdict"})  # not the agent's own word

_UNKNOWN_SUCCESS: Final = 0.5
_UNSAID_CONFIDENCE: Final = 0.8
_LEAST_CALM: Final = 0.01


def known_success(success: bool, source: str | None) -> bool | None:  # noqa: FBT001 - an outcome
    """Return whether a run did its task; None where that is only assumed.

    >>> known_success(True, "assumed"), known_success(True, "said"), known_success(False, None)
    (None, True, False)
    """
    return None if success and source in {"assumed", None} else success


def default_confidence(*, success: bool) -> float:
    """Return the confidence assumed if the agent gives none: 0.8, or 0.2 after a failure."""
    return 0.8 if success else 0.2


class Ending(NamedTuple):
    """The ending of a run, as far as it is known, and its source."""

    success: bool
    confidence: float
    success_source: str = "assumed"
    confidence_source: str = "assumed"

    @property
    def is_confirmed(self) -> bool:
        """True if somebody or something else than the agent told that it succeeded."""
        return self.success and self.success_source in TOLD

    def extracted(self, success: bool, confidence: float) -> "Ending":  # noqa: FBT001 - an outcome
        """Return it as it was extracted, unless somebody has said how the run ended."""
        if self.success_source != "assumed":
            return self
        ending = self._replace(success=success, success_source="extracted")
        if self.confidence_source == "said":
            return ending
        return ending._replace(confidence=confidence, confidence_source="extracted")

    def estimated(self, p: float | None) -> "Ending":
        """Return it with an estimate as its confidence, unless somebody has said one.

        Without an estimate, one of before is as if it had not been.
        """
        if not self.success or self.is_stated:
            return self
        if p is None:
            assumed = default_confidence(success=True)
            return self._replace(confidence=assumed, confidence_source="assumed")
        return self._replace(confidence=p, confidence_source="estimated")

    @property
    def is_stated(self) -> bool:
        """True if the confidence is neither assumed nor estimated."""
        return self.confidence_source not in {"assumed", "estimated"}

    def p_success(self, estimate: float | None) -> float | None:
        """Return 1 or 0 where it is told, or where a failure is said; else the estimate."""
        if self.success_source in TOLD or (self.success_source == "said" and not self.success):
            return float(self.success)
        return estimate


@dataclass(frozen=True, slots=True)
class Run:
    """The input of an evaluation: what is known of a run.

    Attributes:
        nearest: The most similar run before it; None if there was none.
        embedder: The fingerprint of the embedder; None means nothing was compared.
        measured: Its signals of before: only the outcome is measured again. None: all four.
        p_success: The probability that the task was done, 1 or 0 where somebody told; None where
            nothing is known.
        is_stated: Whether the confidence is the agent's own, not assumed or estimated.
        key: The rank key by which it was ranked first; None: it is ranked now.
        first_ending: Success and confidence as they were known then; None: as now.
        was_chosen: Whether the gate chose it then; None where that is to be found out.
    """

    shape: Shape
    confidence: float
    success: bool
    nearest: Nearest | None = None
    embedder: str | None = None
    measured: Signals | None = None
    p_success: float | None = None
    is_stated: bool = True
    key: float | None = None
    first_ending: tuple[bool, float] | None = None
    was_chosen: bool | None = None

    @property
    def signals(self) -> Signals:
        """The four signals; only the outcome is recomputed if they were measured before."""
        similarity = None if self.nearest is None else self.nearest.similarity
        now = measure(self.shape, similarity, self.confidence, success=self.success)
        if self.measured is None:
            return now
        return replace(self.measured, outcome_confidence=now.outcome_confidence)

    def rank_key(self, weights: Weights) -> float:
        """Return the key, 0 to 1, by which a share ranks the run as it is known now: P² · calm.

        Calm is the score with complexity reversed, and no reward for recoveries: struggling is no
        merit here.
        """
        signals, rules = self.signals, fired_rules(self.shape, success=self.success)
        confidence = self.confidence if self.is_stated else _UNSAID_CONFIDENCE
        calm = (
            -weights.complexity * signals.complexity
            + weights.novelty * signals.novelty
            + weights.tool_diversity * signals.tool_diversity
            + weights.outcome_confidence * confidence
            - (0.1 if "single_tool" in rules else 0.0)
        )
        p = _UNKNOWN_SUCCESS if self.p_success is None else self.p_success
        return p * p * min(1.0, max(_LEAST_CALM, calm))


class Verdict(NamedTuple):
    """A gate's decision on a run, as it is stored.

    Attributes:
        threshold: The score that it asked for; None where a share ranked the run.
        key: The rank key by which the run was ranked first.
        bar: The rank key that a share asked for; None where none ranked it.
        credit: How many runs the share owes after this one; None of other gates.
        chosen: Whether the gate chose it first: a share also where a daily limit held it back. It
            stays where the run is decided again because more was told of it.
    """

    gate: str
    threshold: float | None
    decision: str
    reason: Reason
    key: float | None = None
    bar: float | None = None
    credit: float | None = None
    chosen: bool | None = None

    def staying(self, delivery: str) -> "Verdict":
        """Return the same verdict with the reason why the run stays local: see `DELIVERY`."""
        args = {**self.reason.args, "delivery": delivery}
        return self._replace(reason=self.reason._replace(args=args))


class Evaluation(NamedTuple):
    """The score of a run and the gate's verdict."""

    score: Score
    verdict: Verdict


def evaluate(
    run: Run,
    history: GateHistory,
    weights: Weights,
    gate: Gate,
    report: Callable[[BaseException], None] = lambda _: None,
) -> Evaluation:
    """Score a run and decide whether to forward it; ``report`` is told why a gate failed.

    Where more was told of a run since it was ranked, it is decided on by what is known now, but
    counts towards the share as it did then: those after it keep their decisions. What a share did
    not choose then does not go later, or more would go than were asked for.
    """
    score = then = score_run(run, weights)
    known = run.rank_key(weights)
    key = known if run.key is None else run.key
    if run.first_ending is not None:
        success, confidence = run.first_ending
        then = score_run(replace(run, success=success, confidence=confidence), weights)
    first = _decided(then, key, history, gate, report)
    if then is score and (known == key or first.credit is None):
        return Evaluation(score, first)
    again = _decided(score, known, history, gate, report)
    if again.bar is not None and not (first.chosen or run.was_chosen):
        again = again if again.decision == "withhold" else first
    return Evaluation(score, again._replace(key=key, credit=first.credit, chosen=first.chosen))


def score_run(run: Run, weights: Weights) -> Score:
    """Return the score of a run."""
    signals = run.signals
    rules = fired_rules(run.shape, success=run.success)
    value, adjustments = combine(signals, weights, rules)
    return Score(value, signals, weights, adjustments, run.nearest, run.embedder)


def _decided(
    score: Score,
    key: float,
    history: GateHistory,
    gate: Gate,
    report: Callable[[BaseException], None],
) -> Verdict:
    """Return the gate's verdict: withhold if it fails. What the history fails with is raised."""
    history.rank_key = key
    is_ours = isinstance(gate, SettingsGate)  # a user's is checked
    try:
        decided = gate.decide(score, history)
        reason = decided.told if is_ours else _checked(decided)
    except (Exception, SystemExit) as error:  # a user's gate may raise anything
        if (trouble := getattr(history, "trouble", None)) is not None:
            raise trouble from error
        report(error)
        reason = Reason(ReasonCode.GATE_FAILED, {"error": type(error).__name__})
        decided = Decision("withhold", reason, 1.0)
    threshold, is_ranked = float(decided.threshold), "bar" in reason.args
    return Verdict(
        gate=gate.name if is_ours else _storable(gate.name),
        threshold=None if is_ranked else threshold,
        decision=decided.decision,
        reason=reason,
        key=key,
        bar=threshold if is_ranked else None,
        credit=decided.credit,
        chosen=decided.decision == "forward" if decided.credit is None else decided.chosen,
    )


def _checked(decided: Decision) -> Reason:
    """Return the reason of a user's gate as it can be stored, if the decision can be, too."""
    if decided.decision not in {"forward", "withhold"}:
        raise ValueError(f"bad decision {decided.decision!r}")
    if not isinstance(decided.threshold, Real) or not 0 <= decided.threshold <= 1:
        raise ValueError(f"threshold must be 0 to 1, got {decided.threshold!r}")
    if isinstance(reason := decided.reason, Reason):
        json.dumps(dict(reason.args), allow_nan=False)
        return Reason(ReasonCode(reason.code), reason.args)
    return decided._replace(reason=_storable(reason)).told


def _storable(text: object) -> str:
    """Return the text without lone surrogates, which SQLite refuses."""
    return str(text).encode(errors="replace").decode()
