"""Our pages: what is asked for is read in a thread, and set into Datasette's frame."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import markupsafe
from datasette import Forbidden, NotFound, Response
from datasette.utils import tilde_decode

from kp_middleware.database import TROUBLE, Connection, connect
from kp_middleware.errors import KnowledgePulseError, TraceNotFoundError
from kp_middleware.inspection.datasette_plugin._addresses import Addresses
from kp_middleware.inspection.datasette_plugin._files import our_files
from kp_middleware.inspection.datasette_plugin._heads import (
    overview_head,
    trace_head,
    what_if_head,
)
from kp_middleware.inspection.datasette_plugin._permission import may_see
from kp_middleware.inspection.output.wording import one_line, short_id
from kp_middleware.inspection.page import (
    Alike,
    overview_html,
    style_html,
    trace_html,
    what_if_html,
)
from kp_middleware.inspection.pictures import Markup, element
from kp_middleware.storage import (
    History,
    OutboxCare,
    read_beside,
    read_overview,
    read_points,
    read_score_slices,
)

if TYPE_CHECKING:
    from datasette import Request
    from datasette.app import Datasette


class _Page(NamedTuple):
    title: str
    head: Markup
    content: Markup


async def overview(datasette: "Datasette", request: "Request") -> Response:
    """Every picture of a file."""

    def read(connection: Connection, links: Addresses) -> _Page:
        content = overview_html(read_overview(connection), links)
        return _Page("Overview", overview_head(links), content)

    return await _shown(datasette, request, read)


async def what_if(datasette: "Datasette", request: "Request") -> Response:
    """What each threshold would let through."""

    def read(connection: Connection, links: Addresses) -> _Page:
        content = what_if_html(read_score_slices(connection), links)
        return _Page("The gate", what_if_head(links), content)

    return await _shown(datasette, request, read)


async def trace(datasette: "Datasette", request: "Request") -> Response:
    """One trace."""
    name = tilde_decode(request.url_vars["name"])

    def read(connection: Connection, links: Addresses) -> _Page:
        history = History(connection)
        seq = history.find(name)
        row = history.trace(seq)
        content = trace_html(
            row,
            Alike.among(read_points(connection, around=seq)),
            links,
            body=_body(connection, seq),
            domains=read_score_slices(connection).domains,
        )
        head = trace_head(row, read_beside(connection, seq), links)
        return _Page(f"Trace {short_id(row['id'])}", head, content)

    return await _shown(datasette, request, read)


async def _shown(
    datasette: "Datasette", request: "Request", read: Callable[[Connection, Addresses], _Page]
) -> Response:
    name = tilde_decode(request.url_vars["database"])
    path = our_files(datasette).get(name)
    if path is None:
        raise NotFound(f"no file of kp-middleware is called {name}")
    if not await may_see(datasette, request.actor, name):
        raise Forbidden("execute-sql")
    links = Addresses(datasette, name)
    try:
        page = await asyncio.to_thread(_read, path, lambda connection: read(connection, links))
    except TraceNotFoundError as error:
        raise NotFound(str(error)) from error
    except (KnowledgePulseError, *TROUBLE) as error:
        return Response.text(one_line(str(error)), status=500)
    content = element("div", page.head, page.content, class_="kp kp-page")
    variables = {
        "title": page.title,
        "style": markupsafe.Markup(style_html()),  # noqa: S704 - ours
        "content": markupsafe.Markup(content),  # noqa: S704 - escaped where it is put in
    }
    html = await datasette.render_template("kp_page.html", variables, request=request)
    return Response.html(html)


def _read(path: Path, read: Callable[[Connection], _Page]) -> _Page:
    with closing(connect(path, read_only=True)) as connection:
        return read(connection)


def _body(connection: Connection, seq: int) -> str | None:
    try:
        body = OutboxCare(connection).entry(seq).body
    except TraceNotFoundError:
        return None
    return None if body is None else body.decode()
