"""The few marks that all pictures are made of. Their colours are classes: see the style sheet."""

from typing import Final, Literal, TypeAlias

from kp_middleware.web.pictures._lettering import SIZE, width
from kp_middleware.web.pictures._markup import Markup, element
from kp_middleware.web.pictures._picture import WIDTH

Anchor: TypeAlias = Literal["start", "middle", "end"]

SMALL: Final = 11.0
_SHIFT: Final[dict[Anchor, float]] = {"start": 0.0, "middle": 0.5, "end": 1.0}


def label(
    text: str, x: float, y: float, *, anchor: Anchor = "start", kind: str = "", size: float = SIZE
) -> Markup:
    """A text on its base line; ``kind`` is ``quiet``, ``strong`` or ``loss``."""
    return element(
        "text",
        text,
        x=x,
        y=y,
        text_anchor=None if anchor == "start" else anchor,
        class_=f"kp-{kind}" if kind else None,
        font_size=None if size == SIZE else size,
    )


def inside(text: str, x: float, *, anchor: Anchor, size: float = SIZE, bold: bool = False) -> float:
    """The place nearest to ``x`` where a text does not leave the drawing."""
    wide = width(text, size=size, bold=bold)
    left = min(max(x - wide * _SHIFT[anchor], 0.0), WIDTH - wide)
    return left + wide * _SHIFT[anchor]


def bar(
    x: float, y: float, wide: float, high: float, *, colour: str, rounded: bool = True
) -> Markup:
    """A filled rectangle, never too thin to be seen where there is something to see."""
    return element(
        "rect",
        x=x,
        y=y,
        width=max(wide, 0),
        height=max(high, 0),
        rx=2 if rounded and min(wide, high) > 4 else None,
        fill="none" if colour == "hit" else None,  # also where no style sheet is read
        class_=f"kp-{colour}",
    )


def rule(x1: float, y1: float, x2: float, y2: float, *, kind: str = "grid") -> Markup:
    """A straight line; ``kind`` is one of the style sheet, such as ``grid`` or ``threshold``."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"kp-{kind}")


def told(title: str, *marks: str, href: str | None = None) -> Markup:
    """Marks that say what they are when pointed at, and lead somewhere.

    The link is left out of the tab order: the table beneath has it, too, and a map has thousands.
    """
    titled = (element("title", title), *marks)
    if href is None:
        return element("g", *titled)
    return element("a", *titled, href=href, tabindex="-1")
