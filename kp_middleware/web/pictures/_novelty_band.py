"""Is novelty drying up? The middle of each day's traces, and where most of them lie."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

from kp_middleware.web.pictures._marks import SMALL, inside, label, rule, told
from kp_middleware.web.pictures._markup import Markup, element
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._scale import Scale
from kp_middleware.web.pictures._wording import day

_NOTHING: Final = "no novelty measured yet: it needs scored runs and an embedder"
_LEFT: Final = 28.0
_TOP: Final = 22.0
_BOTTOM: Final = 176.0
_HEIGHT: Final = 198.0
_COLUMNS: Final = ("Day", "10 %", "Median", "90 %")


class Novelty(NamedTuple):
    """Of one day's traces, ``2026-11-01``: what 10, 50 and 90 % of them do not exceed."""

    day: str
    low: float
    median: float
    high: float


def novelty_band(days: Sequence[Novelty], *, memory_days: float | None = None) -> Picture:
    """A line for the median, a band from 10 to 90 %.

    Args:
        days: In order.
        memory_days: How long an earlier trace is compared with; None means not known, or always.
    """
    if not days:
        return empty(_NOTHING)
    first, last = date.fromisoformat(days[0].day), date.fromisoformat(days[-1].day)
    start = _LEFT + 6 if last > first else (_LEFT + WIDTH) / 2
    across = Scale(first.toordinal(), last.toordinal(), start, WIDTH - 6)
    up = Scale(0, 1, _BOTTOM, _TOP)
    finding = _finding(days)
    remembered = last - timedelta(days=memory_days) if memory_days is not None else None
    svg = drawing(
        _HEIGHT,
        finding,
        *_frame(up),
        _band(days, across, up),
        *(_dot(one, across, up) for one in days),
        *(_memory(across(remembered.toordinal())) if remembered and remembered > first else ()),
        *_dates(first, last),
    )
    lines = tuple(Line((one.day, *map(_two, one[1:]))) for one in days)
    return Picture(svg, finding, _COLUMNS, lines)


def _finding(days: Sequence[Novelty]) -> str:
    first, last = days[0], days[-1]
    if first == last:
        return f"Median novelty {first.median:.2f} on {day(first.day)}, the only day so far"
    return (
        f"Median novelty went from {first.median:.2f} on {day(first.day)}"
        f" to {last.median:.2f} on {day(last.day)}"
    )


def _frame(up: Scale) -> list[Markup]:
    marks = []
    for value in (0.0, 0.5, 1.0):
        marks += [
            rule(_LEFT, up(value), WIDTH, up(value), kind="grid" if value else "axis"),
            label(f"{value:g}", _LEFT - 6, up(value) + 4, anchor="end", kind="quiet", size=SMALL),
        ]
    return marks


def _band(days: Sequence[Novelty], across: Scale, up: Scale) -> Markup:
    places = [(_place(one, across), one) for one in days]
    if len(days) == 1:
        x, one = places[0]
        return rule(x, up(one.low), x, up(one.high), kind="whisker")
    edge = [(x, one.high) for x, one in places] + [(x, one.low) for x, one in reversed(places)]
    around = " ".join(f"{x:.1f},{up(value):.1f}" for x, value in edge)
    middle = " ".join(f"{x:.1f},{up(one.median):.1f}" for x, one in places)
    return element(
        "g",
        element("polygon", points=around, class_="kp-band"),
        element("polyline", points=middle, fill="none", class_="kp-curve kp-line-orange"),
    )


def _dot(one: Novelty, across: Scale, up: Scale) -> Markup:
    spoken = f"{one.day}: median {one.median:.2f}, most from {one.low:.2f} to {one.high:.2f}"
    x = _place(one, across)
    target = rule(x, _TOP, x, _BOTTOM, kind="point-at")
    return told(spoken, target, element("circle", cx=x, cy=up(one.median), r=2, class_="kp-orange"))


def _memory(x: float) -> list[Markup]:
    text = "compared back to here"
    at = inside(text, x, anchor="middle", size=SMALL)
    return [
        rule(x, _TOP - 6, x, _BOTTOM, kind="note"),
        label(text, at, _TOP - 9, anchor="middle", kind="quiet", size=SMALL),
    ]


def _dates(first: date, last: date) -> list[Markup]:
    y, words = _BOTTOM + 17, [day(one.isoformat()) for one in (first, last)]
    if first == last:
        middle = (_LEFT + WIDTH) / 2
        return [label(words[0], middle, y, anchor="middle", kind="quiet", size=SMALL)]
    return [
        label(words[0], _LEFT, y, kind="quiet", size=SMALL),
        label(words[1], WIDTH, y, anchor="end", kind="quiet", size=SMALL),
    ]


def _place(one: Novelty, across: Scale) -> float:
    return across(date.fromisoformat(one.day).toordinal())


def _two(value: float) -> str:
    return f"{value:.2f}"
