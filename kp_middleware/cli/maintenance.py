"""The commands that change stored runs: back up, migrate, prune, rescore, feedback."""

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli.console import Progress, cell, hint, progress
from kp_middleware.cli.options import (
    UNIT,
    domain_option,
    older_option,
    since_option,
    trace_id_argument,
)
from kp_middleware.cli.rows import json_option, new_file, print_json
from kp_middleware.cli.user_settings import (
    hint_at_another_gate,
    open_to_write,
    pass_db,
    read_settings,
    wait_for_model,
)
from kp_middleware.errors import EmbedderUnavailableError
from kp_middleware.storage import (
    Database,
    History,
    PastRuns,
    Pruning,
    Run,
    Selection,
    SharedRuns,
    SqliteStore,
    bring_up_to_date,
    vacuum,
)
from kp_middleware.views.trace import delivery_status
from kp_middleware.views.wording import counted, one_line, outcome, short_id

if TYPE_CHECKING:
    from kp_middleware.pipeline import Rescoring
    from kp_middleware.settings import Settings

_GIVE_WAY_S: Final = 0.005
_COUNTS: Final = {
    "changed": "changed",
    "unchanged": "unchanged",
    "cleared": "clear now",
    "queued": "queued",
    "withdrawn": "no longer clear",
    "cancelled": "cancelled in the outbox",
    "left": "left in the outbox: sent, being sent or rejected",
    "overtaken": "removed or recorded again meanwhile",
    "unscored": "cannot be scored",
    "embedded": "embedded",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@pass_db
def backup(db: Path, *, file: Path, force: bool, as_json: bool) -> None:
    """Back up the trace database to FILE, readable only by you.

    Programs may keep recording. The copy is verified. To restore it, replace the database with it
    while no program records, or name it with --db. An old backup may need kp-middleware migrate
    --db FILE first.

    \b
    kp-middleware backup november.db
    """
    with (
        History.open(db) as history,
        new_file(file, db=db, force=force) as unfinished,
        Progress("pages copied") as shown,
    ):
        count = history.back_up(unfinished, tell=shown.reach)
    size_bytes = file.stat().st_size
    if as_json:
        print_json({"path": str(file), "size_bytes": size_bytes, "traces": count})
    else:
        click.echo(f"{file}  {size_bytes / 1e6:,.1f} MB, {counted(count, 'run')}")


@click.command()
@json_option
@pass_db
def migrate(db: Path, *, as_json: bool) -> None:
    """Upgrade a file, such as an old backup, to the current schema.

    Keeps a copy beside it. Programs that record upgrade their own file.

    \b
    kp-middleware migrate --db november.db
    """
    before, now, copy = bring_up_to_date(db)
    if as_json:
        kept = str(copy) if copy else None
        print_json({"path": str(db), "schema_before": before, "schema": now, "copy": kept})
    elif copy is None:
        click.echo(f"{db}: schema {now} is current")
    else:
        click.echo(f"{db}: upgraded from schema {before} to {now}; the old file is {copy}")


@click.command()
@older_option
@click.option("--keep", type=click.IntRange(min=0), help="Keep this many of the newest.")
@click.option("--below", type=UNIT, help="Only runs that scored less than this, 0 to 1.")
@click.option("--keep-sent", is_flag=True, help="Keep runs that were sent.")
@domain_option
@click.option("--yes", is_flag=True, help="Remove runs instead of counting them.")
@click.option("--vacuum", "shrink", is_flag=True, help="Shrink the file.")
@json_option
@pass_db
def prune(
    db: Path, /, *, older: str | None, yes: bool, shrink: bool, as_json: bool, **rules: Any
) -> None:
    """Remove runs that match every filter, and their vectors.

    Runs waiting to be scored, sent, shipped or resumed are kept. Programs may keep recording.

    \b
    kp-middleware prune --older 90d --keep-sent           count only
    kp-middleware prune --keep 10000 --vacuum --yes       remove them
    """
    if older is None and rules["keep"] is None and rules["below"] is None:
        raise click.UsageError("choose runs with --older, --keep or --below")
    with closing(open_to_write(db) if yes else Database(db, read_only=True)) as file:
        pruning, history = Pruning(file), History(file)
        doomed = pruning.doomed(before=older, **rules)
        count, counts = pruning.count(doomed), history.counts()
        before = db.stat().st_size
        if yes:
            batches = progress(pruning.batches(doomed), total=count, what="runs removed", size=int)
            count = 0
            for removed in batches:
                count += removed
                time.sleep(_GIVE_WAY_S)  # others want to write, too
            if shrink:
                vacuum(file)
    kept = counts.recorded - count
    if as_json:
        sizes = {"size_bytes_before": before, "size_bytes": db.stat().st_size}
        print_json({"dry_run": not yes, "removed": count, "kept": kept, **sizes})
    else:
        click.echo(f"{count:,} {'removed' if yes else 'would be removed'}, {kept:,} kept")
    if count and not yes:
        click.echo("--yes removes them", err=True)
    elif count and not shrink and not as_json:
        hint("the file keeps its size and reuses the space; --vacuum shrinks it")
    if not count and counts.recorded:
        waiting = counts.unscored + counts.pending + counts.paused
        hint(f"no run matches that may go; {waiting:,} wait to be scored, sent or resumed")


@click.command()
@domain_option
@since_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@json_option
@pass_db
def rescore(
    db: Path, *, domain: str | None, since: str | None, dry_run: bool, as_json: bool
) -> None:
    """Rescore stored runs after changing settings.

    Uses the model, weights, cache and threshold of the command line's settings. Each run is
    compared with those recorded before it. Sent runs keep their score. Queued runs that no longer
    clear are cancelled; runs that clear now are queued. Sends nothing.

    Runs that several hosts share keep their decisions: only --dry-run works on them.

    Programs may keep recording. After Ctrl-C, run the same command to start again; no text is
    embedded twice. Run one at a time.

    \b
    kp-middleware rescore --dry-run
    kp-middleware rescore --since 30d --domain code
    """
    selection = Selection(domain, since)
    with closing(Database(db, read_only=True) if dry_run else open_to_write(db)) as file:
        if not dry_run and SharedRuns(file).in_log(0, 1):
            raise click.ClickException("runs here are in the shared log: use --dry-run")
        if not PastRuns(file, selection, None).count(after=0):  # which needs no settings
            _tell_rescored({}, 0, 0.0, dry_run=dry_run, as_json=as_json)
            return
        rescoring = _prepared(file, read_settings(db), selection, dry_run=dry_run)
        began_s, total = time.monotonic(), rescoring.remaining()
        try:
            steps = progress(rescoring.steps(), total=total, what="runs rescored", size=int)
            count = sum(steps)
        except KeyboardInterrupt:
            hint("stopped: the same command starts again")
            raise
    took_s = time.monotonic() - began_s
    counts = {str(name): count for name, count in rescoring.counts.items()}
    _tell_rescored(counts, count, took_s, dry_run=dry_run, as_json=as_json)
    if unread := rescoring.unread:
        first = f"the first is {short_id(unread[0])}"
        click.echo(f"{len(unread):,} runs cannot be read and are left alone: {first}", err=True)


def _prepared(
    file: Database, settings: "Settings", selection: Selection, *, dry_run: bool
) -> "Rescoring":
    """Return a rescoring whose model is loaded; without one, nothing must change."""
    from kp_middleware.embedding import shared_embedder
    from kp_middleware.pipeline import Rescoring

    hint_at_another_gate(History(file), settings)
    embedder = shared_embedder(settings.embedder)
    try:
        wait_for_model(embedder)
        return Rescoring(SqliteStore(file), settings, embedder, selection, dry_run=dry_run)
    except EmbedderUnavailableError as error:
        raise click.ClickException(f"nothing was changed: {error}") from error


def _tell_rescored(
    counts: Mapping[str, int], scored: int, took_s: float, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        told = {name: counts.get(name, 0) for name in _COUNTS}
        print_json({"dry_run": dry_run, "scored": scored, **told, "took_s": round(took_s, 3)})
    elif not scored:
        click.echo("nothing to rescore")
    else:
        named = (f"{counts[name]:,} {words}" for name, words in _COUNTS.items() if counts.get(name))
        pace = f"in {took_s:.1f} s, {scored / max(took_s, 1e-3):,.0f} a second"
        would = "would be " if dry_run else ""
        click.echo(f"{scored:,} {would}rescored {pace}: {', '.join(named)}")


@click.command()
@trace_id_argument()
@click.option("--success/--failure", default=None, help="Whether the task succeeded.")
@click.option("--confidence", type=UNIT, help="Your confidence in that, 0 to 1.")
@json_option
@pass_db
def feedback(
    db: Path, *, trace_id: str, success: bool | None, confidence: float | None, as_json: bool
) -> None:
    """Report a run's actual outcome, and rescore it.

    Uses the command line's settings, not a gate passed in your program. A run that now clears is
    sent by the next program that records; a queued run stays queued. Sent runs are not resent.

    ID is an id prefix, @last or @best. In Python: kp.feedback.

    \b
    kp-middleware feedback 1339c0 --success --confidence 0.9
    kp-middleware feedback @last --failure
    """
    if success is None and confidence is None:
        raise click.UsageError("give --success or --failure, --confidence, or both")
    from kp_middleware.pipeline import Feedback, Reevaluation

    settings = read_settings(db)
    with closing(open_to_write(db)) as file:
        history = History(file)
        hint_at_another_gate(history, settings)
        before = history.run(seq := history.find(trace_id))
        told = Feedback(before.id, success, confidence, time.time())
        is_news = Reevaluation.of(SqliteStore(file), settings).learn(told)
        after = history.run(seq)
    if as_json:
        facts = {"before": _facts(before), "after": _facts(after)}
        status = {"delivery_status": delivery_status(after)}
        print_json({"id": after.id, "changed": is_news, **facts, **status})
        return
    click.echo(after.id)
    for name in ("success", "confidence", "score", "decision"):
        old, new = (
            outcome(run.known_success)
            if name == "success"
            else cell(_facts(run)[name], name) or "none"
            for run in (before, after)
        )
        click.echo(f"{name:<12}{new if old == new else f'{old} → {new}'}")
    click.echo(f"→ {one_line(delivery_status(after))}")
    if not is_news:
        hint("nothing changed: this was known")
    elif after.outbox and after.outbox.state == "pending":
        hint("the next program that records sends it")


def _facts(run: Run) -> dict[str, Any]:
    return {
        "success": run.success,
        "confidence": run.confidence,
        "score": run.score,
        "decision": run.scoring and run.scoring.decision,
        "outbox": run.outbox and run.outbox.state,
    }
