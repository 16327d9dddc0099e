"""Serve Datasette with our pages on this machine, only to a browser that has opened the link."""

import asyncio
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import click
import uvicorn
from datasette.app import Datasette

from kp_middleware.web.marks import prepare_templates
from kp_middleware.web.plugin import FORM_KEY, Addresses, our_files

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_DOOR: Final = "/-/kp-open"
_UNKNOWN: Final = "Open the link that kp-middleware ui printed.\n"
_USED: Final = "This link is no longer good: type kp-middleware ui again for a new one.\n"
_NO_SCREEN: Final = "There is no screen here, so no browser was started: open the link yourself."
_ANOTHER_NAME: Final = (
    "This page is at http://127.0.0.1:{0} and nowhere else. Through a tunnel, use the same port at"
    " both ends: ssh -L {0}:127.0.0.1:{0} …\n"
)
_CONFINED: Final = {
    # nothing from outside, whatever a trace says; and where a link leads outside, no word of us
    "content-security-policy": "default-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_OURS: Final = {"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}
_PREFIX: Final = "kp-middleware-ui-"
_LEADS_ON: Final = (
    '<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<title>kp-middleware</title><meta http-equiv="refresh" content="0; url={0}">'
    '<a href="{0}">Open</a>'
)


class Guard:
    """ASGI middleware that admits only browsers that have opened the link.

    A page of another site could have its name lead to this machine, and then read what is here as
    if it were its own: such a name is refused. Another user of this machine knows no link.
    """

    def __init__(
        self, app: App, *, port: int, first_page: str, opened: Callable[[], None] = lambda: None
    ) -> None:
        self._app = app
        self._port = port
        self._opened = opened
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"kp-ui-{port}"  # cookies do not tell ports apart
        self._first_page = first_page
        self._once = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._form_token = secrets.token_urlsafe(24)
        self.link = f"http://127.0.0.1:{port}{_DOOR}?once={self._once}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        if headers.get("host", "").lower() not in self._hosts:
            await _say(send, HTTPStatus.MISDIRECTED_REQUEST, _ANOTHER_NAME.format(self._port))
            return
        is_known = self._is_known(headers.get("cookie", ""))
        if scope["path"] == _DOOR:
            await self._open(scope, send, is_known=is_known)
        elif is_known and scope["path"] == "/":
            await _say(send, HTTPStatus.FOUND, "", {"location": self._first_page})
        elif is_known:
            await self._app({**scope, FORM_KEY: self._form_token}, receive, _confining(send))
        else:
            await _say(send, HTTPStatus.FORBIDDEN, _UNKNOWN)

    async def _open(self, scope: Scope, send: Send, *, is_known: bool) -> None:
        """Open once: what is left in a history or a log opens nothing.

        The page that leads on is one of ours, because a browser that was led here by a page of
        somebody else would not show its cookie along a redirect.
        """
        headers = {"content-type": "text/html; charset=utf-8"}
        if not is_known:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("once", [""])[0]
            if scope["method"] != "GET" or not self._once or not _equal(given, self._once):
                await _say(send, HTTPStatus.FORBIDDEN, _USED)
                return
            self._once = ""
            self._opened()
            cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
            headers["set-cookie"] = cookie
        await _say(send, HTTPStatus.OK, _LEADS_ON.format(self._first_page), headers)

    def _is_known(self, cookies: str) -> bool:
        """Read cookies by hand: what other programs of this machine set may be malformed."""
        pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
        return any(
            name == self._cookie and _equal(value, self._session) for name, _, value in pairs
        )


class LinkFile(ExitStack):
    """A page that leads on to the link, until it is closed.

    Every user of a machine can read with which words a browser was started, so they name this file
    and not the link.
    """

    def write(self, link: str) -> str:
        """Return the address of the file."""
        try:  # in the home folder, visible: sandboxed browsers see no other
            folder = self.enter_context(TemporaryDirectory(prefix=_PREFIX, dir=Path.home()))
        except (OSError, RuntimeError):
            folder = self.enter_context(TemporaryDirectory(prefix=_PREFIX))
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(_LEADS_ON.format(link), encoding="utf-8")
        return page.as_uri()


def _equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())


def _confining(send: Send) -> Send:
    async def confined(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_raw(_CONFINED)]}
        await send(message)

    return confined


async def _say(
    send: Send, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
) -> None:
    told = {**_CONFINED, **_OURS, **(headers or {})}
    await send({"type": "http.response.start", "status": int(status), "headers": _raw(told)})
    await send({"type": "http.response.body", "body": text.encode()})


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), text.encode()) for name, text in headers.items()]


_SETTINGS: Final = {
    "suggest_facets": False,  # with 100,000 traces, 2.4 s of a page's 2.5
    "default_page_size": 50,
    "allow_download": False,
    "num_sql_threads": 2,
    "sql_time_limit_ms": 2000,
}
_LAST_ANSWERS_S: Final = 3


def serve(db: Path, *, port: int, opens: bool) -> None:
    """Serve until Ctrl-C; port 0 picks one that is free."""
    # Half of what the first page would take is to load these, and a browser needs a moment, too.
    for load in (partial(import_module, "numpy"), prepare_templates):
        threading.Thread(target=load, daemon=True).start()
    try:  # a browser that comes before the server is ready waits
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        problem = f"port {port} cannot be used ({error.strerror}): without --port, a free one is"
        raise click.ClickException(problem) from error
    with listener:
        asyncio.run(_serve(db, listener, opens=opens))


async def _serve(db: Path, listener: socket.socket, *, opens: bool) -> None:
    datasette = Datasette([str(db.expanduser())], settings=_SETTINGS)
    await datasette.invoke_startup()
    (name,) = our_files(datasette)
    first_page, port = Addresses(datasette, name).to(), listener.getsockname()[1]
    link_file = LinkFile()
    guard = Guard(datasette.app(), port=port, first_page=first_page, opened=link_file.close)
    shows = opens and (
        any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
        or (sys.platform in {"darwin", "win32"} and not os.environ.get("SSH_CONNECTION"))
    )
    click.echo(f"{guard.link}\n\nThe link opens one browser, once. Ctrl-C ends it.", err=True)
    if os.environ.get("SSH_CONNECTION"):
        tunnel = f"ssh -L {port}:127.0.0.1:{port} …"
        click.echo(f"From where you sit, with the same port at both ends: {tunnel}", err=True)
    elif opens and not shows:
        click.echo(_NO_SCREEN, err=True)
    config = uvicorn.Config(
        guard,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ws="none",
    )
    server = _Server(config)
    server.link, server.link_file = guard.link if shows else "", link_file
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Show the link once signals are handled, and tidy up also when one ends it."""

    link: str
    link_file: LinkFile

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.link:
            # in a thread: what BROWSER names may return only when it is left
            address = self.link_file.write(self.link)
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.link_file.close()
        await super().shutdown(sockets)
