"""The command that counts."""

import sys
from contextlib import closing
from pathlib import Path

import click

from kp_middleware.database import connect
from kp_middleware.inspection._output import json_option, print_json, print_table
from kp_middleware.storage import History, Row


@click.command()
@json_option
@click.pass_obj
def stats(db: Path, *, as_json: bool) -> None:
    """Count what was recorded, cleared and sent."""
    with closing(connect(db, read_only=True)) as connection:
        numbers = History(connection).stats()
    if as_json or not sys.stdout.isatty():
        print_json(numbers)
    else:
        _print_stats(numbers)


def _print_stats(numbers: Row) -> None:
    for name in ("recorded", "cleared", "queued", "sent", "blocked", "rejected"):
        click.echo(f"{name:<10}{numbers[name]:>8}")
    for title in ("domains", "scores", "states", "tools"):
        rows = numbers[title]
        if rows:
            click.echo()
            print_table(rows, [*rows[0]])
