"""The commands that show runs in a browser: the pages, and a report."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kp_middleware.cli.console import hint, progress
from kp_middleware.cli.options import since_option
from kp_middleware.cli.rows import new_file
from kp_middleware.cli.user_settings import read_settings
from kp_middleware.errors import MissingExtraError
from kp_middleware.storage import History

if TYPE_CHECKING:
    from kp_middleware.web.pages import FullRun


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False), default="kp-report.html")
@since_option
@click.option("--as-recorded", "raw", is_flag=True, help="Do not redact its texts.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.pass_obj
def report(db: Path, *, out: Path, since: str | None, raw: bool, force: bool, opens: bool) -> None:
    """Write a self-contained HTML report: all charts, and the notable runs.

    Texts are redacted at your privacy_level, unless --as-recorded is given. OUT is readable by you
    alone; default: kp-report.html.

    \b
    kp-middleware report --since 7d --open
    kp-middleware report november.html --since 2026-11-01
    """
    from kp_middleware.web.report import (
        cleaning_by,
        no_cleaning,
        read_report,
        report_html,
    )

    settings = read_settings(db)
    cleaning = no_cleaning() if raw else cleaning_by(settings)
    with new_file(out, db=db, force=force) as unfinished:
        with History.open(db) as history:
            found = read_report(history, db, since, cleaning, settings, raw=raw, progress=_progress)
        unfinished.write_text(report_html(found), encoding="utf-8")
    if cleaning.left_out:
        click.echo(
            f"{_texts(cleaning.left_out)} could not be redacted: the report says so instead",
            err=True,
        )
    told = f"{len(found.runs)} {'run' if len(found.runs) == 1 else 'runs'} in full"
    hint(f"{told}, {len(found.listed)} listed, in {out}")
    if opens:
        import webbrowser

        webbrowser.open(out.expanduser().resolve().as_uri())


def _progress(told: "Iterable[FullRun]", total: int) -> "Iterable[FullRun]":
    return progress(told, total=total, what="runs written")


def _texts(number: int) -> str:
    return "1 text" if number == 1 else f"{number:,} texts"


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; default: a free one.")
@click.option(
    "--open/--no-open", "opens", default=True, help="Open the browser, or only print the link."
)
@click.pass_obj
def ui(db: Path, *, port: int, opens: bool) -> None:
    """Open the web page: charts, runs and tables.

    Serves Datasette with our pages on 127.0.0.1, read-only. The link works once, in one browser.
    Programs may keep recording. Ctrl-C stops the server.

    From another machine, forward the same port as in the second example, and open the link there.

    \b
    kp-middleware ui
    ssh -t -L 8001:127.0.0.1:8001 HOST kp-middleware ui --port 8001 --no-open
    """
    History.open(db).close()  # what is wrong with the file is said here
    try:
        from kp_middleware.web.server import serve
    except ModuleNotFoundError as error:
        raise MissingExtraError("ui") from error
    serve(db, port=port, opens=opens)
