"""Explain a score, and what would change the decision; compare two runs."""

import math
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.core import formula
from kp_middleware.storage import Run, Scoring, StepRecord
from kp_middleware.views import trace
from kp_middleware.views.wording import counted, cut, one_line, outcome, short_id, zero_or_one

__all__ = ["Explanation", "Pair", "aligned", "compared", "explain_score", "remedy", "shape_of"]

_NOISE: Final = 1e-9  # smaller differences are rounding errors
_SOURCES: Final = {
    "said": " (from the agent)",
    "extracted": " (extracted from its result)",
    "feedback": " (from feedback)",
    "verdict": " (from the imported verdict)",
    "estimated": " (estimated)",
    "assumed": " (assumed)",
}
_RULES: Final = {
    "single_thought": "a run of a single thought always scores 0.1",
    "many_recoveries": "{ended} after {recoveries} recoveries, more than 2",
    "single_tool": "the run used only one tool",
}
_KNOWN: Final = {
    "tools": "tool_count",
    "recoveries": "recovery_count",
    **{name: name for name in ("confidence", "success", "confidence_source", "success_source")},
}
_NO_THRESHOLD: Final = ("gate_failed", "daily_limit", "in_share", "below_share", "tied_with_share")


class SignalExplanation(NamedTuple):
    signal: str
    value: float
    weight: float
    amount: float
    reason: str
    least: float | None  # reaches the threshold, all else equal; None if none, or it did not decide
    remedy: str


class RuleExplanation(NamedTuple):
    rule: str
    delta: float
    reason: str
    score_without: float


class Explanation(NamedTuple):
    """Why a run scored as it did, and what would have changed the decision."""

    run: Run
    score: float | None
    threshold: float | None
    margin: float | None
    cleared: bool | None
    other_reason: str | None  # why the threshold alone did not decide
    signals: list[SignalExplanation]
    rules: list[RuleExplanation]

    def as_json(self) -> dict[str, Any]:
        run, view = self.run, trace.view_trace(self.run)
        return {
            "id": run.id,
            "state": run.state,
            "gate": view.gate,
            **dict(zip(self._fields[1:6], self[1:6], strict=True)),
            "recorded_score": run.score,
            "recorded_threshold": getattr(run.scoring, "threshold", None),
            "delivery_status": view.delivery_status,
            "known": {"steps": run.step_count, "kinds": _kinds_of(run)}
            | {name: getattr(run, field) for name, field in _KNOWN.items()},
            "estimate": view.estimate or None,
            "feedback": [*view.feedback],
            "signals": [signal._asdict() for signal in self.signals],
            "rules": [rule._asdict() for rule in self.rules],
        }


def explain_score(
    run: Run, *, threshold: float | None = None, weights: formula.Weights | None = None
) -> Explanation:
    scoring, other_reason = run.scoring, None
    if threshold is None:
        threshold = trace.applied_threshold(run)
        forwarded = scoring is not None and scoring.decision == "forward"
        is_overruled = run.reason_code == "custom" and trace.is_cleared(run) != forwarded
        other_reason = run.reason if is_overruled or run.reason_code in _NO_THRESHOLD else None
    if scoring is None:
        return Explanation(run, None, None, None, None, other_reason, [], [])
    parts = scoring.parts._replace(weights=weights or scoring.weights)
    margin = None if threshold is None else parts.score - threshold
    signals = []
    for name in formula.SIGNALS:
        value, weight = getattr(scoring.signals, name), getattr(parts.weights, name)
        least, fix = None, ""
        if threshold is not None and other_reason is None:
            least = parts.min_signal(name, threshold)
            fix = remedy(parts, name, threshold)
        reason = _reason(run, scoring, name)
        signals.append(SignalExplanation(name, value, weight, value * weight, reason, least, fix))
    ended = "the run ended without an error" if run.known_success is None else "the run succeeded"
    rules = []
    for rule, delta in parts.adjustments:
        reason = _RULES[rule].format(ended=ended, recoveries=run.recovery_count)
        rest = parts._replace(rules=tuple(other for other in parts.rules if other != rule))
        rules.append(RuleExplanation(rule, delta, reason, rest.score))
    cleared = None if margin is None else margin >= 0
    return Explanation(run, parts.score, threshold, margin, cleared, other_reason, signals, rules)


def _kinds_of(run: Run) -> list[str]:
    return [kind for kind in formula.STEP_TYPES if any(step.type == kind for step in run.steps)]


