"""Is my threshold sensible? How many traces there are of each score."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.core.gates import exact
from kp_middleware.web.pictures._lettering import width
from kp_middleware.web.pictures._marks import SMALL, bar, inside, label, rule, told
from kp_middleware.web.pictures._markup import Markup
from kp_middleware.web.pictures._palette import BELOW, CLEARED
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._scale import Scale, ticks
from kp_middleware.web.pictures._wording import count, share

NO_SCORES: Final = "no scored runs yet: record a run, and it is here a moment after it has ended"

_TOP: Final = 46.0
_BOTTOM: Final = 186.0
_HEIGHT: Final = 208.0
_COLUMNS: Final = ("Score", "Below", "At or above")
_BY_VERDICT: Final = ("Score", "Withheld", "Cleared")


class Bin(NamedTuple):
    """The traces whose scores lie from ``low`` up to ``high``, without ``high``.

    Attributes:
        below: How many do not reach the threshold, or were withheld where none is fixed.
        above: All others.
        href: Where they are listed; None means nowhere.
    """

    low: float
    high: float
    below: int
    above: int
    href: str | None = None


def histogram(bins: Sequence[Bin], threshold: float | None) -> Picture:
    """Bars by score, the threshold's line, and how many there are on each side of it.

    Args:
        bins: Without gaps, from 0 to 1.
        threshold: None where the bar was another for each run: then there is no line.
    """
    below, above = sum(one.below for one in bins), sum(one.above for one in bins)
    if not below + above:
        return empty(NO_SCORES)
    where = (
        "cleared the bar of their own run"
        if threshold is None
        else f"at or above {exact(threshold)}"
    )
    finding = f"{count(above)} of {count(below + above)} {where} ({share(above, below + above)})"
    marks = ticks(max(one.below + one.above for one in bins))
    left = max(width(count(int(tick)), size=SMALL) for tick in marks) + 8
    across, up = Scale(0, 1, left, WIDTH - 8), Scale(0, marks[-1], _BOTTOM, _TOP)
    svg = drawing(
        _HEIGHT,
        finding,
        *_grid(marks, up, left),
        *(_bar(one, across, up) for one in bins if one.below + one.above),
        *_axis(across),
        *(() if threshold is None else _threshold(threshold, below, above, across(threshold))),
    )
    lines = (Line(_cells(one), one.href) for one in bins if one.below + one.above)
    columns = _BY_VERDICT if threshold is None else _COLUMNS
    return Picture(svg, finding, columns, tuple(lines))


def _grid(marks: Sequence[float], up: Scale, left: float) -> list[Markup]:
    lines = [rule(left, up(tick), WIDTH, up(tick)) for tick in marks[1:]]
    numbers = [
        label(count(int(tick)), left - 6, up(tick) + 4, anchor="end", kind="quiet", size=SMALL)
        for tick in marks
    ]
    return [*lines, *numbers]


def _axis(across: Scale) -> list[Markup]:
    numbers = [
        label(
            f"{tenths / 10:g}",
            across(tenths / 10),
            _BOTTOM + 16,
            anchor="middle",
            kind="quiet",
            size=SMALL,
        )
        for tenths in range(0, 11, 2)
    ]
    return [rule(across(0), _BOTTOM, WIDTH, _BOTTOM, kind="axis"), *numbers]


def _bar(one: Bin, across: Scale, up: Scale) -> Markup:
    x, wide = across(one.low) + 1, across(one.high) - across(one.low) - 2
    whole = bar(x, _TOP, wide, _BOTTOM - _TOP, colour="hit", rounded=False)  # easy to point at
    lower, upper = up(one.below), up(one.below + one.above)
    marks = [
        bar(x, lower, wide, _BOTTOM - lower, colour=BELOW),
        bar(x, upper, wide, lower - upper, colour=CLEARED),
    ]
    shown = [mark for mark, number in zip(marks, (one.below, one.above), strict=True) if number]
    return told(_spoken(one), whole, *shown, href=one.href)


def _threshold(threshold: float, below: int, above: int, x: float) -> list[Markup]:
    name = f"threshold {exact(threshold)}"
    sides = f"{count(below)} below", f"{count(above)} pass"
    marks = [
        rule(x, 22, x, _BOTTOM, kind="threshold"),
        label(name, inside(name, x, anchor="middle", bold=True), 14, anchor="middle", kind="loss"),
    ]
    right = min(x + 8, WIDTH - width(sides[1], bold=True))
    if x - width(sides[0]) > 8 and right > x + 3:
        return [
            *marks,
            label(sides[0], x - 8, 34, anchor="end", kind="quiet"),
            label(sides[1], right, 34, kind="strong"),
        ]
    if x > WIDTH / 2:
        both = f"{sides[0]}, {sides[1]}"
        return [*marks, label(both, x - 8, 34, anchor="end", kind="quiet")]
    return [*marks, label(f"{sides[0]}, {sides[1]}", x + 8, 34, kind="quiet")]


def _spoken(one: Bin) -> str:
    return f"{one.low:.2f} to {one.high:.2f}: {count(one.below + one.above)} traces"


def _cells(one: Bin) -> tuple[str, ...]:
    return f"{one.low:.2f} to {one.high:.2f}", count(one.below), count(one.above)
