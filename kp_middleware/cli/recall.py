"""The command that recalls runs which succeeded at a task like one at hand."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli.console import Row, hint
from kp_middleware.cli.options import domain_option, limit_option, since_option
from kp_middleware.cli.rows import Output, json_option, print_json
from kp_middleware.cli.user_settings import pass_db, read_settings
from kp_middleware.views.wording import printable, short_id

if TYPE_CHECKING:
    from kp_middleware.recall import Found, Memory, Recalled

_EXPLAINED: Final = 5
_COLUMNS: Final = ("id", "fit", "bar", "recalled", "similarity", "shared", "objective")


@click.command()
@click.argument("task")
@limit_option(1, told="Maximum number of runs.")
@domain_option
@click.option("--owner", help="Only runs of this owner; required if any run has one.")
@since_option
@click.option("--unconfirmed", is_flag=True, help="Also runs whose success nobody confirmed.")
@click.option("--explain", is_flag=True, help="Show the nearest runs and why each is (not) found.")
@json_option
@pass_db
def recall(
    db: Path,
    *,
    task: str,
    limit: int,
    domain: str | None,
    owner: str | None,
    since: str | None,
    unconfirmed: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Show what worked: runs that succeeded at a task like TASK.

    A run must be near, fit clearly better than the others, or have made only a few calls, each with
    values from its task. Its success must be known, or estimated at 0.8 or more from 20 known
    outcomes.

    \b
    kp-middleware recall "refund the order of a broken lamp"
    kp-middleware recall "flaky test in the worker" --unconfirmed --explain
    """
    from kp_middleware.recall import question

    asked = question(domain=domain, owner=owner, unconfirmed=unconfirmed)
    memory = _memory(db)
    if memory is None:
        hint("recall is off: see KP_RECALL")
        return
    most = max(limit, _EXPLAINED) if explain else limit
    nearest = memory.nearest(task, asked._replace(since=since), k=most)
    if explain and (nearest or as_json):
        output = Output("json" if as_json else "table")
        output.print([_why(found, run) for found, run in nearest], _COLUMNS, for_people=_short)
    elif not explain:
        _print([run for found, run in nearest if found.fits], as_json=as_json)
    if not any(found.fits for found, _ in nearest):
        if unconfirmed or memory.has_a_success():
            remedy = "" if explain else ": --explain shows the nearest runs"
            hint(f"no match{remedy}; runs with an owner need --owner")
        else:
            hint(
                "no run is known to have succeeded: judge some with kp-middleware review,"
                " or add --unconfirmed"
            )


def _memory(db: Path) -> "Memory | None":
    from kp_middleware.embedding import shared_embedder
    from kp_middleware.privacy import Policy
    from kp_middleware.recall import Memory

    settings = read_settings(db)
    if not settings.recall:
        return None
    return Memory(db, shared_embedder(settings.embedder), Policy.of(settings))


def _print(runs: "list[Recalled]", *, as_json: bool) -> None:
    if as_json:
        print_json([{**_facts(run), "digest": run.digest()} for run in runs])
        return
    for run in runs:
        click.echo(f"{short_id(run.trace_id)}  similarity {run.similarity:.2f}")
        click.echo("\n".join(f"  {printable(line)}" for line in run.digest().split("\n")))


def _facts(run: "Recalled") -> dict[str, Any]:
    names = ("similarity", "objective", "success", "success_source", "age_days")
    return {"id": run.trace_id, **{name: getattr(run, name) for name in names}}


def _why(found: "Found", run: "Recalled") -> dict[str, Any]:
    return {
        **_facts(run),
        "fit": round(found.fit, 3),
        "bar": round(found.bar, 3) if math.isfinite(found.bar) else None,
        "recalled": found.fits,
        "shared": " ".join(found.shared),
    }


def _short(row: Row) -> Row:
    return {**row, "id": short_id(row["id"])}