def _reason(run: Run, scoring: Scoring, signal: str) -> str:
    steps, capped = counted(run.step_count, "step"), ", capped at 1"
    match signal:
        case "complexity":
            kinds, parts = len(_kinds_of(run)), formula.complexity_parts(shape_of(run))
            give = "gives" if kinds == 1 else "give"
            words = f"{kinds} of 4 kinds of step {give} {parts[0]:.3f}"
            if run.recovery_count:
                words += f", error recovery {parts[1]:.3f}"
            return f"{words}, {steps} {parts[2]:.3f}{capped if math.fsum(parts) > 1 else ''}"
        case "novelty":
            return _novelty(scoring)
        case "tool_diversity":
            is_capped = formula.PER_TOOL * run.tool_count > max(1, run.step_count)
            tools = counted(run.tool_count, "distinct tool")
            return f"{tools} / {steps} × {formula.PER_TOOL}{capped if is_capped else ''}"
        case _:
            source = _SOURCES.get(run.confidence_source or "", "")
            confidence = f"confidence {run.confidence:.3f}{source}"
            if run.success:
                return f"{confidence}; outcome: {outcome(run.known_success)}"
            return f"the run failed: {formula.AFTER_FAILURE} × {confidence}"


def _novelty(scoring: Scoring) -> str:
    if scoring.embedder is None:
        return f"not measured without an embedding model: {formula.UNKNOWN_NOVELTY} is assumed"
    if scoring.nearest_similarity is None:
        return f"no earlier run to compare with: {formula.UNKNOWN_NOVELTY} is assumed"
    similarity = f"{scoring.nearest_similarity:.3f}"
    if scoring.nearest_id is None:
        return f"{similarity} similar to the nearest earlier run, since removed"
    nearest = scoring.nearest_objective
    objective = "another host's" if nearest is None else cut(one_line(nearest), 60)
    earlier = short_id(scoring.nearest_id)
    return f"{similarity} similar to {earlier}, the nearest earlier run: {objective}"


def remedy(parts: formula.ScoreParts, signal: str, threshold: float) -> str:
    """Name the value of one signal that would have changed the decision."""
    cleared = parts.score >= threshold
    limit = parts.with_signal(signal, 0.0 if cleared else 1.0).score
    if (limit >= threshold) == cleared:
        return f"not enough by itself: at {'least' if cleared else 'most'} {limit:.3f}"
    least = math.ceil((parts.min_signal(signal, threshold) or 0.0) * 1000 - _NOISE) / 1000
    words = f"at most {least - 0.001:.3f}" if cleared else f"{least:.3f}"
    return f"{words} instead of {getattr(parts.signals, signal):.3f}"


def shape_of(run: Run) -> formula.Shape:
    types = frozenset(step.type for step in run.steps)
    return formula.Shape(run.step_count, types, run.tool_count, run.recovery_count)


_FACTS: Final = (
    *("id", "state", "domain", "started_at", "duration_ms", "model", "success", "confidence"),
    *("step_count", "tool_count", "recovery_count", "gate", "threshold", "objective"),
)


Pair: TypeAlias = tuple[StepRecord | None, StepRecord | None]
"""A step of the left run and the same of the right one; None where only the other has it."""


class Contribution(NamedTuple):
    """The contribution of a signal or rule to each score, or the scores; None without one."""

    part: str
    left: float | None
    right: float | None
    difference: float | None
    left_working: str
    right_working: str


class Comparison(NamedTuple):
    """The facts of two runs by name, None if unknown, their scores, and their aligned steps."""

    left: dict[str, Any]
    right: dict[str, Any]
    scores: list[Contribution]
    steps: list[Pair]

    def as_json(self) -> dict[str, Any]:
        parts, pairs = [row._asdict() for row in self.scores], [*map(_pair_as_json, self.steps)]
        return self._asdict() | {"scores": parts, "steps": pairs}


def _pair_as_json(pair: Pair) -> dict[str, Any]:
    left, right = (None if step is None else step.number for step in pair)
    place = "right" if left is None else "left" if right is None else "same"
    step = pair[0] or pair[1]
    facts = {"type": step.type, "tool": step.tool} if step else {}
    return {"place": place, "left": left, "right": right, **facts}


def compared(left: Run, right: Run) -> Comparison:
    ours, theirs = ({line.part: line for line in trace.arithmetic(run)} for run in (left, right))
    scores = []
    for name in sorted({**ours, **theirs}, key=lambda name: name == "score"):  # the score is last
        a, b = ours.get(name), theirs.get(name)
        amounts = a and a.amount, b and b.amount
        difference = (amounts[1] or 0.0) - (amounts[0] or 0.0) if ours and theirs else None
        workings = a.working if a else "", b.working if b else ""
        scores.append(Contribution(name, *amounts, difference, *workings))
    return Comparison(_facts(left), _facts(right), scores, aligned(left.steps, right.steps))


def _facts(run: Run) -> dict[str, Any]:
    return (
        {name: getattr(run, name, None) for name in _FACTS}
        | {"state": trace.listed_state(run), "success": zero_or_one(run.known_success)}
        | {name: getattr(run.scoring, name, None) for name in ("gate", "threshold")}
    )


def aligned(left: Sequence[StepRecord], right: Sequence[StepRecord]) -> list[Pair]:
    ours, theirs = ([(step.type, step.tool) for step in steps] for steps in (left, right))
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    pairs: list[Pair] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(left[a:b], right[c:d], strict=True)
        else:
            pairs += [*((step, None) for step in left[a:b]), *((None, step) for step in right[c:d])]
    return pairs
