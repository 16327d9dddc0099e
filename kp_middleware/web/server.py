"""Serve Datasette with our pages on this machine, behind the guard."""

import asyncio
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import click
import uvicorn
from datasette.app import Datasette

from kp_middleware.web.access import App, Guard, LinkFile, Receive, Scope, Send
from kp_middleware.web.databases import Addresses, our_files

_SETTINGS: Final = {
    "suggest_facets": False,  # with 100,000 traces, 2.4 s of a page's 2.5
    "default_page_size": 50,
    "allow_download": False,
    "num_sql_threads": 2,
    "sql_time_limit_ms": 2000,
}
_LAST_ANSWERS_S: Final = 3
_SCREENS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
_ALWAYS_A_SCREEN: Final = frozenset({"darwin", "win32"})


def serve(db: Path, *, port: int, opens: bool) -> None:
    """Serve until somebody types Ctrl-C.

    Args:
        db: A file of traces.
        port: Where to listen; 0 picks one that is free.
        opens: Whether to show the page in the browser.

    Raises:
        click.ClickException: If the port is taken.
    """
    # Half of what the first page would take is to load numpy, and a browser needs a moment, too.
    threading.Thread(target=import_module, args=("numpy",), daemon=True).start()
    with _listening(port) as listener:
        asyncio.run(_serve(db, listener, opens=opens))


async def _serve(db: Path, listener: socket.socket, *, opens: bool) -> None:
    app = _LatestFile(db.expanduser())
    datasette = await app.open()
    (name,) = our_files(datasette)
    first_page, port = Addresses(datasette, name).overview(), listener.getsockname()[1]
    link_file = LinkFile()
    guard = Guard(app, port=port, first_page=first_page, opened=link_file.remove)
    shows = opens and _has_screen(os.environ, sys.platform)
    click.echo("\n".join([guard.link, "", *_advice(port, opens=opens, shows=shows)]), err=True)
    if shows:  # in a thread: what BROWSER names may return only when it is left
        address = link_file.write(guard.link)
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    config = uvicorn.Config(
        guard,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ws="none",
    )
    await _Server(config, at_end=link_file.remove).serve(sockets=[listener])


class _LatestFile:
    """Datasette on the file that has this name now.

    It keeps its connections, so of a file that was replaced its tables would show the old one.
    """

    def __init__(self, db: Path) -> None:
        self._db = db

    async def open(self) -> Datasette:
        self._inode = self._db.stat().st_ino
        datasette = Datasette([str(self._db)], settings=_SETTINGS)
        await datasette.invoke_startup()
        self._app: App = datasette.app()
        return datasette

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(FileNotFoundError):
            if self._db.stat().st_ino != self._inode:
                await self.open()
        await self._app(scope, receive, send)


def _advice(port: int, *, opens: bool, shows: bool) -> list[str]:
    lines = ["The link opens one browser, once. Ctrl-C ends it."]
    if _is_far(os.environ):
        tunnel = f"ssh -L {port}:127.0.0.1:{port} …"
        lines.append(f"From where you sit, with the same port at both ends: {tunnel}")
    elif opens and not shows:
        lines.append("There is no screen here, so no browser was started: open the link yourself.")
    return lines


class _Server(uvicorn.Server):
    """One that tidies up also when a signal ends it: uvicorn raises that again as it returns."""

    def __init__(self, config: uvicorn.Config, *, at_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._at_end = at_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._at_end()
        await super().shutdown(sockets)


def _listening(port: int) -> socket.socket:
    """Listen on this machine alone; a browser that comes before the server is ready waits."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError as error:
        listener.close()
        problem = f"port {port} cannot be used ({error.strerror}): without --port, a free one is"
        raise click.ClickException(problem) from error
    return listener


def _has_screen(environment: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser would open on the user's own screen."""
    if any(environment.get(name) for name in _SCREENS):
        return True
    return platform in _ALWAYS_A_SCREEN and not _is_far(environment)


def _is_far(environment: Mapping[str, str]) -> bool:
    """Return whether the user is connected by ssh."""
    return bool(environment.get("SSH_CONNECTION"))
