"""What each colour means, in as many lines as it takes."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.web.pictures._lettering import shortened, width
from kp_middleware.web.pictures._marks import label, told
from kp_middleware.web.pictures._markup import Markup
from kp_middleware.web.pictures._picture import WIDTH

_GAP: Final = 14.0
_LINE: Final = 19.0


class Key(NamedTuple):
    """One entry of a legend.

    Attributes:
        text: What it means.
        mark: What it looks like, drawn from 0 to the right and up, 12 px high.
        href: Where it leads; None means nowhere.
        wide: How many px the mark takes.
    """

    text: str
    mark: Markup
    href: str | None = None
    wide: float = 12.0


def legend(keys: Sequence[Key], top: float) -> tuple[list[Markup], float]:
    """The entries from this height on, and the height where they end."""
    marks: list[Markup] = []
    x, y = 0.0, top + 12
    for key in keys:
        begins = key.wide + 4
        text = shortened(key.text, WIDTH - begins)
        wide = begins + width(text)
        if x and x + wide > WIDTH:
            x, y = 0.0, y + _LINE
        placed = Markup(f'<g transform="translate({x:g} {y - 4:g})">{key.mark}</g>')
        marks.append(
            told(key.text, placed, label(text, x + begins, y, kind="quiet"), href=key.href)
        )
        x += wide + _GAP
    return marks, y + 6
