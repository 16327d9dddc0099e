"""Evaluation of runs: the outcome, the score, and the gate's verdict; `evaluate` does it all."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Final, NamedTuple

from kp_middleware.core import formula, gates

__all__ = ["EXTERNAL_SOURCES", "Ending", "Evaluation", "RunFacts", "Verdict", "default_confidence",
           "evaluate", "known_success", "score_run"]  # fmt: skip

EXTERNAL_SOURCES: Final = frozenset({"extracted", "feedback", "verdict"})  # not the agent itself

_DEFAULT_CONFIDENCE: Final = 0.8
_OF_VERDICT: Final = ("gate", "threshold", "decision", "bar", "credit", "chosen")


def known_success(
    success: bool,  # noqa: FBT001 - an outcome
    source: str | None,
) -> bool | None:
    """Return whether a run succeeded; None if that is only assumed."""
    return None if source in {"assumed", None} else success


def default_confidence(*, success: bool) -> float:
    """Return the confidence assumed if the agent gives none: 0.8, or 0.2 after a failure."""
    return _DEFAULT_CONFIDENCE if success else 0.2


class Ending(NamedTuple):
    """The success and confidence of a run, with the source of each."""

    success: bool
    confidence: float
    success_source: str = "assumed"
    confidence_source: str = "assumed"

    @property
    def is_confirmed(self) -> bool:
        """True if a source other than the agent reported success."""
        return self.success and self.success_source in EXTERNAL_SOURCES

    def with_extracted(self, success: bool, confidence: float) -> "Ending":  # noqa: FBT001 - an outcome
        """Return the ending with an extracted outcome, unless one was reported."""
        if self.success_source != "assumed":
            return self
        is_said = self.confidence_source == "said"
        return self.reported(success, None if is_said else confidence, "extracted")

    def reported(self, success: bool | None, confidence: float | None, source: str) -> "Ending":  # noqa: FBT001 - an outcome
        """Return the ending after a report, in which None means not stated.

        A success without a confidence replaces one that nobody stated, and that of an extractor
        that was wrong.
        """
        ending = self
        if success is not None:
            ending = ending._replace(success=success, success_source=source)
        if confidence is not None:
            return ending._replace(confidence=confidence, confidence_source=source)
        replaced = {"assumed", "estimated"}
        if self.success_source == "extracted" and ending.success != self.success:
            replaced.add("extracted")
        default = default_confidence(success=ending.success)
        stays = success is None or default == self.confidence
        if stays or self.confidence_source not in replaced:
            return ending
        return ending._replace(confidence=default, confidence_source="assumed")

    def with_estimate(self, p: float | None) -> "Ending":
        """Return the ending with an estimated confidence, unless one was reported.

        None reverts an earlier estimate to the default.
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
        """Return 1 or 0 if confirmed, 0 for a reported failure, otherwise the estimate."""
        source = self.success_source
        if source in EXTERNAL_SOURCES or (source == "said" and not self.success):
            return float(self.success)
        return estimate


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run that decide its score and verdict."""

    shape: formula.Shape
    ending: Ending
    nearest: formula.Nearest | None = None  # the most similar earlier run
    embedder: str | None = None  # its fingerprint; None if nothing was compared
    measured: formula.Signals | None = None  # the earlier ones, if only the outcome changed
    p_success: float | None = None  # the probability, 1 or 0 if confirmed; None if unknown
    key: float | None = None  # the rank key of the first ranking; None if this is the first
    first_ending: Ending | None = None  # at the first ranking; None if unchanged
    was_chosen: bool | None = None  # by the gate at the first ranking; None to recompute it

    @property
    def signals(self) -> formula.Signals:
        """The four signals; if they were measured earlier, only the outcome is measured again."""
        similarity = None if self.nearest is None else self.nearest.similarity
        success, confidence, *_ = self.ending
        now = formula.measure(self.shape, similarity, confidence, success=success)
        if self.measured is None:
            return now
        return replace(self.measured, outcome_confidence=now.outcome_confidence)

    def rank_key(self, weights: formula.Weights) -> float:
        """Return the key, 0 to 1, by which a share ranks the run: P² · calm.

        Calm is the score with complexity negated and no bonus for recoveries: a run that struggled
        should not rank higher. Of a single thought, it is a tenth.
        """
        ending, signals = self.ending, self.signals
        rules = formula.fired_rules(self.shape, success=ending.success)
        confidence = ending.confidence if ending.is_stated else _DEFAULT_CONFIDENCE
        calm = (
            -weights.complexity * signals.complexity
            + weights.novelty * signals.novelty
            + weights.tool_diversity * signals.tool_diversity
            + weights.outcome_confidence * confidence
            - (0.1 if "single_tool" in rules else 0.0)
        ) * (0.1 if "single_thought" in rules else 1.0)
        p = 0.5 if self.p_success is None else self.p_success
        return p * p * min(1.0, max(0.01, calm))


class Verdict(NamedTuple):
    """A gate's decision on a run, as stored."""

    gate: str
    threshold: float | None  # the score required; None where a share ranked the run
    decision: str
    reason: gates.Reason
    key: float | None = None  # the rank key of the first ranking
    bar: float | None = None  # the rank key required by a share; None if none ranked the run
    credit: float | None = None  # the runs that the share owes after this run; None for other gates
    chosen: bool | None = None  # by the gate at first, also if a daily limit withheld it; stays

    def with_delivery(self, delivery: str) -> "Verdict":
        """Return the verdict with the reason why the run is not sent, a key of `DELIVERY`."""
        args = {**self.reason.args, "delivery": delivery}
        return self._replace(reason=self.reason._replace(args=args))


