"""Why this score? What each signal and each rule adds, and the sum against the threshold."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.views.wording import distance, short_bar
from kp_middleware.web.pictures._marks import SMALL, Anchor, inside, label, rule
from kp_middleware.web.pictures._markup import Markup
from kp_middleware.web.pictures._palette import BELOW, CLEARED, LOSS, PLAIN, SIGNALS
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._rows import ROW, BarRow, Part, bar_rows
from kp_middleware.web.pictures._scale import Scale

_NOT_SCORED: Final = "no score yet"
_TOP: Final = 20.0
_TICK: Final = 14.0
_COLUMNS: Final = ("Part", "Working", "Adds")


class Term(NamedTuple):
    """What one signal or rule adds, and how that number comes about."""

    name: str
    working: str
    amount: float


def waterfall(
    terms: Sequence[Term],
    score: float | None,
    threshold: float | None,
    *,
    is_cleared: bool,
    why_not: str = "",
) -> Picture:
    """Each term where the one before it ended, then the score from zero.

    Args:
        terms: The four signals, then the rules.
        score: Their sum; None where the run was not scored.
        threshold: What it had to reach; None where its gate asked for nothing.
        is_cleared: Whether it was good enough: of equal scores, the first ones may be.
        why_not: Why there is no score, in words.
    """
    if score is None:
        return empty(f"{_NOT_SCORED}: {why_not}" if why_not else _NOT_SCORED)
    beside = "" if threshold is None else _beside(score, threshold, is_cleared=is_cleared)
    finding = f"The score is {score:.3f}"
    if threshold is not None:
        finding += f": {beside} the threshold of {short_bar(threshold)}"
    scale = Scale(0, 1, 0, WIDTH)
    total = Part(0, score, CLEARED if is_cleared else BELOW)
    rows = [*_rows(terms), BarRow("score", f"{score:.3f}", (total,), beside)]
    bottom = _TOP + ROW * len(rows)
    svg = drawing(
        bottom + 14,
        finding,
        *bar_rows(rows, scale, _TOP),
        *([] if threshold is None else _threshold(threshold, scale(threshold), len(rows))),
        *_axis(scale, bottom),
    )
    lines = (Line((row.name, row.working, row.amount)) for row in rows)
    return Picture(svg, finding, _COLUMNS, tuple(lines))


def _rows(terms: Sequence[Term]) -> list[BarRow]:
    rows, reached = [], 0.0
    for term in terms:
        before, reached = reached, reached + term.amount
        rule_colour = LOSS if term.amount < 0 else PLAIN
        part = Part(before, reached, SIGNALS.get(term.name, rule_colour))
        name = term.name.replace("_", " ")
        rows.append(BarRow(name, _signed(term.amount), (part,), term.working))
    return rows


def _signed(amount: float) -> str:
    return f"{amount:+.3f}".replace("-", "−")


def _beside(score: float, threshold: float, *, is_cleared: bool) -> str:
    if score >= threshold and not is_cleared:
        return "not above"
    return f"{distance(score - threshold)} {'above' if score >= threshold else 'below'}"


def _threshold(threshold: float, x: float, rows: int) -> list[Markup]:
    name, bottom = f"threshold {short_bar(threshold)}", _TOP + ROW * rows
    at = inside(name, x, anchor="middle", bold=True)
    return [
        label(name, at, 11, anchor="middle", kind="loss"),
        rule(x, bottom - 3, x, bottom, kind="threshold"),
        *(mark for place in range(rows) for mark in _threshold_over(x, _TOP + ROW * place + 18)),
    ]


def _threshold_over(x: float, top: float) -> list[Markup]:
    """Across the bars alone, for it never crosses a word; set off from what it crosses."""
    return [rule(x, top, x, top + _TICK, kind=kind) for kind in ("halo", "tick")]


def _axis(scale: Scale, bottom: float) -> list[Markup]:
    ends: tuple[tuple[str, float, Anchor], ...]
    ends = ("0", 0, "start"), ("0.5", 0.5, "middle"), ("1", 1, "end")
    return [
        label(text, scale(value), bottom + 11, anchor=anchor, kind="quiet", size=SMALL)
        for text, value, anchor in ends
    ]
