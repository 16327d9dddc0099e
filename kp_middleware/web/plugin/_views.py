"""Our pages: what is asked for is read in a thread, and set into Datasette's frame."""

import asyncio
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from datasette import Forbidden, Response
from datasette.utils import tilde_decode

from kp_middleware.database import TROUBLE, Connection, connect
from kp_middleware.errors import KnowledgePulseError, TraceNotFoundError
from kp_middleware.storage import (
    Filters,
    History,
    Listing,
    OutboxCare,
    RecentOverviews,
    read_beside,
    read_domains,
    read_last_decisions,
    read_points,
    read_score_slices,
)
from kp_middleware.views.wording import short_id
from kp_middleware.web.page import (
    Alike,
    Extract,
    found_html,
    overview_html,
    trace_html,
    what_if_html,
)
from kp_middleware.web.pictures import element, joined
from kp_middleware.web.plugin._addresses import Addresses
from kp_middleware.web.plugin._files import older_file, our_files, was_replaced
from kp_middleware.web.plugin._frame import (
    Page,
    Shown,
    failed,
    framed,
    not_found,
)
from kp_middleware.web.plugin._heads import head, trace_head
from kp_middleware.web.plugin._permission import may_see

if TYPE_CHECKING:
    from datasette import Request
    from datasette.app import Datasette

_FOUND: Final = 50
_MOST_COUNTED: Final = 1_000

_overviews = RecentOverviews()


class _File(NamedTuple):
    """An open file, and where things of it are."""

    connection: Connection
    links: Addresses
    path: Path


async def overview(datasette: "Datasette", request: "Request") -> Response:
    """Every picture of a file."""

    def read(file: _File) -> Page:
        content = overview_html(_overviews.read(file.connection, file.path), file.links)
        title = element("h1", "What your agents did")
        return Page("Overview", head(file.links, here="Overview"), joined((title, content)))

    return await _shown(datasette, request, read)


async def what_if(datasette: "Datasette", request: "Request") -> Response:
    """What each threshold would let through."""

    def read(file: _File) -> Page:
        last = read_last_decisions(file.connection)
        content = what_if_html(read_score_slices(file.connection), file.links, last)
        title = element("h1", "The gate")
        return Page("The gate", head(file.links, here="The gate"), joined((title, content)))

    return await _shown(datasette, request, read)


async def trace(datasette: "Datasette", request: "Request") -> Response:
    """One trace."""
    name = tilde_decode(request.url_vars["name"])

    def read(file: _File) -> Page:
        connection, links = file.connection, file.links
        history = History(connection)
        seq = history.find(name)
        row = history.trace(seq)
        content = trace_html(
            row,
            Alike.among(read_points(connection, around=seq)),
            links,
            body=OutboxCare(connection).body(seq),
            domains=read_domains(connection),
        )
        above = trace_head(row, read_beside(connection, seq), links)
        return Page(f"Trace {short_id(row['id'])}", above, content)

    return await _shown(datasette, request, read)


async def search(datasette: "Datasette", request: "Request") -> Response:
    """The traces with such words, the best match first."""
    words, page = request.args.get("q") or "", _page(request.args.get("page"))

    def read(file: _File) -> Page:
        content = found_html(_extract(file, words, page), words, file.links)
        return Page("Search", head(file.links, words=words), content)

    return await _shown(datasette, request, read)


def _page(typed: str | None) -> int:
    """The first, unless another was asked for."""
    is_number = typed is not None and re.fullmatch("[1-9][0-9]{0,8}", typed)
    return int(typed or "") if is_number else 1


def _extract(file: _File, words: str, page: int) -> Extract:
    listing, filters, skipped = Listing(file.connection), Filters(text=words), _FOUND * (page - 1)
    counted = max(_MOST_COUNTED, skipped + _FOUND)
    total = listing.count(filters, most=counted)
    better = min(page - 1, -(-total // _FOUND))  # beyond the end, the last that there is
    return Extract(
        rows=listing.found(filters, limit=_FOUND, skip=skipped),
        skipped=skipped,
        total=total,
        counted=counted,
        before=file.links.found(words, page=better) if better else None,
        after=file.links.found(words, page=page + 1) if total > skipped + _FOUND else None,
    )


async def _shown(
    datasette: "Datasette", request: "Request", read: Callable[[_File], Page]
) -> Response:
    name = tilde_decode(request.url_vars["database"])
    path = our_files(datasette).get(name) or older_file(datasette, name)
    if path is None:  # not raised: Datasette would draw each local of each frame on its terminal
        return await framed(
            datasette, request, not_found(f"no file of kp-middleware is called {name}")
        )
    if not await may_see(datasette, request.actor, name):
        raise Forbidden("execute-sql")
    links = Addresses(datasette, name)
    try:
        page = await asyncio.to_thread(_read, path, links, read)
    except TraceNotFoundError as error:
        page = not_found(str(error))._replace(head=head(links))
    except (KnowledgePulseError, *TROUBLE) as error:
        page = failed(str(error))
    replaced = was_replaced(datasette, path)
    return await framed(datasette, request, page, Shown(name, path.name, replaced))


def _read(path: Path, links: Addresses, read: Callable[[_File], Page]) -> Page:
    with closing(connect(path, read_only=True)) as connection:
        return read(_File(connection, links, path))
