"""The command line. Each command reads the file, or runs one thing and says what it did."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kp_middleware import locations
from kp_middleware.database import connect
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.inspection._explanation import arithmetic, short_id, whereabouts
from kp_middleware.inspection._outbox import outbox
from kp_middleware.inspection._output import (
    json_option,
    print_json,
    print_rows_or_table,
    print_table,
)
from kp_middleware.inspection._prune import prune
from kp_middleware.inspection._redact import redact
from kp_middleware.inspection._show import trace_lines
from kp_middleware.inspection._status import status
from kp_middleware.storage import History, Row

if TYPE_CHECKING:
    from click import Group as DefaultGroup  # the package has no types
else:
    from click_default_group import DefaultGroup

_LIST_COLUMNS = (
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


class _Group(DefaultGroup):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KnowledgePulseError as error:
            raise click.ClickException(str(error)) from error


@click.group(
    cls=_Group,
    default="list",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="KP_DB",
    help="The file of traces. Default: KP_DB, or kp.db in your data folder.",
)
@click.version_option(package_name="kp-middleware", message="%(version)s")
@click.pass_context
def cli(context: click.Context, db: Path | None) -> None:
    """Look at what your agents did, how it scored, and what was sent.

    \b
    kp-middleware demo          see it work, on this machine alone
    kp-middleware               the newest traces
    kp-middleware show @last    why the last one scored as it did
    """
    context.obj = db or locations.database_file()
    if context.invoked_subcommand is None:
        context.invoke(list_)


@cli.command("list")
@click.option("-n", "--limit", default=20, show_default=True, help="How many, newest first.")
@click.option("-d", "--domain", help="Only traces of this domain.")
@click.option("--above/--below", default=None, help="Only those that reached the threshold or not.")
@json_option
@click.pass_obj
def list_(db: Path, *, limit: int, domain: str | None, above: bool | None, as_json: bool) -> None:
    """List the newest traces.

    \b
    kp-middleware list --below -d code
    """
    with closing(connect(db, read_only=True)) as connection:
        history = History(connection)
        rows = history.latest(limit, domain=domain, above=above)
        count = history.count()
    print_rows_or_table(rows, _LIST_COLUMNS, as_json=as_json, for_people=_for_people)
    if len(rows) == limit < count:
        click.echo(f"{count} traces in all: -n shows more", err=True)


@cli.command()
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


@cli.command()
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


@cli.command()
@json_option
@click.pass_obj
def path(db: Path, *, as_json: bool) -> None:
    """Print where the file of traces is."""
    if as_json:
        print_json({"path": str(db), "exists": db.exists()})
    else:
        click.echo(db)


@cli.command()
@json_option
@click.pass_obj
def doctor(db: Path, *, as_json: bool) -> None:
    """Check the file, the model and the registry; exit with 3 if one cannot be used."""
    from kp_middleware.inspection._doctor import examine
    from kp_middleware.scoring import DEFAULT_EMBEDDER

    findings = [*examine(db, DEFAULT_EMBEDDER)]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            click.echo(
                f"{'ok' if finding.ok else 'TROUBLE':<8} {finding.check:<9} {finding.detail}"
            )
    if not all(finding.ok for finding in findings):
        sys.exit(3)


@cli.command()
@click.option(
    "--into", type=click.Path(path_type=Path, dir_okay=False), help="Keep its traces here."
)
@json_option
def demo(*, into: Path | None, as_json: bool) -> None:
    """See it work: a scripted agent, real tools, the real model.

    Needs no key, no account and no network; nothing leaves this machine. Shows what was kept,
    what would be sent, and why.
    """
    from kp_middleware.inspection._demo import run_demo

    run_demo(into, as_json=as_json)


cli.add_command(outbox)
cli.add_command(prune)
cli.add_command(redact)
cli.add_command(status)


def _for_people(row: Row) -> Row:
    return row | {
        "id": short_id(row["id"]),
        "started_at": row["started_at"][:16].replace("T", " "),
        "success": "yes" if row["success"] else "no",
    }


def _print_stats(numbers: Row) -> None:
    for name in ("recorded", "cleared", "queued", "sent", "blocked", "rejected"):
        click.echo(f"{name:<10}{numbers[name]:>8}")
    for title in ("domains", "scores", "states", "tools"):
        rows = numbers[title]
        if rows:
            click.echo()
            print_table(rows, [*rows[0]])
