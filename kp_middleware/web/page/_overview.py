"""The overview: every picture of the file, and the traces that just made it or just missed."""

from collections.abc import Iterator, Sequence
from typing import Final

from kp_middleware.core.gates import exact
from kp_middleware.storage import Funnel, Overview, Row, ScoreSlices
from kp_middleware.web.page._card import card, linked, picture_card
from kp_middleware.web.page._links import Links
from kp_middleware.web.page._notice import notice
from kp_middleware.web.page._objective import titled
from kp_middleware.web.page._questions import (
    domains_picture,
    funnel_picture,
    map_picture,
    private_note,
    scores_picture,
    what_if_picture,
)
from kp_middleware.web.pictures import (
    NO_SCORES,
    AllTools,
    Markup,
    Novelty,
    Picture,
    Removed,
    ToolCalls,
    count,
    element,
    novelty_band,
    removals,
    tool_bars,
)

_MOST_DIGITS: Final = 6
_NOVELTY_NOTE: Final = "Line: median; band: 10 to 90 %. At most the 90 days up to the newest run."


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
            picture_card(
                "What if the threshold were another",
                what_if_picture(scores, links),
                note=private_note(scores),
            ),
            *_domains(scores, links),
            picture_card("Tools", _tools_picture(overview, links)),
        ),
        (
            picture_card("Novelty", novelty, note=_NOVELTY_NOTE),
            picture_card("Map", mapped, note="Near is alike; larger ones cleared."),
            picture_card("Removed before sending", _removals_picture(overview)),
        ),
    )
    return element(
        "div",
        notice(overview.last) if overview.last.is_dry else "",
        _totals(overview.funnel, scores.above, scores.threshold),
        element("div", *(element("div", *column) for column in columns), class_="kp-columns"),
    )


def just_missed(missed: Sequence[Row], links: Links) -> Markup:
    """The traces nearest to the threshold of their day on either side, with the line between."""
    if not missed:
        return card("Just made it, just missed", lead=f"{NO_SCORES[:1].upper()}{NO_SCORES[1:]}.")
    last_above = sum(_reached(row) for row in missed) - 1
    rows = (
        element(
            "tr",
            element("td", linked(_asked(row), links.trace(row["id"]))),
            *(element("td", number, class_="kp-number") for number in _score_and_margin(row)),
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
        lead="The traces nearest to their threshold; the red line is between its two sides.",
    )


def _domains(scores: ScoreSlices, links: Links) -> Iterator[Markup]:
    if len(scores.domains) > 1:
        yield picture_card("Scores by domain", domains_picture(scores, links))


def _tools_picture(overview: Overview, links: Links) -> Picture:
    tools = [ToolCalls(*use, links.tool(use.tool) if use.calls else None) for use in overview.tools]
    return tool_bars(tools, AllTools(*overview.tool_totals))


def _removals_picture(overview: Overview) -> Picture:
    if overview.removed_earlier:
        nothing = (
            "nothing had to be removed in the 12 weeks up to the newest run; before, something"
        )
    elif overview.funnel.queued:
        nothing = "nothing had to be removed from what is sent"
    else:
        nothing = "nothing was to be sent yet; what redaction takes out of it is counted here"
    return removals((*map(Removed._make, overview.removals),), nothing=nothing)


def _totals(found: Funnel, above: int, threshold: float | None) -> Markup:
    lost = found.blocked + found.rejected
    reached = "cleared" if threshold is None else f"at or above {exact(threshold)}"
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
    return titled(str(row["objective"]), 100)


def _score_and_margin(row: Row) -> tuple[str, str]:
    """With as many digits as tell the score and the threshold apart: 3 to 6."""
    score, threshold = row["score"], row["threshold"]
    margin, digits = score - threshold, 3
    while score != threshold and digits < _MOST_DIGITS and not _differ(score, threshold, digits):
        digits += 1
    return f"{score:.{digits}f}", f"{margin:+.{digits}f}".replace("-", "−")


def _differ(score: float, threshold: float, digits: int) -> bool:
    """Both as they are written and in the margin, which is rounded by itself."""
    written = f"{score:.{digits}f}" != f"{threshold:.{digits}f}"
    return written and round(score - threshold, digits) != 0
