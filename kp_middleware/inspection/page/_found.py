"""What a search found."""

from collections.abc import Sequence
from typing import Final

from kp_middleware.inspection.page._card import card, linked
from kp_middleware.inspection.page._links import Links
from kp_middleware.inspection.page._objective import titled
from kp_middleware.inspection.pictures import Markup, count, element, joined
from kp_middleware.storage import Row

_CELL: Final = 160
_COLUMNS: Final = (
    ("Objective", None),
    ("Found in it", "kp-roomy"),
    ("Domain", "kp-roomy kp-narrow"),
    ("Started", "kp-roomy kp-narrow"),
    ("State", "kp-roomy kp-narrow"),
    ("Score", "kp-number"),
)


def found_html(found: Sequence[Row], words: str, links: Links, *, most: int) -> Markup:
    """The traces as a table, the best match first.

    Args:
        found: As `Listing.found` gives them.
        words: What was searched for.
        links: Where things lead.
        most: How many there can be.
    """
    heads = (element("th", name, scope="col", class_=kind) for name, kind in _COLUMNS)
    rows = (_row(row, links) for row in found)
    listed = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    found_or_not = card("Found", listed if found else "", lead=_lead(len(found), words, most))
    return joined((element("h1", "Search"), found_or_not))


def _lead(number: int, words: str, most: int) -> str:
    if not words.strip():
        return "Nothing was asked for: type what objectives or results may say."
    if not number:
        return "No objective and no result says that."
    if number == most:
        return f"The {count(most)} best matches."
    return "1 trace." if number == 1 else f"{count(number)} traces, the best match first."


def _row(row: Row, links: Links) -> Markup:
    cells = (
        linked(titled(row["objective"], _CELL), links.trace(row["id"])),
        element("bdi", row["snippet"]),
        element("bdi", row["domain"]),
        row["started_at"][:16].replace("T", " "),
        row["state"],
        "" if row["score"] is None else f"{row['score']:.3f}",
    )
    return element(
        "tr",
        *(
            element("td", cell, class_=kind)
            for cell, (_, kind) in zip(cells, _COLUMNS, strict=True)
        ),
    )
