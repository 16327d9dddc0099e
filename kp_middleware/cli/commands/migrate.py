"""The command that makes a file of an older version readable."""

from pathlib import Path

import click

from kp_middleware.cli.output.rows import json_option, print_json
from kp_middleware.database import bring_up_to_date


@click.command()
@json_option
@click.pass_obj
def migrate(db: Path, *, as_json: bool) -> None:
    """Bring a file of an older version to this one's schema: a backup that was made before it.

    A copy of it as it was is kept beside it. No run is added. A program that records does the same
    with its file by itself.

    \b
    kp-middleware migrate --db traces-of-november.db
    """
    before, now, copy = bring_up_to_date(db)
    if as_json:
        kept = str(copy) if copy else None
        print_json({"path": str(db), "schema_before": before, "schema": now, "copy": kept})
    elif copy is None:
        click.echo(f"{db}: has schema {now}, which is this version's: nothing to do")
    else:
        click.echo(f"{db}: brought from schema {before} to {now}; as it was: {copy}")
