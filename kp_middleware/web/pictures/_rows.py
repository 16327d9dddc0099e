"""Bars that lie, each beneath its own line of text: no label ever meets another, however long."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.web.pictures._lettering import shortened, width
from kp_middleware.web.pictures._marks import SMALL, bar, label, told
from kp_middleware.web.pictures._markup import Markup
from kp_middleware.web.pictures._picture import WIDTH
from kp_middleware.web.pictures._scale import Scale

ROW: Final = 38.0
"""From one row to the next."""

_BAR: Final = 12.0
_LEAST: Final = 1.5


class Part(NamedTuple):
    """A piece of a bar, in the units of its scale."""

    low: float
    high: float
    colour: str


class BarRow(NamedTuple):
    """One bar with what is said about it.

    Attributes:
        name: On the left.
        amount: On the right; never cut.
        parts: From left to right.
        working: Before the amount, quiet; left out where there is no room.
        href: Where it leads; None means nowhere.
    """

    name: str
    amount: str
    parts: tuple[Part, ...] = ()
    working: str = ""
    href: str | None = None


def bar_rows(rows: Sequence[BarRow], scale: Scale, top: float = 0.0) -> list[Markup]:
    """The rows, each `ROW` high, from ``top`` on."""
    return [_row(row, scale, top + ROW * place) for place, row in enumerate(rows)]


def _row(row: BarRow, scale: Scale, top: float) -> Markup:
    base = top + 13
    used = width(row.amount, bold=True) + 10
    working = width(row.working, size=SMALL) + 10 if row.working else 0.0
    if width(row.name) + working + used > WIDTH:
        working = 0.0
    marks = [
        label(shortened(row.name, WIDTH - used - working), 0, base),
        label(row.amount, WIDTH, base, anchor="end", kind="strong"),
        bar(0, top + 19, WIDTH, _BAR, colour="track"),
    ]
    if working:
        marks.append(label(row.working, WIDTH - used, base, anchor="end", kind="quiet", size=SMALL))
    marks += [_part(part, scale, top + 19) for part in row.parts if part.low != part.high]
    spoken = " ".join(text for text in (row.name, row.working, row.amount) if text)
    return told(spoken, *marks, href=row.href)


def _part(part: Part, scale: Scale, top: float) -> Markup:
    left, right = sorted((scale(part.low), scale(part.high)))
    return bar(left, top, max(right - left, _LEAST), _BAR, colour=part.colour)
