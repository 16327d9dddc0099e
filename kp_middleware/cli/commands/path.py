"""The command that names the file."""

from pathlib import Path

import click

from kp_middleware.cli.output.rows import json_option, print_json


@click.command()
@json_option
@click.pass_obj
def path(db: Path, *, as_json: bool) -> None:
    """Print where the file of traces is, or would be.

    \b
    sqlite3 "$(kp-middleware path)"
    """
    if as_json:
        print_json({"path": str(db), "exists": db.exists()})
    else:
        click.echo(db)
