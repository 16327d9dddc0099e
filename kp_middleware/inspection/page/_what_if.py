"""The gate's page: what each threshold would let through."""

from typing import Final

from kp_middleware.inspection.page._card import card, picture_card, table
from kp_middleware.inspection.page._links import Links
from kp_middleware.inspection.page._questions import domains_picture, what_if_picture
from kp_middleware.inspection.pictures import Line, Markup, element, share
from kp_middleware.storage import ScoreSlices

_STEP: Final = 5


def what_if_html(scores: ScoreSlices, links: Links) -> Markup:
    """The curve, each threshold in a table, and the domains."""
    picture = what_if_picture(scores, links)
    if not picture.svg:
        return picture_card("What if the threshold were another", picture)
    columns = (
        (picture_card("What if the threshold were another", picture._replace(lines=())),),
        (
            card(
                "At each threshold",
                table(picture.columns, picture.lines),
                lead="From the scores as they were given; nothing is scored anew.",
            ),
        ),
        (
            card("By domain", _by_domain(scores, links), lead="What would be forwarded of each."),
            picture_card("Scores by domain", domains_picture(scores, links)),
        ),
    )
    return element("div", *(element("div", *column) for column in columns), class_="kp-columns")


def _by_domain(scores: ScoreSlices, links: Links) -> Markup:
    """At the threshold, and a little on either side."""
    now = round(100 * (scores.threshold or 0))
    near = sorted({max(0, now - _STEP), now, min(100, now + _STEP)})
    lines = []
    for name in scores.domains:
        of = scores.of(name)
        shares = (share(of.reaching(hundredth), of.traces) for hundredth in near)
        lines.append(Line((name, *shares), links.domain(name)))
    return table(("Domain", *(f"{hundredth / 100:.2f}" for hundredth in near)), lines)
