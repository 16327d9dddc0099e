"""Explain a score: why it is what it is, and what would have changed the decision."""

import math
from typing import Any, Final, NamedTuple

from kp_middleware.core.alternatives import Case, Facts
from kp_middleware.core.formula import (
    SIGNALS,
    STEP_TYPES,
    Adjustment,
    Parts,
    Shape,
    Weights,
    complexity_parts,
)
from kp_middleware.storage import Run, Scoring
from kp_middleware.views.remedies import remedy
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
    """One signal.

    Attributes:
        signal: Its name.
        value: From 0 to 1.
        weight: What it counts, from 0 to 1.
        amount: What it adds to the score: value times weight.
        reason: What of the run made it so.
        least: The least value that reaches the threshold while the others and the rules that fired
            stay, from 0 to 1; None where not even 1 does, or where the threshold did not decide.
        remedy: In words, what it would have to be for the other verdict, with rules that fire anew;
            empty where the threshold did not decide.
    """

    signal: str
    value: float
    weight: float
    amount: float
    reason: str
    least: float | None
    remedy: str


class RuleExplanation(NamedTuple):
    """One rule that fired.

    Attributes:
        rule: Its name.
        delta: What it adds to the score.
        reason: Why it fired.
        score_without: What the score would be if it had not, from 0 to 1.
    """

    rule: str
    delta: float
    reason: str
    score_without: float


class RunFacts(NamedTuple):
    """What a score depends on, as far as it is known without one."""

    steps: int
    kinds: list[str]
    tools: int
    recoveries: int
    confidence: float
    success: bool
    confidence_source: str | None
    success_source: str | None


class Explanation(NamedTuple):
    """Why a run scored as it did, and what would have changed the decision.

    Attributes:
        id: Of the trace.
        state: ``scored``, or why there is no score.
        score: From 0 to 1, with the weights asked for; None where there is none.
        gate: What decided, and what it asked of this run, in words; None where nothing was decided.
        threshold: What it is held against, from 0 to 1; None where there is no score, or where its
            gate failed and none was asked for.
        enough: The least score that is certain to be good enough for it, or was; None as threshold.
        margin: Score minus threshold.
        cleared: Whether the score is good enough for the threshold: of those that are only as good
            as the bar of a share, some are not.
        other_reason: Why the verdict is not what the threshold alone would have made it, such as a
            daily limit; None where it is, or where another threshold is asked about.
        recorded_score: As it was scored, whatever was asked for.
        recorded_threshold: The one that decided.
        delivery_status: Where the trace is, and why.
        known: What the run was.
        estimate: What was estimated of its success, in words; None where nothing was.
        feedback: What was learned of the run after its end, in words.
        signals: The four; none without a score.
        rules: Those that fired, in order.
    """

    id: str
    state: str
    gate: str | None
    score: float | None
    threshold: float | None
    enough: float | None
    margin: float | None
    cleared: bool | None
    other_reason: str | None
    recorded_score: float | None
    recorded_threshold: float | None
    delivery_status: str
    known: RunFacts
    estimate: str | None
    feedback: list[str]
    signals: list[SignalExplanation]
    rules: list[RuleExplanation]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return {
            **self._asdict(),
            "known": self.known._asdict(),
            "signals": [one._asdict() for one in self.signals],
            "rules": [one._asdict() for one in self.rules],
        }


def explain_score(
    run: Run, *, threshold: float | None = None, weights: Weights | None = None
) -> Explanation:
    """Explain the score of a run.

    Args:
        run: The run.
        threshold: To hold it against; None means the one that decided.
        weights: To score it with; None means those it was scored with.
    """
    scoring = run.scoring
    unscored = Explanation(
        id=run.id,
        state=run.state,
        gate=gate_in_words(run),
        score=None,
        threshold=None,
        enough=None,
        margin=None,
        cleared=None,
        other_reason=None,
        recorded_score=run.score,
        recorded_threshold=None if scoring is None else scoring.threshold,
        delivery_status=delivery_status(run),
        known=_known(run),
        estimate=run.estimate and estimate_in_words(run.estimate),
        feedback=[*map(feedback_in_words, run.feedback)],
        signals=[],
        rules=[],
    )
    if scoring is None:
        return unscored
    parts = scoring.parts if weights is None else scoring.parts._replace(weights=weights)
    explanation = unscored._replace(
        score=parts.score, rules=[_rule(run, parts, change) for change in parts.changes]
    )
    if threshold is not None:
        return _held_against(threshold, explanation, run, scoring, parts, threshold)
    return _judged(explanation, run, scoring, parts)


def _judged(explanation: Explanation, run: Run, scoring: Scoring, parts: Parts) -> Explanation:
    """Hold it against the gate that decided."""
    bar, why = applied_threshold(run), other_reason(run)
    if bar is None or why is not None:
        signals = [_signal(run, scoring, parts, name) for name in SIGNALS]
        explanation = explanation._replace(other_reason=why, signals=signals)
        if bar is None:
            return explanation
        margin = parts.score - bar
        return explanation._replace(threshold=bar, enough=bar, margin=margin, cleared=margin >= 0)
    return _held_against(bar, explanation, run, scoring, parts, bar)


