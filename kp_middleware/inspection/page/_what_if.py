"""The gate's page: what each threshold would let through."""

from typing import Final

from kp_middleware.inspection.page._card import card, picture_card, table
from kp_middleware.inspection.page._links import Links
from kp_middleware.inspection.page._notice import notice
from kp_middleware.inspection.page._questions import (
    domains_picture,
    private_note,
    what_if_picture,
)
from kp_middleware.inspection.pictures import Line, Markup, element, share
from kp_middleware.storage import LastDecisions, ScoreSlices

_STEP: Final = 5


def what_if_html(scores: ScoreSlices, links: Links, last: LastDecisions) -> Markup:
    """How the gate decided last, the curve, each threshold in a table, and the domains."""
    return element("div", notice(last), _pictures(scores, links))


def _pictures(scores: ScoreSlices, links: Links) -> Markup:
    picture = what_if_picture(scores, links)
    if not picture.svg:
        return picture_card("What if the threshold were another", picture)
    columns = (
        (
            picture_card(
                "What if the threshold were another",
                picture._replace(lines=()),
                note=private_note(scores),
            ),
            card("By domain", _by_domain(scores.leaving, links), lead="What reaches it of each."),
            picture_card("Scores by domain", domains_picture(scores, links)),
        ),
        (
            card(
                "At each threshold",
                element("div", table(picture.columns, picture.lines), class_="kp-wide"),
                lead=_lead(scores),
            ),
        ),
    )
    return element(
        "div", *(element("div", *column) for column in columns), class_="kp-columns kp-two"
    )


def _lead(scores: ScoreSlices) -> str:
    """How to read the table."""
    lead = "From the scores as they were given; nothing is scored anew."
    return lead if scores.threshold is None else f"{lead} → is the threshold in force."


def _by_domain(scores: ScoreSlices, links: Links) -> Markup:
    """At the threshold, or else at the bar of the best tenth, and a little on either side."""
    now = _tenth(scores) if scores.threshold is None else round(100 * scores.threshold)
    near = sorted({max(0, now - _STEP), now, min(100, now + _STEP)})
    lines = []
    for name in scores.domains:
        of = scores.of(name)
        shares = (share(of.reaching(hundredth), of.traces) for hundredth in near)
        lines.append(Line((name, *shares), links.domain(name)))
    return table(("Domain", *(f"{hundredth / 100:.2f}" for hundredth in near)), lines)


def _tenth(scores: ScoreSlices) -> int:
    """The highest hundredth that a tenth of all reach."""
    return next(at for at in range(100, -1, -1) if 10 * scores.reaching(at) >= scores.traces)
