"""The ``shared`` and ``pull`` commands: the log that several hosts share, and copies of it."""

import time
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.console import Progress
from kp_middleware.cli.user_settings import pass_db, read_settings
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.sharing import Link, delete, migrate, script

_LOOK_AGAIN_S: Final = 2.0


@click.group()
def shared() -> None:
    """Prepare the PostgreSQL database that several hosts share.

    \b
    kp-middleware shared migrate            create the schema in KP_SHARED
    kp-middleware shared migrate --print    print the SQL for somebody else to run
    """


@shared.command("migrate")
@click.option("--print", "only_print", is_flag=True, help="Print the SQL and change nothing.")
@pass_db
def migrate_(db: Path, *, only_print: bool) -> None:
    """Create the schema kp in the database of KP_SHARED, or leave a current one unchanged.

    The role in KP_SHARED needs the right to create a schema. Programs that record need fewer
    rights, and never create one.

    \b
    KP_SHARED=postgresql://owner@db.internal/agents kp-middleware shared migrate
    """
    if only_print:
        click.echo(script(), nl=False)
        return
    with closing(_link(db, "migrate")) as link:
        created = migrate(link)
    click.echo(f"{link.shown}: {'created' if created else 'is up to date'}")


@shared.command("delete")
@click.argument("trace_id", metavar="TRACE_ID")
@pass_db
def delete_(db: Path, *, trace_id: str) -> None:
    """Delete the text and the vector of a run in the shared log.

    Other hosts forget the run when they next read the log, and copies when they are next pulled.
    The host that recorded it keeps it in its file, and so does the registry. TRACE_ID is the whole
    id, as `pull` and `sql` show it.

    \b
    kp-middleware shared delete kp:trace:1339c0de-3f52-4d2b-9d2a-6b1f0c1f8f11
    """
    with closing(_link(db, "delete")) as link:
        if not delete(link, trace_id):
            raise KnowledgePulseError(f"the shared log has no run {trace_id[:100]}")
    click.echo(f"deleted {trace_id}")


@click.command()
@click.option("--follow", is_flag=True, help="Keep pulling every 2 seconds until Ctrl-C.")
@pass_db
def pull(db: Path, *, follow: bool) -> None:
    """Copy the shared log to a file of its own.

    Run it again to add new runs. Every command and page works on the copy. Nothing is sent from
    it.

    \b
    kp-middleware pull --db fleet.db
    kp-middleware list --db fleet.db
    """
    from kp_middleware.pipeline import copy_log

    with closing(_link(db, "pull", writes=False)) as link, Progress("runs") as progress:
        while True:
            copied = copy_log(link, db, progress.reach)
            click.echo(f"{db}: {copied:,} new runs")
            if not follow:
                return
            time.sleep(_LOOK_AGAIN_S)


def _link(db: Path, name: str, *, writes: bool = True) -> Link:
    url = read_settings(db).shared
    if url is None:
        raise KnowledgePulseError("set KP_SHARED to the database: postgresql://user@host/database")
    return Link(url.get_secret_value(), name, writes=writes)
