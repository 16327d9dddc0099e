"""Our pages inside Datasette 0.65 and 1.0a: overview, runs, one run, two of them, review, the gate.

They appear for files of ours alone, also where a user types ``datasette kp.db``. Of Datasette they
need no more than the hooks below, `render_template`, the names of its databases and its word on who
may see them; what the file says they read themselves, as the commands do.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from secrets import compare_digest
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlencode

from datasette import Forbidden, Response, handle_exception, hookimpl
from datasette.utils import tilde_decode, tilde_encode
from markupsafe import Markup

from kp_middleware.errors import KnowledgePulseError, TraceNotFoundError
from kp_middleware.storage import (
    DATABASE_ERRORS,
    SCHEMA,
    Database,
    History,
    Run,
    SqliteStore,
    schema_version,
)
from kp_middleware.views.gate import p_in_words
from kp_middleware.views.prices import read_prices
from kp_middleware.views.trace import delivery_status, markdown
from kp_middleware.views.wording import one_line, outcome, sentence, short_id
from kp_middleware.web.marks import frame, render
from kp_middleware.web.pages import FullRun, gate_html, overview_html, trace_html
from kp_middleware.web.run_pages import Query, compare_html, conversation_html, runs_html
from kp_middleware.web.trace_map import MostAlike

if TYPE_CHECKING:
    from datasette import Request
    from datasette.app import Datasette

Actor: TypeAlias = dict[str, Any] | None
View: TypeAlias = "Callable[..., Awaitable[Response]]"
MenuLinks: TypeAlias = Callable[[], Awaitable[list[dict[str, str]]]]

_CONFINED: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'none'; style-src 'unsafe-inline';"
    " img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
FORM_KEY: Final = "kp_form"
"""The key of a request's scope with what proves a form to come from our own page."""

_AHEAD: Final = 50  # runs to review
_WHY: Final = {"forwarded": "The gate lets it leave.", "uncertain": "How it ended is in doubt."}
_THEME: Final = "kp-theme"
_NEWEST: Final = 8
_DAYS: Final = 30


def our_files(datasette: "Datasette") -> dict[str, Path]:
    """Return our files, those of older versions, too, by the names of their databases."""
    paths = {name: Path(one.path) for name, one in datasette.databases.items() if one.path}
    there = {name: path for name, path in paths.items() if path.exists()}
    return {name: path for name, path in there.items() if _is_ours(path, path.stat().st_ino)}


@lru_cache  # each page and each cell asks
def _is_ours(path: Path, _: int) -> bool:
    try:
        return 0 < schema_version(path) <= SCHEMA
    except DATABASE_ERRORS:
        return False


async def _may_see(datasette: "Datasette", actor: Actor, database: str) -> bool:
    """Return whether Datasette lets this actor read all of a database, as our pages show it."""
    try:
        from datasette.resources import DatabaseResource
    except ImportError:
        # 0.65, where the permission to use SQL does not imply that to see the database
        wanted = [("execute-sql", database)], [("view-database", database), "view-instance"]
        seen = [await datasette.check_visibility(actor, permissions=each) for each in wanted]
        return all(visible for visible, _ in seen)
    resource = DatabaseResource(database)
    return bool(await datasette.allowed(action="execute-sql", resource=resource, actor=actor))


@dataclass(frozen=True)
class Addresses:
    """The links of one database; those to runs may be limited to the runs ``since`` a day."""

    datasette: "Datasette"
    name: str
    since: str = ""

    @cached_property
    def _pages(self) -> str:
        return str(self.datasette.urls.path(f"/-/kp/{tilde_encode(self.name)}"))

    def to(self, page: str = "", **query: str) -> str:
        """Return the address of one of our pages, such as ``/review``; by default the overview."""
        return f"{self._pages}{page}{'?' if query else ''}{urlencode(query)}"

    def runs(self, **filters: str) -> str:
        """Return the address of the runs that match, the newest first."""
        return self.to("/runs", **{**({"since": self.since} if self.since else {}), **filters})

    def trace(self, trace_id: str, /) -> str:
        """Return the address of one run; ``@last`` and ``@best`` are such names, too."""
        name = trace_id.removeprefix("kp:trace:")
        plain = name.isascii() and name.replace("-", "").isalnum()  # and a map has many of them
        return self.to(f"/traces/{name if plain else tilde_encode(name)}")

    def database(self) -> str:
        """Return the address of all tables and views, and a place to type SQL."""
        return str(self.datasette.urls.database(self.name))

    def row(self, table: str, key: int) -> str:
        """Return the address of one row."""
        return str(self.datasette.urls.row(self.name, table, str(key)))