def _held_against(
    threshold: float,
    explanation: Explanation,
    run: Run,
    scoring: Scoring,
    parts: Parts,
    least: float,
) -> Explanation:
    return explanation._replace(
        threshold=threshold,
        enough=least,
        margin=parts.score - threshold,
        cleared=parts.score >= least,
        signals=[_with_remedy(run, scoring, parts, name, least) for name in SIGNALS],
    )


def _rule(run: Run, parts: Parts, change: Adjustment) -> RuleExplanation:
    others = tuple(rule for rule in parts.rules if rule != change.rule)
    without = parts._replace(rules=others).score
    return RuleExplanation(*change, _rule_reason(run, change.rule), without)


def _signal(run: Run, scoring: Scoring, parts: Parts, name: str) -> SignalExplanation:
    value, weight = getattr(scoring.signals, name), getattr(parts.weights, name)
    reason = _reason(run, scoring, name)
    return SignalExplanation(name, value, weight, value * weight, reason, None, "")


def _with_remedy(
    run: Run, scoring: Scoring, parts: Parts, name: str, threshold: float
) -> SignalExplanation:
    case = Case(_facts_of(run, scoring), parts, threshold, name)
    told = remedy(case, measured=scoring.embedder is not None)
    least = parts.least(name, threshold)
    return _signal(run, scoring, parts, name)._replace(least=least, remedy=told)


def _known(run: Run) -> RunFacts:
    return RunFacts(
        steps=run.step_count,
        kinds=_kinds_of(run),
        tools=run.tool_count,
        recoveries=run.recovery_count,
        confidence=run.confidence,
        success=run.success,
        confidence_source=run.confidence_source,
        success_source=run.success_source,
    )


def _facts_of(run: Run, scoring: Scoring) -> Facts:
    """Return everything that the score of a run depends on."""
    return Facts(
        kinds=frozenset(_kinds_of(run)),
        steps=run.step_count,
        tools=run.tool_count,
        recoveries=run.recovery_count,
        novelty=scoring.signals.novelty,
        confidence=run.confidence,
        success=run.success,
    )


def _rule_reason(run: Run, rule: str) -> str:
    """Say why this rule fired."""
    match rule:
        case "single_thought":
            return "it is one thought and nothing else: that scores 0.1, whatever the signals say"
        case "many_recoveries":
            ended = "it ended without error" if run.known_success is None else "it succeeded"
            return f"{ended} after {run.recovery_count} recoveries, which is more than 2"
        case _:
            return "all its tool calls are of one tool"


def _kinds_of(run: Run) -> list[str]:
    """Return the types of step that the run has, in the protocol's order."""
    found = {step.type for step in run.steps}
    return [kind for kind in STEP_TYPES if kind in found]


def _shape_of(run: Run) -> Shape:
    types = frozenset(step.type for step in run.steps)
    return Shape(run.step_count, types, run.tool_count, run.recovery_count)


def _reason(run: Run, scoring: Scoring, signal: str) -> str:
    """Say why this signal has its value."""
    match signal:
        case "complexity":
            return _complexity(run)
        case "novelty":
            return _novelty(scoring)
        case "tool_diversity":
            return _tool_diversity(run)
        case _:
            return _outcome_confidence(run)


def _complexity(run: Run) -> str:
    kinds, of_kinds = len(_kinds_of(run)), complexity_parts(_shape_of(run))
    give = "gives" if kinds == 1 else "give"
    parts = [f"{kinds} of 4 kinds of step {give} {of_kinds.types:.3f}"]
    if run.recovery_count:
        parts.append(f"having recovered from an error {of_kinds.recovered:.3f}")
    parts.append(f"{counted(run.step_count, 'step')} {of_kinds.steps:.3f}")
    capped = "; more than 1 counts as 1" if math.fsum(of_kinds) > 1 else ""
    return ", ".join(parts) + capped


def _novelty(scoring: Scoring) -> str:
    if scoring.embedder is None:
        return "it was not measured, for want of a model: 0.5 is assumed"
    if scoring.nearest_similarity is None:
        return "there was nothing to compare with: 0.5 is assumed"
    similarity = f"{scoring.nearest_similarity:.3f}"
    if scoring.nearest_id is None or scoring.nearest_objective is None:
        return f"the nearest earlier run was {similarity} like it, and is removed since"
    objective = cut(one_line(scoring.nearest_objective), _QUOTED)
    return f"{similarity} like {short_id(scoring.nearest_id)}, the nearest before it: {objective}"


def _tool_diversity(run: Run) -> str:
    tools, steps = counted(run.tool_count, "different tool"), counted(run.step_count, "step")
    capped = "; more than 1 counts as 1" if 3 * run.tool_count > max(1, run.step_count) else ""
    return f"{tools} in {steps}, times 3{capped}"


def _outcome_confidence(run: Run) -> str:
    whose = _WHOSE.get(run.confidence_source or "", "the agent's confidence")
    confidence = f"{whose} of {run.confidence:.3f}"
    if run.success:
        return f"{confidence}; outcome: {outcome(run.known_success)}"
    return f"0.3 of {confidence}, because it failed"
