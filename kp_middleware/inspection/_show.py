"""The command that shows one trace."""

import sys
from contextlib import closing
from pathlib import Path

import click

from kp_middleware.database import connect
from kp_middleware.inspection._explanation import arithmetic, whereabouts
from kp_middleware.inspection._output import json_option, print_json
from kp_middleware.inspection._trace_lines import trace_lines
from kp_middleware.storage import History


@click.command()
@click.argument("trace_id", metavar="ID")
@json_option
@click.pass_obj
def show(db: Path, *, trace_id: str, as_json: bool) -> None:
    """Show why one trace scored as it did, and where it went.

    ID is the beginning of its id, @last or @best.

    \b
    kp-middleware show 1339c0
    """
    with closing(connect(db, read_only=True)) as connection:
        history = History(connection)
        trace = history.trace(history.find(trace_id))
    if as_json or not sys.stdout.isatty():
        lines = [line._asdict() for line in arithmetic(trace)]
        print_json({**trace, "arithmetic": lines, "whereabouts": whereabouts(trace)})
    else:
        click.echo("\n".join(trace_lines(trace)))
