"""A Datasette plugin (0.65 and 1.0a): overview, runs, one run, comparison, review, gate.

The pages appear only for kp-middleware databases, also with plain ``datasette kp.db``. They use
Datasette's hooks, `render_template`, database names and permissions; they read the file directly,
as the commands do.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from secrets import compare_digest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlencode

from datasette import Forbidden, Response, handle_exception, hookimpl
from datasette.utils import tilde_decode, tilde_encode
from markupsafe import Markup

from kp_middleware import storage
from kp_middleware.errors import KnowledgePulseError, TraceNotFoundError
from kp_middleware.views.gate import p_in_words
from kp_middleware.views.prices import read_prices
from kp_middleware.views.trace import delivery_status, markdown
from kp_middleware.views.wording import one_line, outcome, sentence, short_id
from kp_middleware.web.marks import frame, render
from kp_middleware.web.pages import FullRun, gate_html, overview_html, trace_html
from kp_middleware.web.run_pages import Page, compare, conversation, runs
from kp_middleware.web.trace_map import SimilarRuns

if TYPE_CHECKING:
    from datasette import Request
    from datasette.app import Datasette

__all__ = ["FORM_KEY", "SECURITY_HEADERS", "Addresses", "PageRequest", "kp_databases"]

Actor: TypeAlias = dict[str, Any] | None
View: TypeAlias = "Callable[..., Awaitable[Response]]"

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'none'; style-src 'unsafe-inline';"
    " img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
FORM_KEY: Final = "kp_form"
"""The key of the ASGI scope that holds the CSRF token of our form."""

_REVIEW_REASONS: Final = {"forwarded": "Forwarded by the gate.", "uncertain": "Uncertain outcome."}
_THEME: Final = "kp-theme"


def kp_databases(datasette: "Datasette") -> dict[str, Path]:
    """Return the kp-middleware files, also of older versions, by database name."""
    paths = {name: Path(db.path) for name, db in datasette.databases.items() if db.path}
    existing = ((name, path) for name, path in paths.items() if path.exists())
    return {name: path for name, path in existing if _is_kp_file(path, path.stat().st_ino)}


@lru_cache  # called for each page and cell
def _is_kp_file(path: Path, _: int) -> bool:
    try:
        return 0 < storage.schema_version(path) <= storage.SCHEMA
    except storage.DATABASE_ERRORS:
        return False


async def _can_view(datasette: "Datasette", actor: Actor, database: str) -> bool:
    try:
        from datasette.resources import DatabaseResource
    except ImportError:
        # 0.65, where execute-sql does not imply view-database
        rights = [("execute-sql", database)], [("view-database", database), "view-instance"]
        results = [await datasette.check_visibility(actor, permissions=each) for each in rights]
        return all(visible for visible, _ in results)
    resource = DatabaseResource(database)
    return bool(await datasette.allowed(action="execute-sql", resource=resource, actor=actor))


@dataclass(frozen=True)
class Addresses:
    """The links of one database; links to runs may be limited to those ``since`` a day."""

    datasette: "Datasette"
    name: str
    since: str = ""

    def to(self, page: str = "", **query: str) -> str:
        """Return the address of one of our pages, such as ``/review``; by default the overview."""
        return f"{self._pages}{page}{'?' if query else ''}{urlencode(query)}"

    @cached_property
    def _pages(self) -> str:
        return str(self.datasette.urls.path(f"/-/kp/{tilde_encode(self.name)}"))

    def runs(self, **filters: str) -> str:
        """Return the address of the runs that match, newest first."""
        return self.to("/runs", **{**({"since": self.since} if self.since else {}), **filters})

    def trace(self, trace_id: str, /) -> str:
        """Return the address of one run, an id or ``@last`` or ``@best``."""
        return self.to(f"/traces/{tilde_encode(trace_id.removeprefix('kp:trace:'))}")

    def database(self) -> str:
        return str(self.datasette.urls.database(self.name))


class PageRequest(NamedTuple):
    history: storage.History
    path: Path
    links: Addresses
    name: str  # of a run or a conversation
    args: Mapping[str, str]
    form: Mapping[str, str]
    token: str | None


PageReader: TypeAlias = Callable[[PageRequest], Page | str]
"""Makes a page for our frame, or a plain text; runs in a worker thread."""


@hookimpl  # type: ignore[untyped-decorator]
def startup() -> None:
    """Keep Datasette from printing tracebacks with all locals for a 404."""
    handle_exception.rich = None


@hookimpl  # type: ignore[untyped-decorator]
def register_routes() -> list[tuple[str, View]]:
    page = r"^/-/kp/(?P<database>[^/]+)"
    readers: dict[str, PageReader] = {
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
    """Skip Datasette's CSRF check for our form, which has its own token."""
    return FORM_KEY in scope and str(scope["path"]).endswith("/review")


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: "Datasette", actor: Actor) -> Callable[[], Awaitable[Any]]:
    async def links() -> list[dict[str, str]]:
        files = kp_databases(datasette)
        seen = [name for name in files if await _can_view(datasette, actor, name)]
        labels = ("Overview" if len(files) == 1 else f"Overview of {name}" for name in seen)
        hrefs = (Addresses(datasette, name).to() for name in seen)
        return [{"href": href, "label": label} for href, label in zip(hrefs, labels, strict=True)]

    return links


