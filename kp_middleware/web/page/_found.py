"""What a search found."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.storage import Row
from kp_middleware.web.page._card import card, linked
from kp_middleware.web.page._links import Links
from kp_middleware.web.page._objective import titled
from kp_middleware.web.pictures import Markup, count, element, joined

_NOTHING_ASKED: Final = "Nothing was asked for: type what objectives or results may say."
_CELL: Final = 160
_COLUMNS: Final = (
    ("Objective", None),
    ("Found in it", "kp-roomy"),
    ("Domain", "kp-roomy"),
    ("Started", "kp-roomy kp-narrow"),
    ("State", "kp-roomy kp-narrow"),
    ("Score", "kp-number"),
)


class Extract(NamedTuple):
    """Some of what a search found.

    Attributes:
        rows: As `Listing.found` gives them, the best match first.
        skipped: How many better matches come before them.
        total: How many there are in all; beyond ``counted``, only that there are more.
        counted: How far they were counted.
        before: Where those before them are; None where there are none.
        after: Likewise those after them.
    """

    rows: Sequence[Row]
    skipped: int
    total: int
    counted: int
    before: str | None
    after: str | None


def found_html(found: Extract, words: str, links: Links) -> Markup:
    """The traces as a table, with the way to the others."""
    heads = (element("th", name, scope="col", class_=kind) for name, kind in _COLUMNS)
    rows = (_row(row, links) for row in found.rows)
    listed = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    content = (listed, _ways(found)) if found.rows else (_ways(found),)
    lead = _lead(found) if words.strip() else _NOTHING_ASKED
    return joined((element("h1", "Search"), card("Found", *content, lead=lead)))


def _lead(found: Extract) -> str:
    if not found.total:
        return "No objective and no result says that."
    if not found.rows:
        return "There are no more."
    total = count(found.total)
    if found.total > found.counted:
        total = f"more than {count(found.counted)}"
    if found.before or found.after:
        last = found.skipped + len(found.rows)
        shown = f"{count(found.skipped + 1)} to {count(last)} of {total} traces"
        return f"{shown}, the best match first."
    return "1 trace." if found.total == 1 else f"{total} traces, the best match first."


def _ways(found: Extract) -> Markup:
    ways = {"← Better matches": found.before, "More →": found.after}
    found_ways = [element("a", name, href=href) for name, href in ways.items() if href]
    if not found_ways:
        return joined(())
    return element("nav", *found_ways, aria_label="What else was found", class_="kp-pages")


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
