"""The command that scores anew what was scored before."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kp_middleware.cli.input.another_gate import hint_at_another_gate
from kp_middleware.cli.input.names import domain_option
from kp_middleware.cli.input.since import since_option
from kp_middleware.cli.installation.user_settings import read_settings
from kp_middleware.cli.output.manners import hint
from kp_middleware.cli.output.progress import progress
from kp_middleware.cli.output.rows import json_option, print_json
from kp_middleware.database import Connection, connect
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.storage import PastRuns, Row, Selection
from kp_middleware.views.wording import short_id

if TYPE_CHECKING:
    from kp_middleware.embedding import Embedder
    from kp_middleware.pipeline import Rescoring
    from kp_middleware.settings import Settings

_LOOK_AGAIN_S: Final = 1.0
_COUNTS: Final = {
    "changed": "changed",
    "unchanged": "as before",
    "cleared": "clear now",
    "queued": "of these for the outbox",
    "withdrawn": "clear no longer",
    "cancelled": "of these taken out of the outbox",
    "left": "left because they were sent, are on their way or were rejected",
    "overtaken": "removed or recorded anew meanwhile",
    "unscored": "cannot be scored",
    "embedded": "embedded",
}
_NOT_COMPARED: Final = (
    "traces beyond your choice that have no vector of this model were not compared with:"
    " without --domain and --since, all get one"
)


@click.command()
@domain_option
@since_option
@click.option("--dry-run", is_flag=True, help="Only say what would become of them.")
@json_option
@click.pass_obj
def rescore(
    db: Path, *, domain: str | None, since: str | None, dry_run: bool, as_json: bool
) -> None:
    """Score anew what was scored before: after a change of model, weights, cache or threshold.

    In the order of recording, each compared with those before it alone, by your settings here.
    Runs that were scored in another order may change once without any other setting: those of
    several processes, or that were paused. What was sent keeps its score. Of what waits to be sent,
    what no longer clears is taken out; what clears now waits. Nothing is sent by this command.

    Programs may go on recording. After Ctrl-C, the same command goes on where it stopped.

    \b
    kp-middleware rescore --dry-run
    kp-middleware rescore --since 30d --domain code
    """
    selection = Selection(domain, since)
    with closing(connect(db, read_only=dry_run or not db.exists())) as connection:
        if not PastRuns(connection, selection, None).count(after=0):
            _tell(_result({}, dry_run=dry_run), as_json=as_json)  # which needs no settings
            return
        rescoring = _prepared(connection, read_settings(db), selection, dry_run=dry_run)
        began_s = time.monotonic()
        count = _run(rescoring)
    took_s, before = time.monotonic() - began_s, rescoring.went_before
    counts = {str(name): count for name, count in rescoring.counts.items()}
    result = _result(counts, dry_run=dry_run, before=before, scored=count, took_s=took_s)
    _tell(result, as_json=as_json)
    if rescoring.unread:
        _tell_of_unread(rescoring.unread)
    if result["embedded"] and selection != Selection():
        hint(_NOT_COMPARED)


def _result(
    counts: Mapping[str, int],
    *,
    dry_run: bool,
    before: int = 0,
    scored: int = 0,
    took_s: float = 0.0,
) -> Row:
    return {
        "dry_run": dry_run,
        "scored_before": before,
        "scored": scored,
        **{name: counts.get(name, 0) for name in _COUNTS},
        "took_s": round(took_s, 3),
    }


def _prepared(
    connection: Connection, settings: "Settings", selection: Selection, *, dry_run: bool
) -> "Rescoring":
    """With a model that can be used: without one, nothing is to be changed."""
    from kp_middleware.embedding import shared_embedder
    from kp_middleware.pipeline import Rescoring

    hint_at_another_gate(connection, settings)
    embedder = shared_embedder(settings.embedder)
    try:
        _wait_for(embedder)
        rescoring = Rescoring(connection, settings, embedder, selection, dry_run=dry_run)
    except EmbedderUnavailableError as error:
        raise click.ClickException(f"nothing was changed: {error}") from error
    if rescoring.went_before:
        hint(f"goes on where it stopped: {rescoring.went_before:,} are scored already")
    return rescoring


def _wait_for(embedder: "Embedder | None") -> None:
    """While the model is being downloaded."""
    told = False
    while True:
        try:
            _ = embedder and embedder.name
        except EmbedderNotReadyError as error:
            if not told:
                hint(f"waits for the model: {error}")
            told = True
            time.sleep(_LOOK_AGAIN_S)
        else:
            return


def _run(rescoring: "Rescoring") -> int:
    """How many were scored, or would be."""
    steps = progress(
        rescoring.steps(), total=rescoring.remaining(), what="traces scored anew", size=int
    )
    try:
        return sum(steps)
    except KeyboardInterrupt:
        hint("stopped: the same command goes on here")
        raise


def _tell_of_unread(ids: Sequence[str]) -> None:
    """In one line, however many they are."""
    words = f"{len(ids):,} with a document that cannot be read keep what they had"
    click.echo(f"{words}: the first is kp-middleware show {short_id(ids[0])}", err=True)


def _tell(result: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    if not result["scored"]:
        click.echo("there is nothing to score anew")
        return
    rate = result["scored"] / max(result["took_s"], 1e-3)
    told = ", ".join(f"{result[name]:,} {words}" for name, words in _COUNTS.items() if result[name])
    would = "would be " if result["dry_run"] else ""
    pace = f"in {result['took_s']:.1f} s, {rate:,.0f} a second"
    click.echo(f"{result['scored']:,} {would}scored anew {pace}: {told}")
