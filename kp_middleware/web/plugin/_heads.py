"""What stands above each of our pages: where else to go, and a search."""

from collections.abc import Mapping
from shlex import quote

from kp_middleware.storage import Beside, Row
from kp_middleware.views.wording import short_id
from kp_middleware.web.pictures import Markup, element, joined
from kp_middleware.web.plugin._addresses import Addresses


def head(links: Addresses, *, here: str = "", words: str = "") -> Markup:
    """Of every page: the others, Datasette's tables, and a search.

    Args:
        links: Where things lead.
        here: The name of this page, which is marked.
        words: What was searched for.
    """
    ways = {
        "Overview": links.overview(),
        "The gate": links.what_if(),
        "Traces": links.traces(),
        "Outbox": links.table("outbox", _sort_desc="trace_seq"),
        "All tables, SQL": links.database(),
    }
    return _row(_ways(ways, "Pages", here=here), _search(links, words))


def trace_head(trace: Row, beside: Beside, links: Addresses) -> Markup:
    """Of one trace, which has its name below: its neighbours, its rows, and it in a terminal."""
    seq = trace["seq"]
    ways = {
        "← Earlier": beside.earlier and links.trace(beside.earlier),
        "Later →": beside.later and links.trace(beside.later),
        "Row": links.row("traces", seq),
        "Steps": links.table("steps", trace_seq__exact=f"{seq}"),
        "Outbox": links.row("outbox", seq) if trace["outbox"] else None,
    }
    command = f"kp-middleware show {quote(short_id(trace['id']))}"  # an id may be anybody's making
    code = element("code", command, class_="kp-command")
    return joined((head(links), _row(_ways(ways, "This trace"), code)))


def _row(*parts: Markup) -> Markup:
    return element("div", *parts, class_="kp-head")


def _ways(ways: Mapping[str, str | None], label: str, *, here: str = "") -> Markup:
    return element(
        "nav",
        *(
            element("a", name, href=href, aria_current="page" if name == here else None)
            for name, href in ways.items()
            if href
        ),
        aria_label=label,
    )


def _search(links: Addresses, words: str) -> Markup:
    field = element(
        "input",
        type="search",
        name="q",
        value=words,
        placeholder="Search objectives and results",
        aria_label="Search objectives and results",
    )
    return element("form", field, element("button", "Search"), action=links.search(), role="search")
