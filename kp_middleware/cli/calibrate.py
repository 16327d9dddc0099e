"""The ``calibrate`` command: compare settings of the gate, and set one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.console import (
    Figure,
    Progress,
    Row,
    bar,
    plain,
    print_table,
    show,
    sparkline,
)
from kp_middleware.cli.options import (
    domain_option,
    pass_db,
    read_settings,
    since_option,
    typed_settings,
)
from kp_middleware.cli.rows import Output, output_options, print_json
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.instants import epoch_ms
from kp_middleware.storage import History
from kp_middleware.views.successes import successes_as_json, successes_in_words
from kp_middleware.views.thresholds import (
    Calibration,
    DomainScores,
    SettingView,
    calibrated,
    never_leave,
)
from kp_middleware.views.wording import counted, percent

_BAR: Final = 20
_DOMAIN_COLUMNS: Final = ("domain", "runs", "median", "top 10%", "best", "0 to 1")


@click.command()
@click.option(
    "--threshold",
    "more",
    multiple=True,
    metavar="THRESHOLD",
    callback=lambda _context, _option, typed: [
        typed_settings({"threshold": one}).threshold for one in typed
    ],
    help='Try this one as well: a score, or a share such as "top 15%". Repeatable.',
)
@click.option(
    "--max-per-day",
    "most",
    metavar="NUMBER",
    type=click.IntRange(0),
    help="Limit the runs let through in 24 hours.",
)
@domain_option
@since_option
@output_options(in_pipe="table")
@pass_db
def calibrate(
    db: Path,
    *,
    more: Sequence[float | str],
    most: int | None,
    domain: str | None,
    since: str | None,
    output: Output,
) -> None:
    """Show how many runs each threshold would have let through.

    Replays the gate over all stored runs in recording order, without changing them. Private runs
    are not counted, since they are never sent. kp-middleware config set threshold chooses one.

    \b
    kp-middleware calibrate
    kp-middleware calibrate --threshold 0.62 --threshold "top 15%" -d code
    kp-middleware config set threshold "top 10%"
    """
    settings = read_settings(db)
    with History.open(db) as history, Progress("runs decided on") as shown:
        found = calibrated(
            history.scored_runs(),
            now=settings.threshold,
            most=settings.max_per_day if most is None else most,
            more=more,
            domain=domain,
            since_ms=None if since is None else epoch_ms(since),
            reach=shown.reach,
        )
        outcomes = history.success_record(), history.unjudged()
    if output.columns or output.format not in {"json", "table"}:
        rows = [one._asdict() for one in found.settings]
        output.print(rows, SettingView._fields[:-1])
    elif output.format == "json":
        print_json(found.as_json() | {"successes": successes_as_json(*outcomes)})
    else:
        _print_settings(found)
        show("", *map(plain, successes_in_words(*outcomes)))
    output.fail_if_empty(not found.runs)


def _print_settings(found: Calibration) -> None:
    limit = "" if found.max_per_day is None else f", at most {found.max_per_day} a day"
    days = f" in {found.days:,.1f} days" if found.days > 1 else ""
    told = f"{counted(found.runs, 'scored run')}{days}."
    told += f" {never_leave(found.private)}" if found.private else ""
    show(plain(told), "")
    if found.domains:
        print_table([_domain(one) for one in found.domains], _DOMAIN_COLUMNS)
    click.echo(f"\nRuns that each threshold would have let through{limit}:\n")
    settings = [_setting(one, found) for one in found.settings]
    print_table(settings, [*settings[0]])
    show("", plain(_advice(found)))
    if found.recommended not in {None, found.now}:
        click.echo(f"\n  kp-middleware config set threshold {_typed(found.recommended or '')}")


def _domain(domain: DomainScores) -> Row:
    most = max(domain.bins)
    drawn = Figure(sparkline([runs / most if runs else None for runs in domain.bins]))
    values = (domain.domain, domain.runs, domain.median, domain.top_tenth, domain.best, drawn)
    return dict(zip(_DOMAIN_COLUMNS, values, strict=True))


def _setting(one: SettingView, found: Calibration) -> Row:
    name = exact(one.setting) if isinstance(one.setting, float) else one.setting
    of = f"{one.succeeded:,} of {one.known:,} known ({percent(one.succeeded, one.known)})"
    private = {"if not private": one.if_not_private} if found.private else {}
    domains = one.domains if len(one.domains) > 1 else {}
    return {
        "threshold": Figure(f"{name} (now)" if one.setting == found.now else name),
        "runs": one.let_through,
        "share": Figure(percent(one.let_through, found.runs)),
        **({"a day": Figure(f"{one.a_day:,.1f}")} if found.days > 1 else {}),
        "succeeded": Figure(of if one.known else "not known"),
        **private,
        **{f"in {name}": count for name, count in domains.items()},
        "": bar(one.share, _BAR),
    }


def _advice(found: Calibration) -> str:
    best, needed = found.recommended, found.runs_needed
    share = f"A share needs {needed} runs of a domain; until then, {DEFAULT_THRESHOLD:g} applies."
    if best is None:
        most = max((domain.runs for domain in found.domains), default=0)
        return f"Too few runs to recommend a threshold: the largest domain has {most}. {share}"
    passing = {one.setting: one for one in found.settings}
    one, few = passing[best], passing[DEFAULT_THRESHOLD].let_through
    told = f"{one.let_through:,} of {counted(found.runs, 'run')}"
    told += f", {one.a_day:,.1f} a day" if found.days > 1 else ""
    than = "" if best == DEFAULT_THRESHOLD else f"; {few:,} reach {DEFAULT_THRESHOLD:g}"
    kept = " You use it already." if best == found.now else ""
    return f"Recommended: {_typed(best)}, which lets through {told}{than}.{kept} {share}"


def _typed(setting: float | str) -> str:
    return exact(setting) if isinstance(setting, float) else f'"{setting}"'