class Page(NamedTuple):
    """The contents of the frame; what is empty is not shown."""

    title: str
    content: str = ""
    heading: str = ""
    lead: str = ""
    beside: Mapping[str, str | None] = MappingProxyType({})
    command: str = ""
    status: int = 200
    notice: str = ""


class Visit(NamedTuple):
    """A request for a page, and the open file that it is about."""

    history: History
    path: Path
    links: Addresses
    name: str  # of a run or a conversation
    args: Mapping[str, str]
    form: Mapping[str, str]
    token: str | None


Reader: TypeAlias = Callable[[Visit], Page | str]
"""Makes a page for our frame, or a text; it runs in a thread of its own."""


@hookimpl  # type: ignore[untyped-decorator]
def startup() -> None:
    """Keep Datasette from drawing every local of every frame on the terminal for a mere 404."""
    handle_exception.rich = None


@hookimpl  # type: ignore[untyped-decorator]
def register_routes() -> list[tuple[str, View]]:
    """Add our pages."""
    page = r"^/-/kp/(?P<database>[^/]+)"
    readers: dict[str, Reader] = {
        "": overview,
        "/what-if": gate,
        "/runs": runs,
        r"/traces/(?P<name>[^/]+)\.md": markdown_of,
        "/traces/(?P<name>[^/]+)": trace,
        "/compare": compare,
        "/conversations/(?P<name>[^/]+)": conversation,
        "/review": review,
    }
    views = {path: _view(read) for path, read in readers.items()}
    views["/theme/(?P<name>dark|light|system)"] = theme
    return [(f"{page}{path}$", view) for path, view in views.items()]


@hookimpl(optionalhook=True)  # type: ignore[untyped-decorator]
def skip_csrf(scope: Mapping[str, Any]) -> bool:
    """Leave our own form, which has a token of its own, to us."""
    return FORM_KEY in scope and str(scope["path"]).endswith("/review")


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: "Datasette", actor: Actor) -> MenuLinks:
    """Add a link to the overview to every page, for who may see it."""

    async def links() -> list[dict[str, str]]:
        files = our_files(datasette)
        return [
            {
                "href": Addresses(datasette, name).to(),
                "label": "Overview" if len(files) == 1 else f"Overview of {name}",
            }
            for name in files
            if await _may_see(datasette, actor, name)
        ]

    return links


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(value: Any, column: str, database: str, datasette: "Datasette") -> Markup | None:
    """Shorten the id of a run to a link to its page."""
    is_id = column == "id" and isinstance(value, str) and value.startswith("kp:trace:")
    if not is_id or database not in our_files(datasette):
        return None
    href = Addresses(datasette, database).trace(value)
    return Markup('<a href="{}" title="{}">{}</a>').format(href, value, short_id(value))


def overview(visit: Visit) -> Page:
    """Show every chart of the last 30 days, or of the whole file."""
    history, links, prices = visit.history, visit.links, read_prices()
    newest, first = history.runs(limit=_NEWEST), _first_day(history)
    since = "" if visit.args.get("all") else first
    content = overview_html(
        history.overview(since=since or None),
        replace(links, since=since),
        newest=newest,
        used=history.tokens(since=first) if prices.models else (),
        prices=prices,
        every=links.to(all="1") if since else None,
    )
    return Page("Overview", content, "What your agents did", notice=prices.problem)


