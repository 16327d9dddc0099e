"""The account of one score: what `explain` says, as values."""

from typing import NamedTuple

from kp_middleware.core.alternatives import Case
from kp_middleware.core.formula import SIGNALS, Adjustment, Parts, Weights
from kp_middleware.storage import Row
from kp_middleware.views._reasons import kinds_of, reason, rule_reason
from kp_middleware.views._remedies import remedy
from kp_middleware.views.feedback import feedback_in_words
from kp_middleware.views.stored import facts_of, parts_of
from kp_middleware.views.verdict import (
    bar_of,
    enough,
    gate_in_words,
    is_cleared,
    other_reason,
)
from kp_middleware.views.whereabouts import whereabouts


class SignalAccount(NamedTuple):
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


class RuleAccount(NamedTuple):
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


class Account(NamedTuple):
    """Why a trace scored as it did, and what would have changed the verdict.

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
        recorded_threshold: Of that day.
        whereabouts: Where the trace is, and why.
        known: What the run was: ``steps``, ``kinds``, ``tools``, ``recoveries``, ``confidence`` and
            ``success``.
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
    whereabouts: str
    known: Row
    feedback: list[str]
    signals: list[SignalAccount]
    rules: list[RuleAccount]

    def as_row(self) -> Row:
        """As it is printed as JSON."""
        signals = [one._asdict() for one in self.signals]
        return {**self._asdict(), "signals": signals, "rules": [r._asdict() for r in self.rules]}


def account_of(
    trace: Row, *, threshold: float | None = None, weights: Weights | None = None
) -> Account:
    """The account of a trace.

    Args:
        trace: Its row.
        threshold: To hold it against; None means that of the day.
        weights: To score it with; None means those of the day.
    """
    unscored = Account(
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
        whereabouts=whereabouts(trace),
        known=_known(trace),
        feedback=[*feedback_in_words(trace)],
        signals=[],
        rules=[],
    )
    if trace["score"] is None:
        return unscored
    parts = parts_of(trace)
    if weights is not None:
        parts = parts._replace(weights=weights)
    account = unscored._replace(
        score=parts.score, rules=[_rule(trace, parts, change) for change in parts.changes]
    )
    if threshold is not None:
        return _held_against(threshold, account, trace, parts, threshold)
    return _judged(account, trace, parts)


def _judged(account: Account, trace: Row, parts: Parts) -> Account:
    """By the gate of its day."""
    bar, why = bar_of(trace), other_reason(trace)
    if bar is None or why is not None:
        signals = [_signal(trace, parts, name) for name in SIGNALS]
        account = account._replace(other_reason=why, signals=signals)
        if bar is None:
            return account
        margin = parts.score - bar
        return account._replace(threshold=bar, enough=bar, margin=margin, cleared=margin >= 0)
    was_enough = is_cleared(trace) if parts == parts_of(trace) else parts.score >= bar
    return _held_against(bar, account, trace, parts, bar if was_enough else enough(trace))


def _held_against(
    threshold: float, account: Account, trace: Row, parts: Parts, least: float
) -> Account:
    return account._replace(
        threshold=threshold,
        enough=least,
        margin=parts.score - threshold,
        cleared=parts.score >= least,
        signals=[_with_remedy(trace, parts, name, least) for name in SIGNALS],
    )


def _rule(trace: Row, parts: Parts, change: Adjustment) -> RuleAccount:
    others = tuple(rule for rule in parts.rules if rule != change.rule)
    without = parts._replace(rules=others).score
    return RuleAccount(*change, rule_reason(trace, change.rule), without)


def _signal(trace: Row, parts: Parts, name: str) -> SignalAccount:
    value, weight = trace[name], getattr(parts.weights, name)
    return SignalAccount(name, value, weight, value * weight, reason(trace, name), None, "")


def _with_remedy(trace: Row, parts: Parts, name: str, threshold: float) -> SignalAccount:
    case = Case(facts_of(trace), parts, threshold, name)
    told = remedy(case, measured=trace["embedder"] is not None)
    least = parts.least(name, threshold)
    return _signal(trace, parts, name)._replace(least=least, remedy=told)


def _known(trace: Row) -> Row:
    return {
        "steps": trace["step_count"],
        "kinds": kinds_of(trace),
        "tools": trace["tool_count"],
        "recoveries": trace["recovery_count"],
        "confidence": trace["confidence"],
        "success": bool(trace["success"]),
    }
