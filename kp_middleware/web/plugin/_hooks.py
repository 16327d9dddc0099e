"""What Datasette asks of its plugins."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from datasette import handle_exception, hookimpl
from markupsafe import Markup

from kp_middleware.views.wording import short_id
from kp_middleware.web.pictures import element
from kp_middleware.web.plugin._addresses import Addresses
from kp_middleware.web.plugin._files import our_files
from kp_middleware.web.plugin._permission import Actor, may_see
from kp_middleware.web.plugin._views import (
    overview,
    search,
    trace,
    what_if,
)

if TYPE_CHECKING:
    from datasette.app import Datasette
    from datasette.utils.asgi import Response

View: TypeAlias = "Callable[..., Awaitable[Response]]"
MenuLinks: TypeAlias = Callable[[], Awaitable[list[dict[str, str]]]]


@hookimpl  # type: ignore[untyped-decorator]
def startup() -> None:
    """Have Datasette tell of its errors without rich, which is here only because we need it.

    With it, whatever is not found is drawn on the terminal with every local of every frame: up to
    1.6 s, and what a trace says.
    """
    handle_exception.rich = None


@hookimpl  # type: ignore[untyped-decorator]
def register_routes() -> list[tuple[str, View]]:
    """Where our pages are."""
    page = r"^/-/kp/(?P<database>[^/]+)"
    return [
        (rf"{page}$", overview),
        (rf"{page}/what-if$", what_if),
        (rf"{page}/search$", search),
        (rf"{page}/traces/(?P<name>[^/]+)$", trace),
    ]


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: "Datasette", actor: Actor) -> MenuLinks:
    """A way to the overview from every page, for who may see it."""

    async def links() -> list[dict[str, str]]:
        files = our_files(datasette)
        return [
            _way(datasette, name, "Overview" if len(files) == 1 else f"Overview of {name}")
            for name in files
            if await may_see(datasette, actor, name)
        ]

    return links


@hookimpl  # type: ignore[untyped-decorator]
def database_actions(datasette: "Datasette", actor: Actor, database: str) -> MenuLinks:
    """The same way from a database, where a page has one."""
    return _way_to_overview(datasette, actor, database)


@hookimpl  # type: ignore[untyped-decorator]
def table_actions(datasette: "Datasette", actor: Actor, database: str) -> MenuLinks:
    """From a table; in 0.65 also from a view."""
    return _way_to_overview(datasette, actor, database)


@hookimpl(optionalhook=True)  # type: ignore[untyped-decorator]
def view_actions(datasette: "Datasette", actor: Actor, database: str) -> MenuLinks:
    """From a view; in 1.0a alone."""
    return _way_to_overview(datasette, actor, database)


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(value: Any, column: str, database: str, datasette: "Datasette") -> Markup | None:
    """In tables, the id of a trace is short and leads to its page; numbers have three decimals."""
    shown = _trace_link if column == "id" else _rounded
    is_ours = isinstance(value, (str, float)) and database in our_files(datasette)
    return shown(value, Addresses(datasette, database)) if is_ours else None


def _trace_link(value: object, links: Addresses) -> Markup | None:
    if not isinstance(value, str) or not value.startswith("kp:trace:"):
        return None
    link = element("a", short_id(value), href=links.trace(value), title=value)
    return Markup(link)  # noqa: S704 - escaped


def _rounded(value: object, _: Addresses) -> Markup | None:
    """What was kept as float32 reads 0.4410000145435333; whoever points at it sees that."""
    if not isinstance(value, float) or value == round(value, 3):
        return None
    return Markup(element("span", f"{value:.3f}", title=f"{value!r}"))  # noqa: S704 - escaped


def _way_to_overview(datasette: "Datasette", actor: Actor, database: str) -> MenuLinks:
    async def links() -> list[dict[str, str]]:
        is_ours = database in our_files(datasette)
        is_seen = is_ours and await may_see(datasette, actor, database)
        return [_way(datasette, database, "Overview")] if is_seen else []

    return links


def _way(datasette: "Datasette", database: str, label: str) -> dict[str, str]:
    return {"href": Addresses(datasette, database).overview(), "label": label}
