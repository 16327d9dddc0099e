"""The command that lays two traces side by side."""

from contextlib import closing
from pathlib import Path

import click

from kp_middleware.cli.input.names import trace_id_argument
from kp_middleware.cli.lines.comparison import comparison_lines
from kp_middleware.cli.output.rows import json_option, print_json
from kp_middleware.cli.output.screen import screen_width
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.comparison import compared


@click.command()
@trace_id_argument("left", metavar="A")
@trace_id_argument("right", metavar="B")
@json_option
@click.pass_obj
def diff(db: Path, *, left: str, right: str, as_json: bool) -> None:
    """Lay two traces side by side: what they were, their scores, and the order of their steps.

    A and B are beginnings of ids, @last or @best. Steps are the same if their type and tool are.

    \b
    kp-middleware diff 1339c0 @last
    """
    with closing(connect(db, read_only=True)) as connection:
        history = History(connection)
        ours, theirs = (history.trace(history.find(name)) for name in (left, right))
    comparison = compared(ours, theirs)
    if as_json:
        print_json(comparison.as_row())
    else:
        click.echo("\n".join(comparison_lines(comparison, screen_width())))