def _first_day(history: History) -> str:
    """Return the first of the 30 days up to the newest run; empty if no run is older."""
    ends = [history.page(limit=1, sort="started", descending=last).runs for last in (True, False)]
    if not ends[0]:
        return ""
    newest, oldest = (date.fromisoformat(runs[0].started_at[:10]) for runs in ends)
    first = newest - timedelta(days=_DAYS - 1)
    return first.isoformat() if oldest < first else ""


def gate(visit: Visit) -> Page:
    """Show what each threshold would let through."""
    history = visit.history
    content = gate_html(history.scores(), history.last_decisions(), visit.links)
    return Page("The gate", content, "The gate")


def trace(visit: Visit) -> Page:
    """Show one run."""
    history, links, prices = visit.history, visit.links, read_prices()
    seq = history.find(visit.name)
    run, recalled = history.run(seq), []
    for name in run.recalled:
        with suppress(TraceNotFoundError):
            recalled.append(history.find(name))
    full = FullRun(
        run,
        MostAlike.among(history.points(around=seq)),
        history.outbox_body(seq),
        history.runs_at(recalled),
        prices.costs(history, [seq]).get(seq),
    )
    content = trace_html(full, links, domains=history.domains(), prices=prices)
    command = f"kp-middleware show {quote(short_id(run.id))}"  # an id may be anybody's making
    ways = _beside(run, *history.adjacent(seq), links)
    title = f"Run {short_id(run.id)}"
    return Page(title, content, beside=ways, command=command, notice=prices.problem)


def _beside(
    run: Run, earlier: str | None, later: str | None, links: Addresses
) -> dict[str, str | None]:
    """Return the ways to what is beside a run: its neighbours, its conversation, its rows."""
    nearest = run.scoring.nearest_id if run.scoring and run.scoring.nearest_seq else None
    thread = run.thread_id and tilde_encode(run.thread_id)
    return {
        "← Earlier": earlier and links.trace(earlier),
        "Later →": later and links.trace(later),
        "Compare with the nearest": nearest and links.to("/compare", left=nearest, right=run.id),
        "Conversation": thread and links.to(f"/conversations/{thread}"),
        "Markdown": f"{links.trace(run.id)}.md",
        "Row in SQL": links.row("traces", run.seq),
        "Outbox in SQL": links.row("outbox", run.seq) if run.outbox else None,
    }


def runs(visit: Visit) -> Page:
    """Show the runs that the address asks for."""
    prices = read_prices()
    content = runs_html(visit.history, Query.of(visit.args), visit.links, prices)
    return Page("Runs", content, "Runs", notice=prices.problem)


def markdown_of(visit: Visit) -> str:
    """Return one run as Markdown, to copy."""
    run = visit.history.run(visit.history.find(visit.name))
    return "\n".join((*markdown(run, steps=None), ""))


def compare(visit: Visit) -> Page:
    """Show two runs side by side."""
    names = [visit.args.get(side, "") for side in ("left", "right")]
    left, right = (visit.history.run(visit.history.find(name)) for name in names)
    turned = visit.links.to("/compare", left=right.id, right=left.id)
    return Page("Compare", compare_html(left, right, visit.links, turned), "Two runs")


def conversation(visit: Visit) -> Page:
    """Show the runs of one conversation."""
    content = conversation_html(visit.history, visit.name, visit.links)
    return Page("Conversation", content, "Conversation", one_line(visit.name))


def review(visit: Visit) -> Page:
    """Ask about the first run to judge that was not skipped; store the answer about another."""
    history, links, form, answered = visit.history, visit.links, visit.form, ""
    if form.get("success") in {"yes", "no"}:
        _judge(visit.path, form["trace_id"], success=form["success"] == "yes")
        run = history.run(history.find(form["trace_id"]))
        answered = f"Noted: {outcome(run.known_success)}. {sentence(delivery_status(run))}"
    given = form.get("skip") or visit.args.get("skip", "")
    skipped = [name for name in given.split(",") if name]
    left = [one for one in history.to_review(limit=_AHEAD) if one.trace_id not in skipped]
    item, action = left[0] if left else None, links.to("/review")
    why = "" if item is None else _WHY[item.why]
    if item is not None and item.p_success is not None:
        why += f" P(success) {p_in_words(item.p_success, item.p_reasons)}."
    content = render(
        "review.html",
        item=item,
        why=why,
        left=len(left),
        href=links.trace(item.trace_id) if item else "",
        action=action if visit.token else "",
        token=visit.token,
        skipped=",".join(skipped),
        skip=f"{action}?skip={','.join([*skipped, item.trace_id])}" if item else "",
        answered=answered,
    )
    return Page("Review", content, "Did it do its task?")