@hookimpl  # type: ignore[untyped-decorator]
def render_cell(value: Any, column: str, database: str, datasette: "Datasette") -> Markup | None:
    is_id = column == "id" and isinstance(value, str) and value.startswith("kp:trace:")
    if not is_id or database not in kp_databases(datasette):
        return None
    href = Addresses(datasette, database).trace(value)
    return Markup('<a href="{}" title="{}">{}</a>').format(href, value, short_id(value))


def overview(request: PageRequest) -> Page:
    """Show the overview of the last 30 days, or of the whole file."""
    history, links, prices = request.history, request.links, read_prices()
    newest, first = history.runs(limit=8), history.first_day()
    since = "" if request.args.get("all") else first
    content = overview_html(
        history.overview(since=since or None),
        replace(links, since=since),
        newest=newest,
        used=history.tokens(since=first) if prices.models else (),
        prices=prices,
        every=links.to(all="1") if since else None,
    )
    return Page("Overview", content, "What your agents did", notice=prices.problem)


def gate(request: PageRequest) -> Page:
    history = request.history
    content = gate_html(history.scores(), history.last_decisions(), request.links)
    return Page("The gate", content, "The gate")


def trace(request: PageRequest) -> Page:
    history, links, prices = request.history, request.links, read_prices()
    seq = history.find(request.name)
    run, recalled = history.run(seq), []
    for name in run.recalled:
        with suppress(TraceNotFoundError):
            recalled.append(history.find(name))
    full = FullRun(
        run,
        SimilarRuns.from_points(history.points(around=seq)),
        history.outbox_body(seq),
        history.runs_at(recalled),
        prices.costs(history, [seq]).get(seq),
    )
    content = trace_html(full, links, domains=history.domains(), prices=prices)
    earlier, later = history.adjacent(seq)
    nearest = run.scoring.nearest_id if run.scoring and run.scoring.nearest_seq else None
    thread = run.thread_id and tilde_encode(run.thread_id)
    related = {
        "← Earlier": earlier and links.trace(earlier),
        "Later →": later and links.trace(later),
        "Compare with nearest": nearest and links.to("/compare", left=nearest, right=run.id),
        "Conversation": thread and links.to(f"/conversations/{thread}"),
        "Markdown": f"{links.trace(run.id)}.md",
    }
    return Page(f"Run {short_id(run.id)}", content, related=related, notice=prices.problem)


def markdown_of(request: PageRequest) -> str:
    run = request.history.run(request.history.find(request.name))
    return "\n".join((*markdown(run, steps=None), ""))


