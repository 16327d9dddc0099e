"""The sum behind a score, line by line: a pure function of a trace's row."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from kp_middleware.core.formula import SIGNALS
from kp_middleware.storage import Row
from kp_middleware.views.verdict import bar_of, is_cleared
from kp_middleware.views.wording import distance, short_bar, short_id


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
    signals = [_signal(trace, part) for part in SIGNALS]
    rules = [Line(rule["rule"], "rule", rule["delta"]) for rule in trace["rules"]]
    return [*signals, *rules, Line("score", _against_threshold(trace), trace["score"])]


def added_up(lines: Sequence[Line]) -> list[Line]:
    """The same with amounts of three decimals that add up to the score as it is printed.

    Each rounded by itself, they may miss it by some thousandths. Where the score was clamped, they
    do not add up to it, and are rounded so.
    """
    if not lines:
        return []
    exact = [line.amount * 1000 for line in lines[:-1]]
    score = round(lines[-1].amount * 1000)
    whole = [math.floor(amount + 1e-6) for amount in exact]
    missing = score - sum(whole)
    if not 0 <= missing <= len(whole):
        whole, missing = [round(amount) for amount in exact], 0
    by_rest = sorted(range(len(whole)), key=lambda place: whole[place] - exact[place])
    for place in by_rest[:missing]:
        whole[place] += 1
    amounts = [*whole, score]
    return [line._replace(amount=each / 1000) for line, each in zip(lines, amounts, strict=True)]


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
    bar = bar_of(trace)
    if bar is None:
        return "its gate failed to decide"
    margin = trace["score"] - bar
    if margin >= 0 and not is_cleared(trace):
        return f"is no more than {short_bar(bar)}"
    return f"{'reaches' if margin >= 0 else 'is below'} {short_bar(bar)} by {distance(margin)}"
