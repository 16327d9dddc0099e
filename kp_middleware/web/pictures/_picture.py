"""What every picture is: a drawing, what it shows in words, and the same as a table."""

from typing import Final, NamedTuple

from kp_middleware.web.pictures._markup import Markup, element

WIDTH: Final = 360.0
"""Of every drawing, in its own px: as wide as a phone, and stretched where there is more room."""


class Line(NamedTuple):
    """One row of the table beneath a picture.

    Attributes:
        cells: As they are read.
        href: Where the row leads; None means nowhere.
    """

    cells: tuple[str, ...]
    href: str | None = None


class Picture(NamedTuple):
    """A drawing with all that it takes to read it without eyes.

    Attributes:
        svg: The drawing; empty where there is nothing to draw, and then ``finding`` says why.
        finding: What it shows, in one sentence.
        columns: The heads of the table.
        lines: The table's rows.
    """

    svg: Markup
    finding: str
    columns: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()


def empty(finding: str) -> Picture:
    """No drawing, and why there is none."""
    return Picture(Markup(), finding)


def drawing(height: float, finding: str, *marks: str) -> Markup:
    """An SVG of the usual width with what it shows as its label."""
    return element(
        "svg",
        *marks,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=finding,
        class_="kp-picture",
    )
