"""Datasette with our pages, behind the guard."""

import asyncio
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Final

import click
import rich
import uvicorn
from datasette.app import Datasette

from kp_middleware.inspection.datasette_plugin import Addresses, our_files
from kp_middleware.inspection.server._guard import Guard

_SETTINGS: Final = {
    "suggest_facets": False,  # with 100,000 traces, 2.4 s of a page's 2.5
    "default_page_size": 50,
    "allow_download": False,
    "num_sql_threads": 2,
    "sql_time_limit_ms": 2000,
}
_LAST_ANSWERS_S: Final = 3


def serve(db: Path, *, port: int, opens: bool) -> None:
    """Until somebody types Ctrl-C.

    Args:
        db: A file of traces.
        port: Where to listen; 0 picks one that is free.
        opens: Whether to show the page in the browser.

    Raises:
        click.ClickException: If the port is taken.
    """
    rich.reconfigure(quiet=True)  # Datasette prints there, with all locals, what was not found
    with _listening(port) as listener:
        asyncio.run(_serve(db, listener, opens=opens))


async def _serve(db: Path, listener: socket.socket, *, opens: bool) -> None:
    datasette = Datasette([str(db.expanduser())], settings=_SETTINGS)
    await datasette.invoke_startup()
    (name,) = our_files(datasette)
    first_page = Addresses(datasette, name).overview()
    guard = Guard(datasette.app(), port=listener.getsockname()[1], first_page=first_page)
    click.echo(f"{guard.link}\n\nThe link opens one browser, once. Ctrl-C ends it.", err=True)
    if opens:  # in a thread: a browser in the terminal returns when it is left
        threading.Thread(target=webbrowser.open, args=(guard.link,), daemon=True).start()
    config = uvicorn.Config(
        guard,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LAST_ANSWERS_S,
        ws="none",
    )
    await uvicorn.Server(config).serve(sockets=[listener])


def _listening(port: int) -> socket.socket:
    """On this machine alone; a browser that comes before the server is ready waits."""
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
