"""Explain a score: why it is what it is, and what would have changed the decision."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kp_middleware.core.alternatives import Case, Facts
from kp_middleware.core.formula import SIGNALS, Adjustment, Parts, Signals, Weights
from kp_middleware.storage import Row
from kp_middleware.views.remedies import remedy
from kp_middleware.views.trace import (
    applied_threshold,
    delivery_status,
    feedback_in_words,
    gate_in_words,
    is_cleared,
    least_passing_score,
    other_reason,
)
from kp_middleware.views.wording import counted, cut, one_line, short_id

_QUOTED: Final = 60
STEP_KINDS: Final = ("thought", "tool_call", "observation", "error_recovery")
"""The types of step, in the protocol's order."""


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
    confidence_source: str
    success_source: str


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
    feedback: list[str]
    signals: list[SignalExplanation]
    rules: list[RuleExplanation]

    def as_row(self) -> Row:
        """Return it as it is printed as JSON."""
        return {
            **self._asdict(),
            "known": self.known._asdict(),
            "signals": [one._asdict() for one in self.signals],
            "rules": [one._asdict() for one in self.rules],
        }


def explain_score(
    trace: Row, *, threshold: float | None = None, weights: Weights | None = None
) -> Explanation:
    """Explain the score of a run.

    Args:
        trace: Its row.
        threshold: To hold it against; None means the one that decided.
        weights: To score it with; None means those it was scored with.
    """
    unscored = Explanation(
        id=trace["id"],
        state=trace["state"],
        gate=gate_in_words(trace),
        score=None,
        threshold=None,
        enough=None,
        margin=None,
        cleared=None,
        other_reason=None,
        recorded_score=trace["score"],
        recorded_threshold=trace["threshold"],
        delivery_status=delivery_status(trace),
        known=_known(trace),
        feedback=[*feedback_in_words(trace)],
        signals=[],
        rules=[],
    )
    if trace["score"] is None:
        return unscored
    parts = _parts_of(trace)
    if weights is not None:
        parts = parts._replace(weights=weights)
    explanation = unscored._replace(
        score=parts.score, rules=[_rule(trace, parts, change) for change in parts.changes]
    )
    if threshold is not None:
        return _held_against(threshold, explanation, trace, parts, threshold)
    return _judged(explanation, trace, parts)


def _judged(explanation: Explanation, trace: Row, parts: Parts) -> Explanation:
    """Hold it against the gate that decided."""
    bar, why = applied_threshold(trace), other_reason(trace)
    if bar is None or why is not None:
        signals = [_signal(trace, parts, name) for name in SIGNALS]
        explanation = explanation._replace(other_reason=why, signals=signals)
        if bar is None:
            return explanation
        margin = parts.score - bar
        return explanation._replace(threshold=bar, enough=bar, margin=margin, cleared=margin >= 0)
    was_enough = is_cleared(trace) if parts == _parts_of(trace) else parts.score >= bar
    return _held_against(
        bar, explanation, trace, parts, bar if was_enough else least_passing_score(trace)
    )


def _held_against(
    threshold: float, explanation: Explanation, trace: Row, parts: Parts, least: float
) -> Explanation:
    return explanation._replace(
        threshold=threshold,
        enough=least,
        margin=parts.score - threshold,
        cleared=parts.score >= least,
        signals=[_with_remedy(trace, parts, name, least) for name in SIGNALS],
    )


def _rule(trace: Row, parts: Parts, change: Adjustment) -> RuleExplanation:
    others = tuple(rule for rule in parts.rules if rule != change.rule)
    without = parts._replace(rules=others).score
    return RuleExplanation(*change, _rule_reason(trace, change.rule), without)


def _signal(trace: Row, parts: Parts, name: str) -> SignalExplanation:
    value, weight = trace[name], getattr(parts.weights, name)
    return SignalExplanation(name, value, weight, value * weight, _reason(trace, name), None, "")


def _with_remedy(trace: Row, parts: Parts, name: str, threshold: float) -> SignalExplanation:
    case = Case(_facts_of(trace), parts, threshold, name)
    told = remedy(case, measured=trace["embedder"] is not None)
    least = parts.least(name, threshold)
    return _signal(trace, parts, name)._replace(least=least, remedy=told)


