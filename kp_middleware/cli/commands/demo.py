"""The command that shows the main job."""

from pathlib import Path

import click

from kp_middleware.cli.output.rows import json_option


@click.command()
@click.option(
    "--into", type=click.Path(path_type=Path, dir_okay=False), help="Keep its traces here."
)
@json_option
def demo(*, into: Path | None, as_json: bool) -> None:
    """See it work: a scripted agent, real tools, the real model.

    Needs no key, no account and no network; nothing leaves this machine. Shows what was kept,
    what would be sent, and why.

    \b
    kp-middleware demo --into demo.db
    """
    from kp_middleware.cli.installation.demonstration import run_demo

    run_demo(into, as_json=as_json)
