"""Serve Datasette with our pages on localhost, only to the browser that opened the link."""

import asyncio
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import click
import uvicorn
from datasette import Response
from datasette.app import Datasette

from kp_middleware.web.marks import prepare_templates
from kp_middleware.web.plugin import FORM_KEY, SECURITY_HEADERS, Addresses, kp_databases

__all__ = ["Guard", "LinkFile", "serve"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_OPEN_PATH: Final = "/-/kp-open"
_LINK_USED: Final = "This link is invalid or already used: run kp-middleware ui for a new one.\n"
_WRONG_HOST: Final = (
    "This page is only served at http://127.0.0.1:{0}. Through a tunnel, use the same port at both"
    " ends: ssh -L {0}:127.0.0.1:{0} …\n"
)
_SECURITY_HEADERS: Final = {
    **SECURITY_HEADERS,  # Datasette's own pages have scripts; nothing is loaded from elsewhere
    "content-security-policy": "default-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'",
}

_PREFIX: Final = "kp-middleware-ui-"
_REDIRECT_PAGE: Final = (
    '<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<title>kp-middleware</title><meta http-equiv="refresh" content="0; url={0}">'
    '<a href="{0}">Open</a>'
)


class Guard:
    """ASGI middleware that admits only the browser that opened the link.

    The host check prevents DNS rebinding; the one-time link keeps out this machine's other users.
    """

    def __init__(
        self, app: App, *, port: int, first_page: str, on_open: Callable[[], None] = lambda: None
    ) -> None:
        self._app = app
        self._port = port
        self._on_open = on_open
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"kp-ui-{port}"  # cookies are shared by all ports
        self._first_page = first_page
        self._one_time = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._form_token = secrets.token_urlsafe(24)
        self.link = f"http://127.0.0.1:{port}{_OPEN_PATH}?once={self._one_time}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        send, has_session = _secured(send), self._has_session(headers.get("cookie", ""))
        if headers.get("host", "").lower() not in self._hosts:
            answer = Response.text(_WRONG_HOST.format(self._port), status=421)
        elif scope["path"] == _OPEN_PATH:
            answer = self._open(scope, has_session=has_session)
        elif not has_session:
            answer = Response.text("Open the link that kp-middleware ui printed.\n", status=403)
        elif scope["path"] == "/":
            answer = Response.text("", status=302, headers={"location": self._first_page})
        else:
            await self._app({**scope, FORM_KEY: self._form_token}, receive, send)
            return
        answer.headers["cache-control"] = "no-store"
        await answer.asgi_send(send)

    def _open(self, scope: Scope, *, has_session: bool) -> Response:
        """Accept the link once, so that one left in a history or log is useless.

        Answer with a page that redirects: after an HTTP redirect from another site, the browser
        would not send a SameSite=Strict cookie.
        """
        page = Response.html(_REDIRECT_PAGE.format(self._first_page))
        if not has_session:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("once", [""])[0]
            is_right = self._one_time and _is_equal(given, self._one_time)
            if scope["method"] != "GET" or not is_right:
                return Response.text(_LINK_USED, status=403)
            self._one_time = ""
            self._on_open()
            cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
            page.headers["set-cookie"] = cookie
        return page

    def _has_session(self, cookies: str) -> bool:
        """Parse cookies by hand: other programs on this machine may set malformed ones."""
        pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
        return any(
            _is_equal(text, self._session) for name, _, text in pairs if name == self._cookie
        )


class LinkFile(ExitStack):
    """A temporary file that redirects to the link: others can read a browser's command line."""

    def write(self, link: str) -> str:
        try:  # sandboxed browsers see only visible files in the home folder
            folder = self.enter_context(TemporaryDirectory(prefix=_PREFIX, dir=Path.home()))
        except (OSError, RuntimeError):
            folder = self.enter_context(TemporaryDirectory(prefix=_PREFIX))
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(_REDIRECT_PAGE.format(link), encoding="utf-8")
        return page.as_uri()


def _is_equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())


def _secured(send: Send) -> Send:
    async def send_secured(message: Any) -> None:
        if message["type"] == "http.response.start":
            ours = ((name.encode(), text.encode()) for name, text in _SECURITY_HEADERS.items())
            message = {**message, "headers": [*message["headers"], *ours]}
        await send(message)

    return send_secured


_SETTINGS: Final = {
    "suggest_facets": False,  # with 100,000 traces, 2.4 s of a page's 2.5
    "default_page_size": 50,
    "allow_download": False,
    "num_sql_threads": 2,
    "sql_time_limit_ms": 2000,
}


def serve(db: Path, *, port: int, opens: bool) -> None:
    # Loading these takes half the time of the first page; do it while the browser starts.
    for load in (partial(import_module, "numpy"), prepare_templates):
        threading.Thread(target=load, daemon=True).start()
    try:  # a browser that connects early waits
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        problem = f"port {port} cannot be used ({error.strerror}): omit --port to use a free one"
        raise click.ClickException(problem) from error
    with listener:
        asyncio.run(_serve(db, listener, opens=opens))


async def _serve(db: Path, listener: socket.socket, *, opens: bool) -> None:
    datasette = Datasette([str(db.expanduser())], settings=_SETTINGS)
    await datasette.invoke_startup()
    (name,) = kp_databases(datasette)
    first_page, port = Addresses(datasette, name).to(), listener.getsockname()[1]
    link_file = LinkFile()
    guard = Guard(datasette.app(), port=port, first_page=first_page, on_open=link_file.close)
    screens = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")  # else a browser would take the terminal
    shows = opens and (sys.platform != "linux" or any(map(os.environ.get, screens)))
    note = "The link works once, in one browser. Press Ctrl-C to stop."
    click.echo(f"{guard.link}\n\n{note}", err=True)
    if os.environ.get("SSH_CONNECTION"):
        tunnel = f"ssh -L {port}:127.0.0.1:{port} …"
        click.echo(f"From your own machine, forward the same port: {tunnel}", err=True)
    options: Any = {"proxy_headers": False, "server_header": False, "ws": "none"}
    config = uvicorn.Config(guard, log_level="warning", timeout_graceful_shutdown=3, **options)
    server = _Server(config)
    server.link, server.link_file = guard.link if shows else "", link_file
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Open the browser once signals are handled; clean up also after a signal."""

    link: str
    link_file: LinkFile

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.link:
            # in a thread: the command in BROWSER may block until it exits
            address = self.link_file.write(self.link)
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.link_file.close()
        await super().shutdown(sockets)
