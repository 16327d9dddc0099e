"""A picture in its frame: what it shows in words, the drawing, and the same as a table."""

import re
from collections.abc import Sequence
from typing import Final

from kp_middleware.web.pictures import Line, Markup, Picture, element, joined

_NUMBER: Final = re.compile(r"(?:[<>+−±]?[\d,.]+(?:\s(?:%|ms|s|min \d+\ss))?)?")


def picture_card(title: str, picture: Picture, *, note: str = "") -> Markup:
    """One picture, also for who cannot see it; where there is none, why.

    Args:
        title: The question it answers, or what it shows.
        picture: The drawing.
        note: How to read it, where there is something to read.
    """
    said = f"{picture.finding}. {note}" if picture.svg else _sentence(picture.finding)
    return element(
        "figure",
        element("h2", title),
        element("figcaption", said.strip()),
        picture.svg,
        _more(title, picture),
        class_="kp-card",
    )


def card(title: str, *content: str, lead: str = "") -> Markup:
    """Anything else in the same frame."""
    return element(
        "section",
        element("h2", title),
        element("p", lead, class_="kp-lead") if lead else "",
        *content,
        class_="kp-card",
    )


def table(columns: Sequence[str], lines: Sequence[Line]) -> Markup:
    """Rows of text; the first cell leads where its row leads, numbers stand to the right."""
    numeric = [
        place > 0 and all(_NUMBER.fullmatch(line.cells[place]) for line in lines)
        for place in range(len(columns))
    ]
    kinds = ["kp-number" if is_number else None for is_number in numeric]
    heads = (
        element("th", name, scope="col", class_=kind)
        for name, kind in zip(columns, kinds, strict=True)
    )
    return element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *(_row(line, kinds) for line in lines)),
    )


def wide_table(title: str, picture: Picture) -> Markup:
    """The numbers of a picture; what has no room is reached with the keys, too."""
    shown = table(picture.columns, picture.lines)
    return element("div", shown, class_="kp-wide", tabindex="0", role="region", aria_label=title)


def linked(text: str, href: str | None) -> Markup:
    """A text that leads somewhere, if it does; it cannot turn what stands around it."""
    shown = element("bdi", text)
    return shown if href is None else element("a", shown, href=href)


def _row(line: Line, kinds: Sequence[str | None]) -> Markup:
    first, *others = line.cells
    cells = [linked(first, line.href), *(element("bdi", cell) for cell in others)]
    return element(
        "tr",
        *(element("td", cell, class_=kind) for cell, kind in zip(cells, kinds, strict=True)),
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _more(title: str, picture: Picture) -> Markup:
    if not picture.lines:
        return joined(())
    return element(
        "details",
        element("summary", "As a table", element("span", f": {title}", class_="kp-unseen")),
        wide_table(title, picture),
        class_="kp-more",
    )
