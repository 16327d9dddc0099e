"""The command ``calibrate``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli import console, options
from kp_middleware.cli.config import write_setting
from kp_middleware.cli.console import Figure, Output, Progress, Row, hint, print_table, safe_text
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.storage import History
from kp_middleware.views import gate
from kp_middleware.views.wording import counted, percent

_DOMAIN_COLUMNS: Final = ("domain", "runs", "median", "top 10%", "best")


@click.command()
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="THRESHOLD",
    help='Also try this: a score, or a share such as "top 15%". Repeatable.',
)
@click.option("--set", "chosen", metavar="THRESHOLD", help="Write this to settings.toml first.")
@options.domain
@options.since
@options.output_options(in_pipe="table")
@options.pass_db
def calibrate(
    db: Path,
    *,
    thresholds: Sequence[str],
    chosen: str | None,
    domain: str | None,
    since: str | None,
    output: Output,
) -> None:
    """Show how many runs each threshold would have let through.

    Replays the gate over all stored runs in recording order, without changing them. Leaves out
    private runs, which are never sent. Applies max_per_day from your settings.

    \b
    kp-middleware calibrate
    kp-middleware calibrate --threshold 0.62 --threshold "top 15%" -d code
    kp-middleware calibrate --set "top 10%"
    """
    with History.open(db) as history, Progress("settings tried") as bar:
        if chosen is not None:
            hint(write_setting("threshold", chosen)[1])
        settings = options.read_settings(db)
        calibration = gate.calibrated(
            history,
            now=settings.threshold,
            most=settings.max_per_day,
            more=[options.lenient_settings({"threshold": text}).threshold for text in thresholds],
            domain=domain,
            since=since or "",
            reach=bar.update,
        )
        outcomes = history.success_record(), history.review_backlog()
        last_gate = history.last_decisions().gate
    successes = gate.successes_as_json(*outcomes)
    if output.columns or output.format not in {"json", "table"}:
        rows = [view._asdict() for view in calibration.settings]
        output.print(rows, gate.SettingView._fields[:-1])
    elif output.format == "json":
        console.print_json(calibration.as_json() | {"successes": successes})
    else:
        _print_calibration(calibration)
        for sentence in filter(None, (successes["in_words"], successes["warning"])):
            console.print_rich("", safe_text(sentence))
        if last_gate not in {"", settings.gate.name}:
            hint(f"(now) is {settings.gate.name}, your setting; the last run used {last_gate}")
    output.fail_if_empty(not calibration.runs)


def _print_calibration(calibration: gate.Calibration) -> None:
    limit = "" if calibration.max_per_day is None else f", at most {calibration.max_per_day} a day"
    days = f" in {calibration.days:,.1f} days" if calibration.days > 1 else ""
    private = f" {gate.private_note(calibration.private)}" if calibration.private else ""
    console.print_rich(safe_text(f"{counted(calibration.runs, 'scored run')}{days}.{private}"), "")
    if calibration.domains:
        rows = [dict(zip(_DOMAIN_COLUMNS, row, strict=False)) for row in calibration.domains]
        print_table(rows, _DOMAIN_COLUMNS)
    click.echo(f"\nRuns that each threshold would have let through{limit}:\n")
    settings = [_setting_row(view, calibration) for view in calibration.settings]
    print_table(settings, [*settings[0]])
    console.print_rich("", safe_text(_recommendation(calibration)))
    if (best := calibration.recommended) not in {None, calibration.now}:
        click.echo(f'\n  kp-middleware calibrate --set "{best}"')


def _setting_row(view: gate.SettingView, calibration: gate.Calibration) -> Row:
    name = exact(view.setting) if isinstance(view.setting, float) else view.setting
    known = f"{view.succeeded:,} of {view.known:,} known ({percent(view.succeeded, view.known)})"
    domains = view.domains if len(view.domains) > 1 else {}
    return {
        "threshold": Figure(f"{name} (now)" if view.setting == calibration.now else name),
        "runs": view.let_through,
        "share": Figure(percent(view.let_through, calibration.runs)),
        **({"a day": Figure(f"{view.a_day:,.1f}")} if calibration.days > 1 else {}),
        "succeeded": Figure(known if view.known else "not known"),
        **({"if not private": view.if_not_private} if calibration.private else {}),
        **{f"in {name}": count for name, count in domains.items()},
        "": console.bar(view.share, 20),
    }


def _recommendation(calibration: gate.Calibration) -> str:
    best, needed = calibration.recommended, calibration.runs_needed
    if best is None:
        most = max((domain.runs for domain in calibration.domains), default=0)
        runs = "runs that may be sent" if calibration.private else "runs"
        share = f"{most}, and a share needs {needed}; until then, {DEFAULT_THRESHOLD:g} applies"
        return f"Too few {runs} to recommend a threshold: the largest domain has {share}."
    passing = {view.setting: view for view in calibration.settings}
    a_day = f", {passing[best].a_day:,.1f} a day" if calibration.days > 1 else ""
    note = " You already use it." if best == calibration.now else ""
    result = f"{passing[best].let_through:,} of {counted(calibration.runs, 'run')}{a_day}"
    reach = f"{passing[DEFAULT_THRESHOLD].let_through:,} reach {DEFAULT_THRESHOLD:g}"
    return f'Recommended: "{best}", which lets through {result}; {reach}.{note}'
