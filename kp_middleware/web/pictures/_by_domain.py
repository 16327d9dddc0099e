"""The same question for each domain: small histograms beside one another, on one scale."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.core.gates import exact
from kp_middleware.web.pictures._histogram import NO_SCORES, Bin
from kp_middleware.web.pictures._lettering import shortened, width
from kp_middleware.web.pictures._marks import SMALL, bar, label, rule, told
from kp_middleware.web.pictures._markup import Markup
from kp_middleware.web.pictures._palette import BELOW, CLEARED
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._scale import Scale
from kp_middleware.web.pictures._wording import count, share

MOST: Final = 8
"""How many domains are drawn, those with the most traces; the table has all."""

_GAP: Final = 24.0
_WIDE: Final = (WIDTH - _GAP) / 2
_HIGH: Final = 96.0
_BARS: Final = 58.0
_COLUMNS: Final = ("Domain", "Scored", "At or above", "Share")
_BY_VERDICT: Final = ("Domain", "Scored", "Cleared", "Share")


class DomainBins(NamedTuple):
    """The histogram of one domain.

    Attributes:
        colour: Of its name, as in every other picture.
        href: Where its traces are listed; None means nowhere.
    """

    domain: str
    bins: tuple[Bin, ...]
    colour: str
    href: str | None = None

    @property
    def above(self) -> int:
        """How many reach the threshold, or cleared where none is fixed."""
        return sum(one.above for one in self.bins)

    @property
    def traces(self) -> int:
        """How many there are."""
        return sum(one.below + one.above for one in self.bins)


def by_domain(domains: Sequence[DomainBins], threshold: float | None) -> Picture:
    """One small histogram for each domain, as shares of its own traces.

    Args:
        domains: Those that have scores.
        threshold: None where the bar was another for each run: then there is no line.
    """
    if not domains:
        return empty(NO_SCORES)
    drawn = domains[:MOST]
    best = max(domains, key=lambda one: one.above / one.traces)
    what = "clears its bar" if threshold is None else f"reaches {exact(threshold)}"
    often = f"{share(best.above, best.traces)} of {count(best.traces)}"
    finding = f"{best.domain} {what} most often: {often}"
    if len(domains) > MOST:
        finding += f"; the {MOST} most frequent of {len(domains)} are drawn"
    top = max((one.below + one.above) / of.traces for of in drawn for one in of.bins)
    panels = [
        _panel(one, threshold, top, place % 2 * (_WIDE + _GAP), place // 2 * _HIGH)
        for place, one in enumerate(drawn)
    ]
    svg = drawing((len(drawn) + 1) // 2 * _HIGH - 8, finding, *panels)
    lines = (Line(_cells(one), one.href) for one in domains)
    columns = _BY_VERDICT if threshold is None else _COLUMNS
    return Picture(svg, finding, columns, tuple(lines))


def _panel(
    one: DomainBins, threshold: float | None, top: float, left: float, above: float
) -> Markup:
    base = above + 22 + _BARS
    across, up = Scale(0, 1, left, left + _WIDE), Scale(0, top * one.traces, base, above + 24)
    amount = share(one.above, one.traces)
    where = "cleared" if threshold is None else f"at or above {exact(threshold)}"
    line = None if threshold is None else across(threshold)
    return told(
        f"{one.domain}: {count(one.above)} of {count(one.traces)} {where}",
        bar(left, above + 4, 8, 8, colour=one.colour),
        label(_name(one, amount), left + 14, above + 13, size=SMALL),
        label(amount, left + _WIDE, above + 13, anchor="end", kind="strong"),
        *(mark for each in one.bins for mark in _bars(each, across, up)),
        rule(left, base, left + _WIDE, base, kind="axis"),
        *([] if line is None else [rule(line, above + 22, line, base, kind="threshold")]),
        href=one.href,
    )


def _name(one: DomainBins, amount: str) -> str:
    return shortened(one.domain, _WIDE - 18 - width(amount, bold=True), size=SMALL)


def _bars(one: Bin, across: Scale, up: Scale) -> list[Markup]:
    x, wide = across(one.low) + 0.5, across(one.high) - across(one.low) - 1
    lower, upper = up(one.below), up(one.below + one.above)
    marks = ((one.below, lower, up(0) - lower, BELOW), (one.above, upper, lower - upper, CLEARED))
    return [
        bar(x, y, wide, high, colour=colour, rounded=False)
        for number, y, high, colour in marks
        if number
    ]


def _cells(one: DomainBins) -> tuple[str, ...]:
    return one.domain, count(one.traces), count(one.above), share(one.above, one.traces)