def _judge(db: Path, trace_id: str, *, success: bool) -> None:
    """Store the answer as feedback: the run is scored and decided anew."""
    from kp_middleware.pipeline import Feedback, Reevaluation
    from kp_middleware.settings import Settings

    with closing(Database(db)) as file:
        reevaluation = Reevaluation.from_settings(SqliteStore(file), Settings.load_lenient(db=db))
        reevaluation.apply(Feedback(trace_id, success, None, time.time()))


async def theme(datasette: "Datasette", request: "Request") -> Response:
    """Keep a theme for this browser, and lead back."""
    back = request.args.get("to") or ""
    is_here = back.startswith("/") and not back.startswith(("//", "/\\"))
    response = Response.redirect(back if is_here else datasette.urls.instance())
    name = request.url_vars["name"]
    response.set_cookie(_THEME, "" if name == "system" else name, samesite="strict", httponly=True)
    return response


def _view(read: Reader) -> View:
    """Show what a reader makes of the file, to who may see it; a form needs the page's token."""

    async def view(datasette: "Datasette", request: "Request") -> Response:
        database = tilde_decode(request.url_vars["database"])
        path = our_files(datasette).get(database)
        if path is None:  # not raised: Datasette would draw each local of each frame
            missing = f"no file of kp-middleware is called {database}"
            return await _framed(datasette, request, _problem("Not found", missing, 404))
        if not await _may_see(datasette, request.actor, database):
            raise Forbidden("execute-sql")
        token = request.scope.get(FORM_KEY)
        form = await request.post_vars() if request.method == "POST" else {}
        if form and not (token and compare_digest(form.get("token", "").encode(), token.encode())):
            why = "This answer does not come from the page: open it again."
            return Response.text(why, status=403)
        links, name = Addresses(datasette, database), tilde_decode(request.url_vars.get("name", ""))
        args = {key: request.args.get(key) or "" for key in request.args}

        def read_page() -> Page | str:
            with History.open(path) as history:
                return read(Visit(history, path, links, name, args, form, token))

        try:
            page: Page | str = await asyncio.to_thread(read_page)
        except TraceNotFoundError as error:
            page = _problem("Not found", str(error), 404)
        except (KnowledgePulseError, *DATABASE_ERRORS) as error:
            page = _problem("This cannot be shown", str(error), 500)
        if isinstance(page, str):
            return Response.text(page, headers=dict(_CONFINED))
        return await _framed(datasette, request, page, links, path.name)

    return view


def _problem(title: str, why: str, status: int) -> Page:
    return Page(title, heading=title, lead=one_line(sentence(why)), status=status)


async def _framed(
    datasette: "Datasette",
    request: "Request",
    page: Page,
    links: Addresses | None = None,
    file: str = "",
) -> Response:
    """Render our own frame: the same in all versions of Datasette, and nothing in it can run."""
    ways, themes, chosen = {}, {}, request.cookies.get(_THEME, "")
    if links is not None:
        here = urlencode({"to": request.full_path})
        names = ("dark", "light", "system")
        themes = {name: f"{links.to(f'/theme/{name}')}?{here}" for name in names}
    if links is not None and page.status != 500:
        ways = {
            "Overview": links.to(),
            "Runs": links.runs(),
            "Review": links.to("/review"),
            "The gate": links.to("/what-if"),
            "Outbox": links.runs(queued="1"),
            "All tables, SQL": links.database(),
        }
    theme = chosen if chosen in themes else ""
    values = {"page": page, "links": links, "file": file, "ways": ways, "themes": themes}
    html = await datasette.render_template(frame(), {**values, "theme": theme}, request=request)
    return Response.html(html, status=page.status, headers=dict(_CONFINED))
