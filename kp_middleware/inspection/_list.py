"""The command that lists traces."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.database import connect
from kp_middleware.inspection._explanation import short_id
from kp_middleware.inspection._filters import filter_options
from kp_middleware.inspection._manners import hint
from kp_middleware.inspection._output import Output, output_options
from kp_middleware.inspection._screen import screen_width
from kp_middleware.storage import COUNTED, Filters, Listing, Row

COLUMNS: Final = (
    "id",
    "started_at",
    "domain",
    "score",
    "margin",
    "step_count",
    "tool_count",
    "success",
    "state",
    "objective",
)
"""What TSV, CSV and a table that has the room show of each trace."""

_FEWER: Final = ("id", "started_at", "score", "success", "state", "objective")
_ROOM: Final = 110

_MOST: Final = 2**63 - 1  # SQLite has no larger number

limit_option = click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    callback=lambda _, __, number: min(number, _MOST),
    help="How many.",
)


@click.command("list")
@limit_option
@filter_options()
@click.option("--near", is_flag=True, help="Those nearest to the threshold first, on both sides.")
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
    tell_how_many(count, limit)
    tell_if_none(rows)
    output.print(rows, _columns(output), for_people=for_people)


def _columns(output: Output) -> tuple[str, ...]:
    narrow = output.format == "table" and sys.stdout.isatty() and screen_width() < _ROOM
    return _FEWER if narrow else COLUMNS


def tell_how_many(count: int, limit: int) -> None:
    """That not all are shown."""
    if count > limit:
        told = f"{count:,}" if count <= COUNTED else f"more than {COUNTED:,}"
        hint(f"{told} traces in all: -n shows more")


def tell_if_none(rows: Sequence[Row]) -> None:
    """That nothing is no mistake of the terminal."""
    if not rows:
        hint("nothing matches")


def for_people(row: Row) -> Row:
    """A row of a list as it is read: a short id, minutes, a sign, a word for success."""
    margin = row["margin"]
    return row | {
        "id": short_id(row["id"]),
        "started_at": row["started_at"][:16].replace("T", " "),
        "margin": None if margin is None else f"{margin:+.4f}",
        "success": "yes" if row["success"] else "no",
    }
