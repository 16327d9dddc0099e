"""The command that lists traces."""

from contextlib import closing
from pathlib import Path

import click

from kp_middleware.database import connect
from kp_middleware.inspection._explanation import short_id
from kp_middleware.inspection._output import Output, output_options
from kp_middleware.storage import History, Row

_COLUMNS = (
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


@click.command("list")
@click.option("-n", "--limit", default=20, show_default=True, help="How many, newest first.")
@click.option("-d", "--domain", help="Only traces of this domain.")
@click.option("--above/--below", default=None, help="Only those that reached the threshold or not.")
@output_options()
@click.pass_obj
def list_(db: Path, *, limit: int, domain: str | None, above: bool | None, output: Output) -> None:
    """List the newest traces.

    \b
    kp-middleware list --below -d code
    """
    with closing(connect(db, read_only=True)) as connection:
        history = History(connection)
        rows = history.latest(limit, domain=domain, above=above)
        count = history.count()
    if len(rows) == limit < count:
        click.echo(f"{count} traces in all: -n shows more", err=True)
    output.print(rows, _COLUMNS, for_people=for_people)


def for_people(row: Row) -> Row:
    """A row of a list as it is read: a short id, minutes, a word for success."""
    return row | {
        "id": short_id(row["id"]),
        "started_at": row["started_at"][:16].replace("T", " "),
        "success": "yes" if row["success"] else "no",
    }
