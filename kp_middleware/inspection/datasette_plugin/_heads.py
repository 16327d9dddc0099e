"""What stands above each of our pages: its name, and where else to go."""

from collections.abc import Mapping
from shlex import quote

from kp_middleware.inspection.datasette_plugin._addresses import Addresses
from kp_middleware.inspection.output.wording import short_id
from kp_middleware.inspection.pictures import Markup, element
from kp_middleware.storage import Beside, Row


def overview_head(links: Addresses) -> Markup:
    """Of the overview: the other pages, Datasette's tables, and a search."""
    ways = {
        "The gate": links.what_if(),
        "Traces": links.table("traces", _sort_desc="seq"),
        "Outbox": links.table("outbox", _sort_desc="trace_seq"),
        "All tables, SQL": links.database(),
    }
    return _head(element("h1", "What your agents did"), _ways(ways), _search(links))


def what_if_head(links: Addresses) -> Markup:
    """Of the gate's page."""
    return _head(element("h1", "The gate"), _ways({"Overview": links.overview()}))


def trace_head(trace: Row, beside: Beside, links: Addresses) -> Markup:
    """Of one trace, which has its name below: its neighbours, its rows, and it in a terminal."""
    seq = trace["seq"]
    ways = {
        "Overview": links.overview(),
        "← Earlier": beside.earlier and links.trace(beside.earlier),
        "Later →": beside.later and links.trace(beside.later),
        "Row": links.row("traces", seq),
        "Steps": links.table("steps", trace_seq__exact=f"{seq}"),
        "Outbox": links.row("outbox", seq) if trace["outbox"] else None,
    }
    command = f"kp-middleware show {quote(short_id(trace['id']))}"  # an id may be anybody's making
    return _head(_ways(ways), element("code", command, class_="kp-command"))


def _head(*parts: Markup) -> Markup:
    return element("div", *parts, class_="kp-head")


def _ways(ways: Mapping[str, str | None]) -> Markup:
    return element(
        "nav",
        *(element("a", name, href=href) for name, href in ways.items() if href),
        aria_label="kp-middleware",
    )


def _search(links: Addresses) -> Markup:
    """Datasette's own full-text search."""
    return element(
        "form",
        element(
            "input",
            type="search",
            name="_search",
            placeholder="Search objectives and results",
            aria_label="Search",
        ),
        element("button", "Search"),
        action=links.table("traces"),
        role="search",
    )
