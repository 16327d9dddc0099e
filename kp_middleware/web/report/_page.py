"""The report: everything worth a look in one page that needs nothing else."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.storage import Overview, Row
from kp_middleware.views.wording import short_id
from kp_middleware.web.page import (
    Alike,
    Extent,
    card,
    linked,
    overview_html,
    style_html,
    titled,
    trace_html,
)
from kp_middleware.web.pictures import Markup, count, element, joined

EXTENT: Final = Extent(steps=20, characters=600, body=4_000, draws_map=False)
"""How much of each trace the report has."""

_CONFINED: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
)
_CELL: Final = 160
_UNBROKEN: Final = 24


class Told(NamedTuple):
    """One trace that the report tells in full.

    Attributes:
        trace: As `History.trace` gives it.
        alike: The traces most like it.
        body: Exactly what was sent of it, or None.
    """

    trace: Row
    alike: Alike
    body: str | None


class Report(NamedTuple):
    """All that is in a report, clean.

    Attributes:
        title: The name of the file.
        remark: When it was made, of what, and whether anything was taken out.
        listed: The traces in its list, the highest score first.
        told: Those that it tells in full.
        memory_days: How long an earlier trace is compared with, where that is limited.
    """

    title: str
    remark: str
    overview: Overview
    listed: list[Row]
    told: list[Told]
    memory_days: float | None = None


class Anchors:
    """Where things in one page lead: to its own rows and traces."""

    def __init__(self, listed: Sequence[Row], told: Sequence[Told]) -> None:
        self._traces = {one.trace["id"]: f"#trace-{one.trace['seq']}" for one in told}
        self._rows: dict[str, str] = {}
        self._bins: dict[int, str] = {}
        for row in listed:
            anchor = f"#row-{row['seq']}"
            self._rows.setdefault(row["domain"], anchor)
            if row["score"] is not None:
                self._bins.setdefault(min(int(row["score"] * 20 + 1e-9), 19), anchor)

    def trace(self, trace_id: str, /) -> str | None:
        """To its own part of the page."""
        return self._traces.get(trace_id)

    def scores(self, low: float, _: float, /) -> str | None:
        """To the first row with such a score."""
        return self._bins.get(round(low * 20))

    def domain(self, name: str, /) -> str | None:
        """To the best of it."""
        return self._rows.get(name)

    def tool(self, _: str, /) -> None:
        """Nowhere: the list does not have all that used it."""

    def state(self, _: str, /) -> None:
        """Nowhere: the list does not have all that came so far."""


def report_html(report: Report) -> str:
    """The whole page, well-formed as XML, too."""
    links = Anchors(report.listed, report.told)
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_CONFINED),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="robots", content="noindex"),
            element("meta", name="referrer", content="no-referrer"),
            element("title", f"{report.title}: traces"),
            style_html(follows_dark=True),
        ),
        element("body", element("main", *_parts(report, links), class_="kp-page"), class_="kp"),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{page}\n"


def _parts(report: Report, links: Anchors) -> tuple[Markup, ...]:
    domains = report.overview.scores.domains
    head = element(
        "header",
        element("h1", "What your agents did"),
        element("p", report.remark, class_="kp-lead"),
        id="top",
    )
    return (
        head,
        overview_html(report.overview, links, memory_days=report.memory_days),
        _list(report.listed, links),
        *(_told(one, links, domains) for one in report.told),
    )


def _list(listed: Sequence[Row], links: Anchors) -> Markup:
    if not listed:
        return joined(())
    heads = (
        ("Objective", None),
        ("Domain", "kp-roomy"),
        ("Started", "kp-roomy"),
        ("State", "kp-roomy"),
    )
    columns = (*(element("th", name, scope="col", class_=kind) for name, kind in heads),)
    score = element("th", "Score", scope="col", class_="kp-number")
    rows = (_row(row, links) for row in listed)
    found = element(
        "table",
        element("thead", element("tr", *columns, score)),
        element("tbody", *rows),
    )
    lead = (
        f"{count(len(listed))} of them: the best, the newest, those nearest to the threshold, and"
        " some of each score. Those that lead somewhere are told in full below."
    )
    return element("div", card("Traces", found, lead=lead), class_="kp-section")


def _row(row: Row, links: Anchors) -> Markup:
    score = "" if row["score"] is None else f"{row['score']:.3f}"
    return element(
        "tr",
        element("td", linked(titled(row["objective"], _CELL), links.trace(row["id"]))),
        element("td", element("bdi", row["domain"]), class_=_domain_class(row["domain"])),
        element("td", row["started_at"][:16].replace("T", " "), class_="kp-roomy kp-narrow"),
        element("td", row["state"], class_="kp-roomy kp-narrow"),
        element("td", score, class_="kp-number"),
        id=f"row-{row['seq']}",
    )


def _domain_class(domain: str) -> str:
    """An ordinary name is not broken; a long one has to be."""
    return "kp-roomy kp-narrow" if len(domain) <= _UNBROKEN else "kp-roomy"


def _told(one: Told, links: Anchors, domains: Sequence[str]) -> Markup:
    told = trace_html(one.trace, one.alike, links, body=one.body, domains=domains, extent=EXTENT)
    return element(
        "section",
        element("a", "Back to the top", href="#top", class_="kp-back"),
        told,
        id=f"trace-{one.trace['seq']}",
        class_="kp-trace",
        aria_label=f"Trace {short_id(one.trace['id'])}",
    )
