"""The command that shows the main job: a real agent, the real model, a local registry."""

import tempfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import click

from kp_middleware.cli.console import print_table
from kp_middleware.cli.rows import json_option, print_json, run_for_people, run_row
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.errors import MissingExtraError
from kp_middleware.pipeline import Backlog, KnowledgePulse
from kp_middleware.storage import History
from kp_middleware.testing import LocalRegistry

_COLUMNS = ("id", "domain", "score", "success", "state", "reason", "objective")


@click.command()
@click.option(
    "--into", type=click.Path(path_type=Path, dir_okay=False), help="Store its runs in this file."
)
@json_option
def demo(*, into: Path | None, as_json: bool) -> None:
    """Run a scripted demo agent with real tools and embeddings.

    Needs no key, account or network; nothing leaves this machine. Shows what is stored, what would
    be sent, and why.

    \b
    kp-middleware demo --into demo.db
    """
    if into is not None and into.exists() and into.stat().st_size:
        raise click.UsageError(f"{into} exists: choose a new file")
    run_tasks = _demo_agent()
    path = into or Path(tempfile.mkdtemp(prefix="kp-demo-")) / "kp.db"
    click.echo("Running a scripted agent with real tools …", err=True)
    with LocalRegistry() as registry:
        backlog = _run(run_tasks, path, registry)
        stored = len(registry.documents)
    with History.open(path) as history:
        rows = [run_row(run) for run in reversed(history.runs(limit=100))]
    if backlog:
        click.echo(f"still to do: {backlog.unscored} to score, {backlog.unsent} to send", err=True)
    if as_json:
        print_json({"path": str(path), "sent": stored, "runs": rows})
        return
    print_table([run_for_people(row) for row in rows], _COLUMNS)
    click.echo(
        f"\nAll {len(rows)} runs are in {path}\n"
        f"{stored} of them were sent to a registry on this machine; reason says why or why not.\n\n"
        "Now look at the one with the highest score:\n\n"
        f"  kp-middleware --db {path} show @best"
    )


def _run(
    run_tasks: Callable[[KnowledgePulse], None], path: Path, registry: LocalRegistry
) -> Backlog:
    with KnowledgePulse(
        db=path,
        registry_url=registry.url,
        api_key=registry.api_key,
        agent_id="kp-demo",
        visibility="network",
        threshold=DEFAULT_THRESHOLD,
        enabled=True,
    ) as kp:
        run_tasks(kp)
        return kp.flush(timeout_s=60)


def _demo_agent() -> Callable[[KnowledgePulse], None]:
    for entry_point in entry_points(group="kp_middleware.demos"):
        try:
            run_tasks: Callable[[KnowledgePulse], None] = entry_point.load()
        except ModuleNotFoundError as error:
            raise MissingExtraError(entry_point.name) from error
        return run_tasks
    raise MissingExtraError("langchain")