def _known(trace: Row) -> RunFacts:
    return RunFacts(
        steps=trace["step_count"],
        kinds=_kinds_of(trace),
        tools=trace["tool_count"],
        recoveries=trace["recovery_count"],
        confidence=trace["confidence"],
        success=bool(trace["success"]),
        confidence_source=trace["confidence_source"],
        success_source=trace["success_source"],
    )


def _parts_of(trace: Row) -> Parts:
    """Return the parts of a score as they are stored."""
    return Parts(
        Signals(*(trace[name] for name in SIGNALS)),
        Weights(*(trace[f"{name}_weight"] for name in SIGNALS)),
        tuple(rule["rule"] for rule in trace["rules"]),
    )


def _facts_of(trace: Row) -> Facts:
    """Return everything that the score of a run depends on."""
    return Facts(
        kinds=frozenset(_kinds_of(trace)),
        steps=trace["step_count"],
        tools=trace["tool_count"],
        recoveries=trace["recovery_count"],
        novelty=trace["novelty"],
        confidence=trace["confidence"],
        success=bool(trace["success"]),
    )


def _reason(trace: Row, signal: str) -> str:
    """Say why this signal has its value."""
    return _REASONS[signal](trace)


def _rule_reason(trace: Row, rule: str) -> str:
    """Say why this rule fired."""
    match rule:
        case "single_thought":
            return "it is one thought and nothing else: that scores 0.1, whatever the signals say"
        case "many_recoveries":
            return f"it succeeded after {trace['recovery_count']} recoveries, which is more than 2"
        case _:
            return "all its tool calls are of one tool"


def _kinds_of(trace: Row) -> list[str]:
    """Return the types of step that the run has, in the protocol's order."""
    found = {step["type"] for step in trace["steps"]}
    return [kind for kind in STEP_KINDS if kind in found]


def _complexity(trace: Row) -> str:
    kinds, recoveries, steps = len(_kinds_of(trace)), trace["recovery_count"], trace["step_count"]
    give = "gives" if kinds == 1 else "give"
    parts = [f"{kinds} of 4 kinds of step {give} {kinds / 8:.3f}"]
    if recoveries:
        parts.append("having recovered from an error 0.300")
    parts.append(f"{counted(steps, 'step')} {steps / 100:.3f}")
    capped = kinds / 8 + 0.3 * bool(recoveries) + steps / 100 > 1
    return ", ".join(parts) + ("; more than 1 counts as 1" if capped else "")


def _novelty(trace: Row) -> str:
    if trace["embedder"] is None:
        return "it was not measured, for want of a model: 0.5 is assumed"
    if trace["nearest_similarity"] is None:
        return "there was nothing to compare with: 0.5 is assumed"
    similarity = f"{trace['nearest_similarity']:.3f}"
    if trace["nearest_id"] is None:
        return f"the nearest earlier trace was {similarity} like it, and is removed since"
    objective = cut(one_line(trace["nearest_objective"]), _QUOTED)
    return f"{similarity} like {short_id(trace['nearest_id'])}, the nearest before it: {objective}"


def _tool_diversity(trace: Row) -> str:
    tools, steps = trace["tool_count"], trace["step_count"]
    capped = "; more than 1 counts as 1" if tools / max(1, steps) * 3 > 1 else ""
    return f"{counted(tools, 'different tool')} in {counted(steps, 'step')}, times 3{capped}"


def _outcome_confidence(trace: Row) -> str:
    whose = _WHOSE.get(trace["confidence_source"], "the agent's confidence")
    confidence = f"{whose} of {trace['confidence']:.3f}"
    if trace["success"]:
        return f"{confidence}, and success"
    return f"0.3 of {confidence}, because it failed"


_WHOSE: Final = {"assumed": "an assumed confidence", "feedback": "feedback's confidence"}
_REASONS: Final[Mapping[str, Callable[[Row], str]]] = {
    "complexity": _complexity,
    "novelty": _novelty,
    "tool_diversity": _tool_diversity,
    "outcome_confidence": _outcome_confidence,
}
