"""The ``shared`` commands: prepare the log that several hosts share."""

from pathlib import Path

import click

from kp_middleware.cli.user_settings import read_settings
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.sharing import Link, migrate, script


@click.group()
def shared() -> None:
    """Prepare the PostgreSQL database that several hosts share.

    \b
    kp-middleware shared migrate            create the schema in KP_SHARED
    kp-middleware shared migrate --print    print the SQL for somebody else to run
    """


@shared.command("migrate")
@click.option("--print", "only_print", is_flag=True, help="Print the SQL and change nothing.")
@click.pass_obj
def migrate_(db: Path, *, only_print: bool) -> None:
    """Create the schema kp in the database of KP_SHARED, or leave a current one unchanged.

    Its role needs the right to create a schema; programs that record need less, and never do this.

    \b
    KP_SHARED=postgresql://owner@db.internal/agents kp-middleware shared migrate
    """
    if only_print:
        click.echo(script(), nl=False)
        return
    url = read_settings(db).shared
    if url is None:
        raise KnowledgePulseError("set KP_SHARED to the database: postgresql://user@host/database")
    link = Link(url.get_secret_value(), "migrate")
    try:
        created = migrate(link)
    finally:
        link.close()
    click.echo(f"{link.shown}: {'created' if created else 'is up to date'}")
