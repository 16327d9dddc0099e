"""The sum behind a score, line by line: a pure function of a trace's row."""

from typing import NamedTuple

from kp_middleware.inspection.output.wording import short_id
from kp_middleware.storage import Row

_PARTS = ("complexity", "novelty", "tool_diversity", "outcome_confidence")


class Line(NamedTuple):
    """One line of the sum.

    Attributes:
        part: A signal, a rule, or ``score``.
        working: How the number comes about.
        amount: What it adds to the score.
    """

    part: str
    working: str
    amount: float


def arithmetic(trace: Row) -> list[Line]:
    """Each signal times its weight, each rule, and the score; empty for a trace without a score.

    The amounts before the last add up to it, but for what clamping to 0..1 takes away.
    """
    if trace["score"] is None:
        return []
    signals = [_signal(trace, part) for part in _PARTS]
    rules = [Line(rule["rule"], "rule", rule["delta"]) for rule in trace["rules"]]
    return [*signals, *rules, Line("score", _against_threshold(trace), trace["score"])]


def _signal(trace: Row, part: str) -> Line:
    value, weight = trace[part], trace[f"{part}_weight"]
    working = f"{value:.3f} × {weight:.2f}"
    if part == "novelty":
        working += f"  ({_novelty_in_words(trace)})"
    return Line(part, working, value * weight)


def _novelty_in_words(trace: Row) -> str:
    if trace["embedder"] is None:
        return "not measured: no embedder"
    if trace["nearest_similarity"] is None:
        return "nothing to compare with yet"
    nearest = short_id(trace["nearest_id"]) if trace["nearest_id"] else "a pruned trace"
    return f"{trace['nearest_similarity']:.3f} like {nearest}"


def _against_threshold(trace: Row) -> str:
    distance = trace["score"] - trace["threshold"]
    where = "reaches" if distance >= 0 else "is below"
    return f"{where} {trace['threshold']:g} by {abs(distance):.3f}"
