"""The command that lists traces."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.input.filters import filter_options
from kp_middleware.cli.input.limit import limit_option
from kp_middleware.cli.installation.user_settings import wrong_settings
from kp_middleware.cli.output.rows import Output, output_options
from kp_middleware.cli.output.screen import screen_width
from kp_middleware.cli.output.trace_rows import (
    COLUMNS,
    for_people,
    tell_how_many,
    tell_if_none,
)
from kp_middleware.database import connect
from kp_middleware.storage import Filters, Listing

_FEWER: Final = ("id", "started_at", "score", "success", "state", "objective")
_FEWER_NEAR: Final = ("id", "started_at", "score", "margin", "state", "objective")
_ROOM: Final = 110


@click.command("list")
@limit_option()
@filter_options()
@click.option("--near", is_flag=True, help="Those nearest to their threshold first, on both sides.")
@output_options(columns=COLUMNS)
@click.pass_obj
def list_(db: Path, *, limit: int, filters: Filters, near: bool, output: Output) -> None:
    """List traces, the newest first.

    \b
    kp-middleware list --below --near -d code         what just missed
    kp-middleware list --failed --since 2d --nl       for a program
    """
    with closing(connect(db, read_only=True)) as connection:
        listing = Listing(connection)
        find = listing.nearest if near else listing.newest
        rows = find(filters, limit=limit)
        count = listing.count(filters) if len(rows) == limit else limit
    tell_if_none(rows)
    output.print(rows, _columns(output, near=near), for_people=for_people)
    tell_how_many(count, limit)
    for wrong in wrong_settings():
        click.echo(f"nothing is sent: {wrong}", err=True)


def _columns(output: Output, *, near: bool) -> tuple[str, ...]:
    if output.format != "table" or not sys.stdout.isatty() or screen_width() >= _ROOM:
        return COLUMNS
    return _FEWER_NEAR if near else _FEWER
