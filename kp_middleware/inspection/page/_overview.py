"""The overview: every picture of the file, and the traces that just made it or just missed."""

from collections.abc import Iterator, Sequence

from kp_middleware.inspection.page._card import card, linked, picture_card
from kp_middleware.inspection.page._links import Links
from kp_middleware.inspection.page._questions import (
    domains_picture,
    funnel_picture,
    map_picture,
    scores_picture,
    what_if_picture,
)
from kp_middleware.inspection.pictures import (
    NO_SCORES,
    Markup,
    Novelty,
    Removed,
    ToolCalls,
    count,
    element,
    novelty_band,
    removals,
    tool_bars,
)
from kp_middleware.storage import Funnel, Overview, Row, ScoreSlices


def overview_html(overview: Overview, links: Links, *, memory_days: float | None = None) -> Markup:
    """All pictures of a file.

    Args:
        overview: What the file says.
        links: Where things lead.
        memory_days: How long an earlier trace is compared with, where that is known and limited.
    """
    scores = overview.scores
    novelty = novelty_band((*map(Novelty._make, overview.novelty),), memory_days=memory_days)
    mapped = map_picture(overview.points, scores.domains, links)
    columns = (
        (
            picture_card("Scores", scores_picture(scores, links)),
            picture_card("What became of them", funnel_picture(overview.funnel, links)),
            just_missed(overview.missed, links),
        ),
        (
            picture_card("What if the threshold were another", what_if_picture(scores, links)),
            *_domains(scores, links),
            picture_card("Tools", tool_bars([*_tools(overview, links)])),
        ),
        (
            picture_card("Novelty", novelty, note="Line: median; band: 10 to 90 %."),
            picture_card("Map", mapped, note="Near is alike; larger ones cleared."),
            picture_card(
                "Removed before sending", removals((*map(Removed._make, overview.removals),))
            ),
        ),
    )
    return element(
        "div",
        _totals(overview.funnel, scores.above, scores.threshold),
        element("div", *(element("div", *column) for column in columns), class_="kp-columns"),
    )


def just_missed(missed: Sequence[Row], links: Links) -> Markup:
    """The traces nearest to the threshold on either side, with the line between."""
    if not missed:
        return card("Just made it, just missed", lead=f"{NO_SCORES[:1].upper()}{NO_SCORES[1:]}.")
    last_above = sum(_reached(row) for row in missed) - 1
    rows = (
        element(
            "tr",
            element("td", linked(_asked(row), links.trace(row["id"]))),
            element("td", f"{row['score']:.3f}", class_="kp-number"),
            element("td", _margin(row), class_="kp-number"),
            class_="kp-line" if place == last_above and place < len(missed) - 1 else None,
        )
        for place, row in enumerate(missed)
    )
    heads = (
        element("th", "Objective", scope="col"),
        element("th", "Score", scope="col", class_="kp-number"),
        element("th", "Margin", scope="col", class_="kp-number"),
    )
    return card(
        "Just made it, just missed",
        element(
            "table",
            element("thead", element("tr", *heads)),
            element("tbody", *rows),
        ),
        lead="The traces nearest to the threshold; the red line is between its two sides.",
    )


def _domains(scores: ScoreSlices, links: Links) -> Iterator[Markup]:
    if len(scores.domains) > 1:
        yield picture_card("Scores by domain", domains_picture(scores, links))


def _tools(overview: Overview, links: Links) -> Iterator[ToolCalls]:
    for use in overview.tools:
        yield ToolCalls(*use, links.tool(use.tool))


def _totals(found: Funnel, above: int, threshold: float | None) -> Markup:
    lost = found.blocked + found.rejected
    reached = "at or above the threshold" if threshold is None else f"at or above {threshold:g}"
    numbers = (
        ("recorded", found.recorded, None),
        (reached, above, None),
        ("sent", found.sent, None),
        ("waiting to be sent", found.waiting, None),
        ("blocked or rejected", lost, "kp-loss" if lost else None),
    )
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", count(number)), class_=kind)
            for name, number, kind in numbers
        ),
        class_="kp-totals",
    )


def _reached(row: Row) -> bool:
    return bool(row["score"] >= row["threshold"])


def _asked(row: Row) -> str:
    return str(row["objective"])[:100]


def _margin(row: Row) -> str:
    """With its sign, and never 0 for what just missed."""
    margin = row["score"] - row["threshold"]
    return f"{margin:+.3f}".replace("-", "−")
