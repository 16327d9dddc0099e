"""The command that makes room: old traces go, and what waits stays."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware.cli.input.names import domain_option
from kp_middleware.cli.input.number_range import UNIT
from kp_middleware.cli.input.since import older_option
from kp_middleware.cli.output.manners import hint
from kp_middleware.cli.output.progress import progress
from kp_middleware.cli.output.rows import json_option, print_json
from kp_middleware.database import connect
from kp_middleware.storage import Doomed, Pruning, Row, count_all, vacuum

_GIVE_WAY_S: Final = 0.005


@click.command()
@older_option
@click.option("--keep", type=click.IntRange(min=0), help="Keep so many of the newest.")
@click.option("--below", type=UNIT, help="Only what scored less than this, 0 to 1.")
@click.option("--keep-sent", is_flag=True, help="Keep what was sent.")
@domain_option
@click.option("--yes", is_flag=True, help="Remove them. Without it, only say how many would go.")
@click.option("--vacuum", "shrink", is_flag=True, help="Give the room back to the disk.")
@json_option
@click.pass_obj
def prune(
    db: Path, /, *, older: str | None, yes: bool, shrink: bool, as_json: bool, **rules: Any
) -> None:
    """Remove old traces, with their vectors: those that fit all that is said.

    What waits to be scored, to be sent or for a person always stays. Programs may go on recording.

    \b
    kp-middleware prune --older 90d --keep-sent           how many would go
    kp-middleware prune --keep 10000 --vacuum --yes       they go
    """
    if older is None and rules["keep"] is None and rules["below"] is None:
        raise click.UsageError("say what goes: --older, --keep or --below")
    with closing(connect(db, read_only=not yes or not db.exists())) as connection:
        pruning, before = Pruning(connection), db.stat().st_size
        doomed = pruning.doomed(before=older, **rules)
        count, recorded = pruning.count(doomed), count_all(connection).recorded
        if yes:
            count = sum(_removed(pruning, doomed, count))
            if shrink:
                vacuum(connection)
    sizes = {"size_bytes_before": before, "size_bytes": db.stat().st_size}
    result = {"dry_run": not yes, "removed": count, "kept": recorded - count, **sizes}
    _tell(result, as_json=as_json, shrink=shrink)


def _removed(pruning: Pruning, doomed: Doomed, count: int) -> Iterator[int]:
    """Batch after batch."""
    batches = pruning.batches(doomed)
    for batch in progress(batches, total=count, what="traces removed", size=int):
        yield batch
        time.sleep(_GIVE_WAY_S)  # others want to write, too


def _tell(result: Row, *, as_json: bool, shrink: bool) -> None:
    if as_json:
        print_json(result)
    else:
        would = "would be removed" if result["dry_run"] else "removed"
        click.echo(f"{result['removed']:,} {would}, {result['kept']:,} kept")
    if result["removed"] and result["dry_run"]:
        click.echo("nothing was removed: --yes removes them", err=True)
    elif result["removed"] and not shrink and not as_json:
        hint("the file keeps its size and uses the room again; --vacuum shrinks it")
