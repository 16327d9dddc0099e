"""The commands that show runs in a browser: the pages, and a report."""

from functools import partial
from pathlib import Path

import click

from kp_middleware.cli.console import hint, progress
from kp_middleware.cli.options import since_option
from kp_middleware.cli.rows import new_file
from kp_middleware.cli.user_settings import pass_db, read_settings
from kp_middleware.errors import MissingExtraError
from kp_middleware.storage import History
from kp_middleware.views.wording import counted


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False), default="kp-report.html")
@since_option
@click.option("--as-recorded", "raw", is_flag=True, help="Do not redact texts.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@pass_db
def report(db: Path, *, out: Path, since: str | None, raw: bool, force: bool, opens: bool) -> None:
    """Write an HTML report: all charts and the notable runs.

    Texts are redacted at your privacy_level, unless --as-recorded is given. OUT is readable by you
    alone; default: kp-report.html.

    \b
    kp-middleware report --since 7d --open
    kp-middleware report november.html --since 2026-11-01
    """
    from kp_middleware.web.report import Cleaning, cleaning_by, make_report

    settings = read_settings(db)
    cleaning = Cleaning(lambda value: value) if raw else cleaning_by(settings)
    level = None if raw else settings.privacy_level
    shown = partial(progress, what="runs written")
    with new_file(out, db=db, force=force) as unfinished:
        with History.open(db) as history:
            made = make_report(history, db, since, cleaning, level, progress=shown)
        unfinished.write_text(made.html, encoding="utf-8")
    if cleaning.left_out:
        left_out = counted(cleaning.left_out, "text")
        click.echo(f"{left_out} could not be redacted, and are left out", err=True)
    hint(f"{counted(made.runs, 'run')} in full, {made.listed:,} listed, in {out}")
    if opens:
        import webbrowser

        webbrowser.open(out.expanduser().resolve().as_uri())


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; default: a free one.")
@click.option(
    "--open/--no-open", "opens", default=True, help="Open the browser, or only print the link."
)
@pass_db
def ui(db: Path, *, port: int, opens: bool) -> None:
    """Open the web page: charts, runs and tables.

    Serves Datasette with our pages on 127.0.0.1. The link works once, in one browser. Programs may
    keep recording. Ctrl-C stops the server.

    To use a browser on another machine, forward the port as in the second example.

    \b
    kp-middleware ui
    ssh -t -L 8001:127.0.0.1:8001 HOST kp-middleware ui --port 8001 --no-open
    """
    History.open(db).close()  # fail here if the file is unusable
    try:
        from kp_middleware.web.server import serve
    except ModuleNotFoundError as error:
        raise MissingExtraError("ui") from error
    serve(db, port=port, opens=opens)
