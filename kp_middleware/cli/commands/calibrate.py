"""The command that says what each setting of the gate would let through, and sets one."""

import json
import sys
from contextlib import closing
from pathlib import Path

import click

from kp_middleware import locations
from kp_middleware.cli.input.names import domain_option
from kp_middleware.cli.input.since import since_option
from kp_middleware.cli.input.thresholds import complete_threshold
from kp_middleware.cli.installation.user_settings import may_be_set, read_settings
from kp_middleware.cli.lines.calibration import advice, calibration_lines
from kp_middleware.cli.output.exit_codes import EMPTY
from kp_middleware.cli.output.manners import hint
from kp_middleware.cli.output.progress import Progress
from kp_middleware.cli.output.rows import Output, output_options, print_json
from kp_middleware.cli.output.screen import screen_width
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.database import connect
from kp_middleware.storage import GateTrial, Row
from kp_middleware.views.thresholds import CALIBRATION_COLUMNS, calibration


@click.command()
@click.option(
    "--set",
    "chosen",
    metavar="THRESHOLD",
    shell_complete=complete_threshold,
    help='Write it to settings.toml: a score, or a share such as "top 10%".',
)
@click.option(
    "--max-per-day",
    "most",
    metavar="NUMBER",
    type=click.IntRange(0),
    help="Let no more through in 24 hours; with --set, write that, too.",
)
@domain_option
@since_option
@output_options(in_pipe="json", columns=CALIBRATION_COLUMNS)
@click.pass_obj
def calibrate(
    db: Path,
    *,
    chosen: str | None,
    most: int | None,
    domain: str | None,
    since: str | None,
    output: Output,
) -> None:
    """Show the scores by domain, and what each setting of the gate would have let through.

    Every run of the file is decided on anew, by the rules of the gate and in the order of
    recording; a day's room goes to those that were decided on first. Nothing that is stored
    changes. With --set, the setting is written to settings.toml, where programs read it when they
    start: KP_THRESHOLD and a keyword in the program win over it.

    \b
    kp-middleware calibrate
    kp-middleware calibrate --set "top 10%" --max-per-day 20
    """
    if chosen is not None:
        if domain is not None or since is not None:
            raise click.UsageError("--set is for every domain and time: without -d and --since")
        _set(chosen, most, output)
        return
    threshold, max_per_day = _gate_settings(db)
    with closing(connect(db, read_only=True)) as connection:
        limit = max_per_day if most is None else most
        with Progress("settings tried") as shown:
            trial = GateTrial(connection, domain=domain, since=since)
            found = calibration(trial, now=threshold, most=limit, reach=shown.reach)
    _print(found, output)
    if output.fail_empty and not trial.runs:
        sys.exit(EMPTY)


def _gate_settings(db: Path) -> tuple[float | str, int | None]:
    if not may_be_set("threshold", "max_per_day"):
        return DEFAULT_THRESHOLD, None
    settings = read_settings(db)
    return settings.threshold, settings.max_per_day


def _print(found: Row, output: Output) -> None:
    if found["recommended"] is None and output.format != "table":
        hint(advice(found))
    match output.format:
        case "json" if not output.columns:
            print_json(found)
        case "table" if not output.columns:
            click.echo("\n".join(calibration_lines(found, screen_width())))
        case _:
            output.print(found["settings"], CALIBRATION_COLUMNS)


def _set(chosen: str, most: int | None, output: Output) -> None:
    from kp_middleware.cli.installation.settings_file import tell_what_wins, write_setting

    path = locations.settings_file()
    written = {"threshold": write_setting(path, "threshold", chosen)}
    if most is not None:
        written["max_per_day"] = write_setting(path, "max_per_day", str(most))
    if output.format == "json":
        print_json({"path": str(path), **written})
    else:
        told = " and ".join(f"{name} = {json.dumps(value)}" for name, value in written.items())
        click.echo(f"{told} in {path}: programs read it when they start")
    for name in written:
        tell_what_wins(name)
