"""The account of one score: what `explain` says, as values."""

from typing import NamedTuple

from kp_middleware.inspection.explanation._alternatives import Case
from kp_middleware.inspection.explanation._facts import Facts
from kp_middleware.inspection.explanation._reasons import kinds_of, reason, rule_reason
from kp_middleware.inspection.explanation._remedies import remedy
from kp_middleware.inspection.explanation.rescoring import SIGNALS, Change, Parts
from kp_middleware.inspection.explanation.whereabouts import whereabouts
from kp_middleware.storage import Row


class SignalAccount(NamedTuple):
    """One signal.

    Attributes:
        signal: Its name.
        value: From 0 to 1.
        weight: What it counts, from 0 to 1.
        amount: What it adds to the score: value times weight.
        reason: What of the run made it so.
        least: The least value that reaches the threshold while the others and the rules that fired
            stay, from 0 to 1; None where not even 1 does.
        remedy: In words, what it would have to be for the other verdict, with rules that fire anew.
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
        threshold: What it is held against, from 0 to 1; None where there is no score.
        margin: Score minus threshold.
        cleared: Whether it reaches the threshold.
        recorded_score: As it was scored, whatever was asked for.
        recorded_threshold: Of that day.
        whereabouts: Where the trace is, and why.
        known: What the run was: ``steps``, ``kinds``, ``tools``, ``recoveries``, ``confidence`` and
            ``success``.
        signals: The four; none without a score.
        rules: Those that fired, in order.
    """

    id: str
    state: str
    score: float | None
    threshold: float | None
    margin: float | None
    cleared: bool | None
    recorded_score: float | None
    recorded_threshold: float | None
    whereabouts: str
    known: Row
    signals: list[SignalAccount]
    rules: list[RuleAccount]

    def as_row(self) -> Row:
        """As it is printed as JSON."""
        signals = [one._asdict() for one in self.signals]
        return {**self._asdict(), "signals": signals, "rules": [r._asdict() for r in self.rules]}


def account_of(
    trace: Row, *, threshold: float | None = None, weights: tuple[float, ...] | None = None
) -> Account:
    """The account of a trace.

    Args:
        trace: Its row.
        threshold: To hold it against; None means that of the day.
        weights: To score it with, in the order of `SIGNALS`; None means those of the day.
    """
    unscored = Account(
        id=trace["id"],
        state=trace["state"],
        score=None,
        threshold=None,
        margin=None,
        cleared=None,
        recorded_score=trace["score"],
        recorded_threshold=trace["threshold"],
        whereabouts=whereabouts(trace),
        known=_known(trace),
        signals=[],
        rules=[],
    )
    if trace["score"] is None:
        return unscored
    parts = Parts.of(trace)
    if weights is not None:
        parts = parts._replace(weights=weights)
    return _judged(unscored, trace, parts, trace["threshold"] if threshold is None else threshold)


def _judged(account: Account, trace: Row, parts: Parts, threshold: float) -> Account:
    return account._replace(
        score=parts.score,
        threshold=threshold,
        margin=parts.score - threshold,
        cleared=parts.score >= threshold,
        signals=[_signal(trace, parts, name, threshold) for name in SIGNALS],
        rules=[_rule(trace, parts, change) for change in parts.changes],
    )


def _rule(trace: Row, parts: Parts, change: Change) -> RuleAccount:
    others = tuple(rule for rule in parts.rules if rule != change.rule)
    without = parts._replace(rules=others).score
    return RuleAccount(*change, rule_reason(trace, change.rule), without)


def _signal(trace: Row, parts: Parts, name: str, threshold: float) -> SignalAccount:
    value, weight = trace[name], parts.weights[SIGNALS.index(name)]
    case = Case(Facts.of(trace), parts, threshold, name)
    told = remedy(case, measured=trace["embedder"] is not None)
    least = parts.least(name, threshold)
    return SignalAccount(name, value, weight, value * weight, reason(trace, name), least, told)


def _known(trace: Row) -> Row:
    return {
        "steps": trace["step_count"],
        "kinds": kinds_of(trace),
        "tools": trace["tool_count"],
        "recoveries": trace["recovery_count"],
        "confidence": trace["confidence"],
        "success": bool(trace["success"]),
    }