class Evaluation(NamedTuple):
    """The score of a run and the gate's verdict."""

    score: formula.Score
    verdict: Verdict

    def as_columns(self) -> dict[str, Any]:
        """Return the values of the columns that the file and the shared log have in common."""
        near, (code, args) = self.score.nearest, self.verdict.reason
        return {
            **{name: getattr(self.verdict, name) for name in _OF_VERDICT},
            "rank_key": self.verdict.key,
            "reason_code": code,
            "reason_args": json.dumps(dict(args), ensure_ascii=False),
            "score": self.score.value,
            "rules": json.dumps([adjustment._asdict() for adjustment in self.score.adjustments]),
            "embedder": self.score.embedder,
            "nearest": near and near.id,
            "nearest_similarity": near and near.similarity,
        }


def evaluate(
    run: RunFacts,
    history: gates.GateHistory,
    weights: formula.Weights,
    gate: gates.Gate,
    report: Callable[[BaseException], None] = lambda _: None,
) -> Evaluation:
    """Score a run and decide whether to forward it; pass a failing gate's exception to ``report``.

    A run that is reevaluated after feedback is decided on by its present ending, but counts toward
    the share as at first, which keeps the decisions on later runs. A run that the share did not
    choose at first is not forwarded later: that would exceed the share.
    """
    score = first_score = score_run(run, weights)
    current_key = run.rank_key(weights)
    key = current_key if run.key is None else run.key
    if run.first_ending is not None:
        first_score = score_run(replace(run, ending=run.first_ending), weights)
    first = _decide(first_score, key, history, gate, report)
    if first_score is score and (current_key == key or first.credit is None):
        return Evaluation(score, first)
    current = _decide(score, current_key, history, gate, report)
    if current.bar is not None and not (first.chosen or run.was_chosen):
        current = current if current.decision == "withhold" else first
    return Evaluation(score, current._replace(key=key, credit=first.credit, chosen=first.chosen))


def score_run(run: RunFacts, weights: formula.Weights) -> formula.Score:
    """Return the score of a run."""
    signals = run.signals
    rules = formula.fired_rules(run.shape, success=run.ending.success)
    value, adjustments = formula.combine(signals, weights, rules)
    return formula.Score(value, signals, weights, adjustments, run.nearest, run.embedder)


def _decide(
    score: formula.Score,
    key: float,
    history: gates.GateHistory,
    gate: gates.Gate,
    report: Callable[[BaseException], None],
) -> Verdict:
    """Return the gate's verdict, withhold if it fails; raise an error of reading the history."""
    history.rank_key = key
    is_ours = isinstance(gate, gates.SettingsGate)  # custom gates are validated
    try:
        decision = gate.decide(score, history)
        reason = decision.structured_reason if is_ours else _valid_reason(decision)
    except (Exception, SystemExit) as error:  # a custom gate may raise anything
        if (read_error := getattr(history, "read_error", None)) is not None:
            raise read_error from error
        report(error)
        reason = gates.Reason(gates.ReasonCode.GATE_FAILED, {"error": type(error).__name__})
        decision = gates.Decision("withhold", reason, 1.0)
    threshold, is_ranked = float(decision.threshold), "bar" in reason.args
    return Verdict(
        gate=str(gate.name),
        threshold=None if is_ranked else threshold,
        decision=decision.decision,
        reason=reason,
        key=key,
        bar=threshold if is_ranked else None,
        credit=decision.credit,
        chosen=decision.decision == "forward" if decision.credit is None else decision.chosen,
    )


def _valid_reason(decision: gates.Decision) -> gates.Reason:
    """Validate a custom gate's decision; return its reason in a form that can be stored."""
    if decision.decision not in {"forward", "withhold"}:
        raise ValueError(f"decision must be forward or withhold, got {decision.decision!r}")
    if not isinstance(decision.threshold, Real) or not 0 <= decision.threshold <= 1:
        raise ValueError(f"threshold must be 0 to 1, got {decision.threshold!r}")
    reason = decision.structured_reason
    json.dumps(dict(reason.args), allow_nan=False)
    return gates.Reason(gates.ReasonCode(reason.code), reason.args)
