"""What would another threshold do? The share that would reach it, at each."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kp_middleware.core.gates import exact
from kp_middleware.views.wording import in_hundredths
from kp_middleware.web.pictures._histogram import NO_SCORES
from kp_middleware.web.pictures._legend import Key, legend
from kp_middleware.web.pictures._marks import SMALL, inside, label, rule, told
from kp_middleware.web.pictures._markup import Markup, element
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._scale import Scale
from kp_middleware.web.pictures._wording import count, share

_LEFT: Final = 40.0
_TOP: Final = 30.0
_BOTTOM: Final = 216.0
_MOST: Final = 7
_SWATCH: Final = 28.0  # room for more than one of the dashes
_COLUMNS: Final = ("Threshold", "Reach it", "Share", "Against now")


class Curve(NamedTuple):
    """How many traces reach 0.00, 0.01, … 1.00.

    Attributes:
        name: A domain, or ``all``.
        colour: Its own everywhere; ``ink`` for all together.
        reaching: 101 counts, which never grow; the first is how many there are.
        now: How many are at or above today's threshold, or cleared where none is fixed.
        href: Where they are listed; None means nowhere.
    """

    name: str
    colour: str
    reaching: tuple[int, ...]
    now: int
    href: str | None = None


def what_if(curves: Sequence[Curve], threshold: float | None) -> Picture:
    """One line for all together, which comes first, and one for each domain.

    Args:
        curves: Of all together, and of domains.
        threshold: Today's; None where the bar is another for each run: then there is no line.
    """
    if not curves or not curves[0].reaching[0]:
        return empty(NO_SCORES)
    whole = curves[0]
    how = "cleared the bar of their own run" if threshold is None else f"reach {exact(threshold)}"
    of_all = f"{count(whole.now)} of {count(whole.reaching[0])}"
    finding = f"{of_all} {how} ({share(whole.now, whole.reaching[0])})"
    across, up = Scale(0, 1, _LEFT, WIDTH - 4), Scale(0, 1, _BOTTOM, _TOP)
    drawn = [(curve, _look(curve, place)) for place, curve in enumerate(curves[: _MOST + 1])]
    if len(curves) > len(drawn):
        finding += f"; the {_MOST} most frequent of {len(curves) - 1} domains are drawn"
    keys = [_key(curve, look) for curve, look in drawn]
    entries, bottom = legend(keys, _BOTTOM + 26)
    svg = drawing(
        bottom,
        finding,
        *_frame(across, up),
        *(_line(curve, look, across, up) for curve, look in reversed(drawn)),
        *(() if threshold is None else _threshold(threshold, across(threshold))),
        *entries,
    )
    columns = (*_COLUMNS, *(curve.name for curve in curves[1:]))
    return Picture(svg, finding, columns, tuple(_lines(curves, threshold)))


def _frame(across: Scale, up: Scale) -> list[Markup]:
    marks = []
    for percent in (0, 25, 50, 75, 100):
        y = up(percent / 100)
        marks += [
            rule(across(0), y, WIDTH, y, kind="grid" if percent else "axis"),
            label(f"{percent} %", _LEFT - 6, y + 4, anchor="end", kind="quiet", size=SMALL),
        ]
    for tenths in range(0, 11, 2):
        x, text = across(tenths / 10), f"{tenths / 10:g}"
        at = inside(text, x, anchor="middle", size=SMALL)
        marks.append(label(text, at, _BOTTOM + 16, anchor="middle", kind="quiet", size=SMALL))
    return marks


def _look(curve: Curve, place: int) -> str:
    """Its colour is that of its domain everywhere; its dashes are its own in this picture."""
    dashes = f" kp-dash-{place - 1}" if place > 1 else ""
    return f"kp-curve kp-line-{curve.colour}{dashes}"


def _line(curve: Curve, look: str, across: Scale, up: Scale) -> Markup:
    whole = curve.reaching[0]
    points = " ".join(
        f"{across(hundredth / 100):.1f},{up(reaching / whole):.1f}"
        for hundredth, reaching in enumerate(curve.reaching)
    )
    drawn = element("polyline", points=points, fill="none", class_=look)
    return told(_spoken(curve), drawn, href=curve.href)


def _threshold(threshold: float, x: float) -> list[Markup]:
    name = f"threshold {exact(threshold)}"
    at = inside(name, x, anchor="middle", bold=True)
    return [
        rule(x, 20, x, _BOTTOM, kind="threshold"),
        label(name, at, 14, anchor="middle", kind="loss"),
    ]


def _key(curve: Curve, look: str) -> Key:
    mark = element("path", d=f"M0 0H{_SWATCH:g}", class_=look)
    return Key(f"{curve.name} {share(curve.now, curve.reaching[0])}", mark, curve.href, _SWATCH)


def _spoken(curve: Curve) -> str:
    return f"{curve.name}: {count(curve.now)} of {count(curve.reaching[0])} now"


def _lines(curves: Sequence[Curve], threshold: float | None) -> Iterator[Line]:
    """In steps of 0.05, and today's: all with their change against now, domains with a share."""
    steps = {hundredth / 100 for hundredth in range(0, 101, 5)}
    for step in sorted(steps if threshold is None else steps | {threshold}):
        is_now = step == threshold
        reach = [curve.now if is_now else curve.reaching[round(100 * step)] for curve in curves]
        change = reach[0] - curves[0].now
        against = f"{change:+,}".replace("-", "−") if change else "±0"
        first, *others = (
            share(some, curve.reaching[0]) for some, curve in zip(reach, curves, strict=True)
        )
        name = f"→ {in_hundredths(step)}" if is_now else in_hundredths(step)
        yield Line((name, count(reach[0]), first, against, *others))
