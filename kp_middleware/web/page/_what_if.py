"""The gate's page: what each threshold would let through."""

from typing import Final

from kp_middleware.storage import LastDecisions, ScoreSlices
from kp_middleware.views.wording import in_hundredths
from kp_middleware.web.page._card import card, picture_card, table, wide_table
from kp_middleware.web.page._links import Links
from kp_middleware.web.page._notice import notice
from kp_middleware.web.page._questions import (
    domains_picture,
    private_note,
    what_if_picture,
)
from kp_middleware.web.pictures import Line, Markup, element, share

_STEP: Final = 5
_TABLE: Final = "At each threshold"


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
                _TABLE,
                wide_table(_TABLE, picture),
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
    now = _tenth(scores) / 100 if scores.threshold is None else scores.threshold
    hundredth = round(100 * now)
    near = {max(0, hundredth - _STEP), min(100, hundredth + _STEP)}
    columns = {at / 100: [scores.of(name).reaching(at) for name in scores.domains] for at in near}
    columns[now] = [
        of.reaching(hundredth) if scores.threshold is None else of.above
        for of in map(scores.of, scores.domains)
    ]
    lines = []
    for place, name in enumerate(scores.domains):
        traces = scores.of(name).traces
        shares = (share(columns[at][place], traces) for at in sorted(columns))
        lines.append(Line((name, *shares), links.domain(name)))
    return table(("Domain", *map(in_hundredths, sorted(columns))), lines)


def _tenth(scores: ScoreSlices) -> int:
    """The highest hundredth that a tenth of all reach."""
    return next(at for at in range(100, -1, -1) if 10 * scores.reaching(at) >= scores.traces)
