"""The command that writes what is worth a look into one page, to keep or to show."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kp_middleware.cli.input.since import since_option
from kp_middleware.cli.installation.user_settings import read_settings
from kp_middleware.cli.output.manners import hint
from kp_middleware.cli.output.new_file import new_file
from kp_middleware.cli.output.progress import progress
from kp_middleware.database import connect

if TYPE_CHECKING:
    from kp_middleware.web.report import FullRun


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False), default="kp-report.html")
@since_option
@click.option("--raw", is_flag=True, help="Take nothing out of its texts.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.pass_obj
def report(db: Path, *, out: Path, since: str | None, raw: bool, force: bool, opens: bool) -> None:
    """Write OUT, one HTML page with all pictures and the traces worth a look.

    It opens from the disk, fetches nothing and needs nothing beside it. What must not be shared is
    taken out of its texts at your privacy_level, unless --raw is given. OUT is for you alone to
    read; without it, kp-report.html.

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
        with closing(connect(db, read_only=True)) as connection:
            found = read_report(
                connection, db, since, cleaning, settings, raw=raw, progress=_progress
            )
        unfinished.write_text(report_html(found), encoding="utf-8")
    if cleaning.left_out:
        click.echo(
            f"{_texts(cleaning.left_out)} could not be redacted: the report says so instead",
            err=True,
        )
    told = f"{len(found.runs)} {'trace' if len(found.runs) == 1 else 'traces'} in full"
    hint(f"{told}, {len(found.listed)} listed, in {out}")
    if opens:
        import webbrowser

        webbrowser.open(out.expanduser().resolve().as_uri())


def _progress(told: "Iterable[FullRun]", total: int) -> "Iterable[FullRun]":
    return progress(told, total=total, what="traces written")


def _texts(number: int) -> str:
    return "1 text" if number == 1 else f"{number:,} texts"