def review(request: PageRequest) -> Page:
    """Show the next run to review; store the answer about the previous one."""
    history, links, form, answered = request.history, request.links, request.form, ""
    if form.get("success") in {"yes", "no"}:
        from kp_middleware.pipeline import Feedback, Reevaluation
        from kp_middleware.settings import Settings

        settings = Settings(db=request.path)
        feedback = Feedback(form["trace_id"], form["success"] == "yes", None, time.time())
        with closing(storage.Database(request.path)) as file:
            Reevaluation.from_settings(storage.SqliteStore(file), settings).apply(feedback)
        run = history.run(history.find(form["trace_id"]))
        answered = f"Saved: {outcome(run.known_success)}. {sentence(delivery_status(run))}"
    given = form.get("skip") or request.args.get("skip", "")
    skipped = [name for name in given.split(",") if name]
    left = [item for item in history.to_review(limit=50) if item.trace_id not in skipped]
    item, action = left[0] if left else None, links.to("/review")
    reason = "" if item is None else _REVIEW_REASONS[item.why]
    if item is not None and item.p_success is not None:
        reason += f" P(success) {p_in_words(item.p_success, item.p_reasons)}."
    content = render(
        "review.html",
        item=item,
        reason=reason,
        left=len(left),
        href=links.trace(item.trace_id) if item else "",
        action=action if request.token else "",
        token=request.token,
        skipped=",".join(skipped),
        skip=f"{action}?skip={','.join([*skipped, item.trace_id])}" if item else "",
        answered=answered,
    )
    return Page("Review", content, "Did this run succeed?")


async def theme(datasette: "Datasette", request: "Request") -> Response:
    back = request.args.get("to") or ""
    is_local = back.startswith("/") and not back.startswith(("//", "/\\"))
    response = Response.redirect(back if is_local else datasette.urls.instance())
    name = request.url_vars["name"]
    response.set_cookie(_THEME, "" if name == "system" else name, samesite="strict", httponly=True)
    return response


def _view(read: PageReader) -> View:
    async def view(datasette: "Datasette", request: "Request") -> Response:
        database = tilde_decode(request.url_vars["database"])
        path = kp_databases(datasette).get(database)
        if path is None:  # not raised: Datasette would print all locals
            missing = f"no kp-middleware database is named {one_line(database)}"
            return Response.text(missing, status=404, headers=dict(SECURITY_HEADERS))
        if not await _can_view(datasette, request.actor, database):
            raise Forbidden("execute-sql")
        token = request.scope.get(FORM_KEY)
        form = await request.post_vars() if request.method == "POST" else {}
        if form and not (token and compare_digest(form.get("token", "").encode(), token.encode())):
            return Response.text("Invalid form token: reload the page.", status=403)
        links, name = Addresses(datasette, database), tilde_decode(request.url_vars.get("name", ""))
        args = {key: request.args.get(key) or "" for key in request.args}

        def read_page() -> Page | str:
            with storage.History.open(path) as history:
                return read(PageRequest(history, path, links, name, args, form, token))

        try:
            page: Page | str = await asyncio.to_thread(read_page)
        except (KnowledgePulseError, *storage.DATABASE_ERRORS) as error:
            is_missing = isinstance(error, TraceNotFoundError)
            title, status = ("Not found", 404) if is_missing else ("Cannot show this page", 500)
            lead = one_line(sentence(str(error)))
            page = Page(title, heading=title, lead=lead, status=status)
        if isinstance(page, str):
            return Response.text(page, headers=dict(SECURITY_HEADERS))
        return await _page_response(datasette, request, page, links, path.name)

    return view


async def _page_response(
    datasette: "Datasette", request: "Request", page: Page, links: Addresses, file: str
) -> Response:
    here, chosen = urlencode({"to": request.full_path}), request.cookies.get(_THEME, "")
    names = ("dark", "light", "system")
    themes = {name: f"{links.to(f'/theme/{name}')}?{here}" for name in names}
    pages = {
        "Overview": links.to(),
        "Runs": links.runs(),
        "Review": links.to("/review"),
        "The gate": links.to("/what-if"),
        "Outbox": links.runs(queued="1"),
        "All tables, SQL": links.database(),
    }
    values = {"page": page, "links": links, "file": file, "themes": themes}
    values |= {"pages": {} if page.status == 500 else pages}
    values |= {"theme": chosen if chosen in themes else ""}
    html = await datasette.render_template(frame(), values, request=request)
    return Response.html(html, status=page.status, headers=dict(SECURITY_HEADERS))
