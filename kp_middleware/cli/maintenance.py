"""The commands that maintain the trace database and the shared log."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from kp_middleware import shared_log
from kp_middleware.cli import console, options
from kp_middleware.cli.console import Progress, hint, progress
from kp_middleware.errors import KnowledgePulseError, SharedLogError
from kp_middleware.storage import Database, History, Pruning, SqliteStore, upgrade_file
from kp_middleware.views.wording import counted


@click.command()
@click.argument("file", type=options.FILE)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@options.json_option
@options.pass_db
def backup(db: Path, *, file: Path, force: bool) -> None:
    """Back up the trace database to FILE, readable only by you.

    Programs may keep recording. Verifies the copy. To restore it, stop all programs that record and
    replace the database with it, or pass it to --db. An old backup may need kp-middleware
    migrate first.

    \b
    kp-middleware backup november.db
    """
    with (
        History.open(db) as history,
        options.new_file(file, db=db, force=force) as temporary,
        Progress("pages copied") as bar,
    ):
        count = history.back_up(temporary, on_progress=bar.update)
    size_bytes = file.stat().st_size
    text = f"{file}  {size_bytes / 1e6:,.1f} MB, {counted(count, 'run')}"
    result = {"path": str(file), "size_bytes": size_bytes, "traces": count}
    console.print_result(result, text)


@click.command()
@options.json_option
@options.pass_db
def migrate(db: Path) -> None:
    """Upgrade a file, such as an old backup, to the current schema.

    Keeps a copy in the same folder. Programs that record upgrade their own file.

    \b
    kp-middleware migrate --db november.db
    """
    before, now, copy = upgrade_file(db)
    text = f"{db}: schema {now} is current"
    if copy is not None:
        text = f"{db}: upgraded from schema {before} to {now}; the old file is {copy}"
    copy_path = copy and str(copy)
    result = {"path": str(db), "schema_before": before, "schema": now, "copy": copy_path}
    console.print_result(result, text)


@click.command()
@options.json_option
@options.pass_db
def repair(db: Path) -> None:
    """Restore the readable part of a damaged file.

    Keeps a copy of the damaged file in the same folder. Programs that record repair damage by
    themselves, but only if they read it.

    \b
    kp-middleware repair
    """
    from kp_middleware.privacy import Policy

    settings = options.read_settings(db)
    if not db.exists():
        History.open(db)  # raises
    redactor = Policy.from_settings(settings).redactor
    rescue = SqliteStore.at(db).repair(destination=settings.registry_url, redactor=redactor)
    History.open(db).close()  # raises for another program's file, which is not repaired
    text, copy = f"{db}: nothing to repair", rescue and str(rescue.damaged_copy)
    if rescue is not None:
        text = f"{db}: {counted(rescue.traces, 'run')} restored; the damaged file is {copy}"
    console.print_result({"path": str(db), "traces": rescue and rescue.traces, "copy": copy}, text)


@click.command()
@options.older
@click.option("--keep", type=click.IntRange(min=0), help="Keep this many of the newest runs.")
@click.option("--below", type=options.UNIT, help="Only runs that scored less than this, 0 to 1.")
@click.option("--keep-sent", is_flag=True, help="Keep runs that were sent.")
@click.option("--unshipped", is_flag=True, help="Also remove runs waiting for the shared log.")
@options.domain
@click.option("--yes", is_flag=True, help="Remove runs instead of counting them.")
@options.json_option
@options.pass_db
def prune(db: Path, *, older: str | None, yes: bool, **criteria: Any) -> None:
    """Remove runs that match every filter, and their vectors.

    Runs waiting to be scored, sent, shipped or resumed are kept. Programs may keep recording.

    \b
    kp-middleware prune --older 90d --keep-sent           count only
    kp-middleware prune --keep 10000 --yes                remove them
    """
    if older is None and criteria["keep"] is None and criteria["below"] is None:
        raise click.UsageError("choose runs with --older, --keep or --below")
    with closing(options.open_to_write(db) if yes else Database(db, read_only=True)) as file:
        pruning, history = Pruning(file), History(file)
        selected = pruning.select(before=older, **criteria)
        count, counts = pruning.count(selected), history.counts()
        waiting = 0
        if any(history.shared_backlog()):
            waiting = pruning.count({**selected, "unshipped": True}) - count
        if yes:
            batches = progress(pruning.batches(selected), count, label="runs removed", size=int)
            count = 0
            for removed in batches:
                count += removed
                time.sleep(0.005)  # let other writers in
    kept = counts.recorded - count
    text = f"{count:,} {'removed' if yes else 'would be removed'}, {kept:,} kept"
    console.print_result({"dry_run": not yes, "removed": count, "kept": kept}, text)
    if count and not yes:
        console.warn("--yes removes them")
    elif count:
        hint("the file keeps its size and reuses the space; VACUUM in sqlite3 shrinks it")
    elif not waiting:
        hint("no run matches, or every match is waiting to be scored, sent or resumed")
    if waiting:
        remedy = "" if options.shared_url() else ": set KP_SHARED, or add --unshipped"
        hint(f"{waiting:,} wait for the shared log{remedy}")


@click.group()
def shared() -> None:
    """Prepare the PostgreSQL database that several hosts share.

    \b
    kp-middleware shared migrate            create the schema in KP_SHARED
    kp-middleware shared migrate --print    print the SQL for your DBA to run
    """


@shared.command("migrate")
@click.option("--print", "only_print", is_flag=True, help="Print the SQL and change nothing.")
@options.pass_db
def migrate_(db: Path, *, only_print: bool) -> None:
    """Create the schema kp in the database of KP_SHARED, unless it is current.

    The role in KP_SHARED needs permission to create a schema. Programs that record need fewer
    permissions, and never create one.

    \b
    KP_SHARED=postgresql://owner@db.internal/agents kp-middleware shared migrate
    """
    if only_print:
        click.echo(shared_log.schema_sql(), nl=False)
        return
    with closing(_connect(db, "migrate")) as link:
        created = link.migrate()
    click.echo(f"{link.address}: {'created' if created else 'is up to date'}")


@shared.command("delete")
@click.argument("trace_id", metavar="TRACE_ID")
@options.pass_db
def delete_(db: Path, *, trace_id: str) -> None:
    """Delete the text and vector of a run from the shared log.

    Other hosts delete the run when they next read the log; pull deletes it from copies. It stays in
    the file of the host that recorded it and in the registry. TRACE_ID is the full id, as in JSON.

    \b
    kp-middleware shared delete kp:trace:1339c0de-3f52-4d2b-9d2a-6b1f0c1f8f11
    """
    with closing(_connect(db, "delete")) as link:
        if not link.delete(trace_id):
            raise KnowledgePulseError(f"the shared log has no run {trace_id[:100]}")
    click.echo(f"deleted {trace_id}")


@click.command()
@click.option("--follow", is_flag=True, help="Keep pulling every 2 seconds until Ctrl-C.")
@options.pass_db
def pull(db: Path, *, follow: bool) -> None:
    """Copy the shared log into a separate database.

    Run it again to add new runs. Commands that only read, and the web page, work on the copy.
    Nothing is sent from it.

    \b
    kp-middleware pull --db fleet.db
    kp-middleware list --db fleet.db
    """
    from kp_middleware.pipeline import copy_log

    with closing(_connect(db, "pull", writes=False)) as link, Progress("runs") as bar:
        while True:
            try:
                if (copied := copy_log(link, db, bar.update)) or not follow:
                    click.echo(f"{db}: {copied:,} new runs")
            except SharedLogError as error:
                if not follow:
                    raise
                console.warn(str(error))
            if not follow:
                return
            time.sleep(2.0)


def _connect(db: Path, name: str, *, writes: bool = True) -> shared_log.Link:
    url = options.read_settings(db).shared
    if url is None:
        raise KnowledgePulseError("set KP_SHARED to the database: postgresql://user@host/database")
    return shared_log.Link(url.get_secret_value(), name, writes=writes)
