"""The command that finds traces by their words."""

from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.input.filters import filter_options
from kp_middleware.cli.input.limit import limit_option
from kp_middleware.cli.output.rows import Output, output_options
from kp_middleware.cli.output.trace_rows import for_people, tell_how_many, tell_if_none
from kp_middleware.database import connect
from kp_middleware.storage import Filters, Listing

_COLUMNS: Final = ("id", "started_at", "domain", "score", "state", "snippet")


def _together(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> str:
    """Quotes are for neighbours, not needed for several words."""
    return " ".join(words)


@click.command()
@click.argument("text", nargs=-1, required=True, callback=_together)
@limit_option()
@filter_options(text=False)
@output_options()
@click.pass_obj
def search(db: Path, *, limit: int, filters: Filters, output: Output) -> None:
    """Find traces by the words of objective and result, the best match first.

    All words must be there, in any form: "orders" finds "order". What FTS5 understands may be
    typed, too: "memory leak" in quotes for neighbours, leak*, leak OR crash, objective:leak.
    Words of scripts without blanks, such as Chinese, and emoji are found anywhere in a text, the
    newest first.

    \b
    kp-middleware search memory leak -d code --failed
    kp-middleware search '"memory leak"'
    kp-middleware search "leak* NOT worker"
    """
    with closing(connect(db, read_only=True)) as connection:
        listing = Listing(connection)
        rows = listing.found(filters, limit=limit)
        count = listing.count(filters) if len(rows) == limit else limit
    tell_if_none(rows)
    output.print(rows, _COLUMNS, for_people=for_people)
    tell_how_many(count, limit)
