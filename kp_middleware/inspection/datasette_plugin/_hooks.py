"""What Datasette asks of its plugins."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from datasette import hookimpl
from markupsafe import Markup

from kp_middleware.inspection.datasette_plugin._addresses import Addresses
from kp_middleware.inspection.datasette_plugin._files import our_files
from kp_middleware.inspection.datasette_plugin._permission import Actor, may_see
from kp_middleware.inspection.datasette_plugin._views import overview, trace, what_if
from kp_middleware.inspection.output.wording import short_id
from kp_middleware.inspection.pictures import element

if TYPE_CHECKING:
    from datasette.app import Datasette
    from datasette.utils.asgi import Response

View: TypeAlias = "Callable[..., Awaitable[Response]]"
MenuLinks: TypeAlias = Callable[[], Awaitable[list[dict[str, str]]]]


@hookimpl  # type: ignore[untyped-decorator]
def register_routes() -> list[tuple[str, View]]:
    """Where our pages are."""
    page = r"^/-/kp/(?P<database>[^/]+)"
    return [
        (rf"{page}$", overview),
        (rf"{page}/what-if$", what_if),
        (rf"{page}/traces/(?P<name>[^/]+)$", trace),
    ]


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: "Datasette", actor: Actor) -> MenuLinks:
    """A way to the overview from every page, for who may see it."""

    async def links() -> list[dict[str, str]]:
        files = our_files(datasette)
        return [
            {
                "href": Addresses(datasette, name).overview(),
                "label": "Overview" if len(files) == 1 else f"Overview of {name}",
            }
            for name in files
            if await may_see(datasette, actor, name)
        ]

    return links


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(value: Any, column: str, database: str, datasette: "Datasette") -> Markup | None:
    """In tables, the id of a trace is short, and leads to its page."""
    if column != "id" or not isinstance(value, str) or not value.startswith("kp:trace:"):
        return None
    if database not in our_files(datasette):
        return None
    address = Addresses(datasette, database).trace(value)
    return Markup(element("a", short_id(value), href=address, title=value))  # noqa: S704 - escaped
