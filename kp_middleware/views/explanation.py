"""Explain a score: why it is what it is, and what would have changed the decision."""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kp_middleware.core.formula import SIGNALS, STEP_TYPES, Parts, Weights, complexity_parts
from kp_middleware.storage import Run, Scoring
from kp_middleware.views.remedies import remedy, shape_of
from kp_middleware.views.successes import estimate_in_words
from kp_middleware.views.trace import (
    applied_threshold,
    delivery_status,
    feedback_in_words,
    gate_in_words,
    other_reason,
)
from kp_middleware.views.wording import counted, cut, one_line, outcome, short_id

_QUOTED: Final = 60
_WHOSE: Final = {"assumed": "an assumed confidence", "feedback": "feedback's confidence"}


class SignalExplanation(NamedTuple):
    """One signal of a score.

    Attributes:
        amount: What it adds to the score: value times weight.
        reason: What of the run made it so.
        least: The least value that reaches the threshold while the others and the rules that fired
            stay, from 0 to 1; None where not even 1 does, or where the threshold did not decide.
        remedy: In words, what it would have to be for the other verdict; empty where the threshold
            did not decide.
    """

    signal: str
    value: float
    weight: float
    amount: float
    reason: str
    least: float | None
    remedy: str


class RuleExplanation(NamedTuple):
    """One rule that fired, and the score without it."""

    rule: str
    delta: float
    reason: str
    score_without: float


class Explanation(NamedTuple):
    """Why a run scored as it did, and what would have changed the decision.

    Attributes:
        state: ``scored``, or why there is no score.
        gate: What decided, and what it asked of this run, in words; None where nothing was decided.
        score: With the weights asked for; None where there is none.
        threshold: What it is held against, from 0 to 1; None where there is no score, or where its
            gate failed and none was asked for.
        other_reason: Why the verdict is not what the threshold alone would have made it, such as a
            daily limit; None where it is, or where another threshold is asked about.
        recorded_score: As it was scored, whatever was asked for.
        known: What the run was.
    """

    id: str
    state: str
    gate: str | None
    score: float | None
    threshold: float | None
    margin: float | None
    cleared: bool | None
    other_reason: str | None
    recorded_score: float | None
    recorded_threshold: float | None
    delivery_status: str
    known: Mapping[str, Any]
    estimate: str | None
    feedback: list[str]
    signals: list[SignalExplanation]
    rules: list[RuleExplanation]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return {
            **self._asdict(),
            "signals": [one._asdict() for one in self.signals],
            "rules": [one._asdict() for one in self.rules],
        }


def explain_score(
    run: Run, *, threshold: float | None = None, weights: Weights | None = None
) -> Explanation:
    """Explain the score of a run, against another threshold or with other weights if asked for."""
    scoring = run.scoring
    bar, why = (
        (threshold, None) if threshold is not None else (applied_threshold(run), other_reason(run))
    )
    parts = None if scoring is None else scoring.parts
    if parts is not None and weights is not None:
        parts = parts._replace(weights=weights)
    score = None if parts is None else parts.score
    margin = None if score is None or bar is None else score - bar
    signals, rules = [], []
    if scoring is not None and parts is not None:
        asked = bar if why is None else None
        signals = [_signal(run, scoring, parts, name, asked) for name in SIGNALS]
        rules = [
            RuleExplanation(*change, _rule_reason(run, change.rule), _without(parts, change.rule))
            for change in parts.changes
        ]
    return Explanation(
        id=run.id,
        state=run.state,
        gate=gate_in_words(run),
        score=score,
        threshold=None if margin is None else bar,
        margin=margin,
        cleared=None if margin is None else margin >= 0,
        other_reason=why,
        recorded_score=run.score,
        recorded_threshold=None if scoring is None else scoring.threshold,
        delivery_status=delivery_status(run),
        known={
            "steps": run.step_count,
            "kinds": _kinds_of(run),
            "tools": run.tool_count,
            "recoveries": run.recovery_count,
            "confidence": run.confidence,
            "success": run.success,
            "confidence_source": run.confidence_source,
            "success_source": run.success_source,
        },
        estimate=run.estimate and estimate_in_words(run.estimate),
        feedback=[*map(feedback_in_words, run.feedback)],
        signals=signals,
        rules=rules,
    )


def _signal(
    run: Run, scoring: Scoring, parts: Parts, name: str, threshold: float | None
) -> SignalExplanation:
    """Explain a signal; without a threshold, nothing is said of what would have changed."""
    value, weight = getattr(scoring.signals, name), getattr(parts.weights, name)
    least, told = None, ""
    if threshold is not None:
        least = parts.least(name, threshold)
        measured = scoring.embedder is not None
        told = remedy(run, parts, name, threshold, measured=measured)
    reason = _reason(run, scoring, name)
    return SignalExplanation(name, value, weight, value * weight, reason, least, told)


def _without(parts: Parts, rule: str) -> float:
    return parts._replace(rules=tuple(one for one in parts.rules if one != rule)).score


def _rule_reason(run: Run, rule: str) -> str:
    match rule:
        case "single_thought":
            return "it is one thought and nothing else: that scores 0.1, whatever the signals say"
        case "many_recoveries":
            ended = "it ended without error" if run.known_success is None else "it succeeded"
            return f"{ended} after {run.recovery_count} recoveries, which is more than 2"
        case _:
            return "all its tool calls are of one tool"


def _kinds_of(run: Run) -> list[str]:
    found = {step.type for step in run.steps}
    return [kind for kind in STEP_TYPES if kind in found]


def _reason(run: Run, scoring: Scoring, signal: str) -> str:
    steps, capped = counted(run.step_count, "step"), "; more than 1 counts as 1"
    match signal:
        case "complexity":
            kinds, parts = len(_kinds_of(run)), complexity_parts(shape_of(run))
            give = "gives" if kinds == 1 else "give"
            told = f"{kinds} of 4 kinds of step {give} {parts[0]:.3f}"
            if run.recovery_count:
                told += f", having recovered from an error {parts[1]:.3f}"
            return f"{told}, {steps} {parts[2]:.3f}{capped if math.fsum(parts) > 1 else ''}"
        case "novelty":
            return _novelty(scoring)
        case "tool_diversity":
            is_capped = 3 * run.tool_count > max(1, run.step_count)
            tools = counted(run.tool_count, "different tool")
            return f"{tools} in {steps}, times 3{capped if is_capped else ''}"
        case _:
            whose = _WHOSE.get(run.confidence_source or "", "the agent's confidence")
            confidence = f"{whose} of {run.confidence:.3f}"
            if run.success:
                return f"{confidence}; outcome: {outcome(run.known_success)}"
            return f"0.3 of {confidence}, because it failed"


def _novelty(scoring: Scoring) -> str:
    if scoring.embedder is None:
        return "it was not measured, for want of a model: 0.5 is assumed"
    if scoring.nearest_similarity is None:
        return "there was nothing to compare with: 0.5 is assumed"
    similarity = f"{scoring.nearest_similarity:.3f}"
    if scoring.nearest_id is None:
        return f"the nearest earlier run was {similarity} like it, and is removed since"
    told = scoring.nearest_objective
    objective = "another host's" if told is None else cut(one_line(told), _QUOTED)
    return f"{similarity} like {short_id(scoring.nearest_id)}, the nearest before it: {objective}"
