"""The ``calibrate`` command: compare settings of the gate, and set one."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli.console import (
    Figure,
    Progress,
    Row,
    bar,
    hint,
    plain,
    print_table,
    show,
    sparkline,
)
from kp_middleware.cli.options import (
    UNIT,
    complete_threshold,
    domain_option,
    limit_option,
    since_option,
    weights_option,
)
from kp_middleware.cli.rows import Output, output_options, print_json
from kp_middleware.cli.user_settings import pass_db, profile_weights, read_settings
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.core.replay import DomainScores, Trial
from kp_middleware.instants import epoch_ms
from kp_middleware.storage import History
from kp_middleware.views.successes import successes_as_json, successes_in_words
from kp_middleware.views.thresholds import (
    Calibration,
    Change,
    EffectView,
    Reach,
    Scores,
    SettingView,
    ThresholdView,
    calibrated,
    never_leave,
)
from kp_middleware.views.wording import counted, in_hundredths, percent, short_bar, short_id

_BAR: Final = 20
_STEPS: Final = {"0.01": 1, "0.05": 5, "0.1": 10}
_CURVE_COLUMNS: Final = ("threshold", "domain", "would_go", "traces", "share")
_CHANGE_COLUMNS: Final = ("change", "id", "domain", "score", "threshold", "objective")


@click.command()
@click.option(
    "--threshold", type=UNIT, help="Try this threshold, and list the runs it would change."
)
@click.option(
    "--step", type=click.Choice([*_STEPS]), help="Try thresholds from 0 to 1, this far apart."
)
@weights_option
@click.option(
    "--set",
    "chosen",
    metavar="THRESHOLD",
    shell_complete=complete_threshold,
    help='Save to settings.toml: a score, or a share such as "top 10%".',
)
@click.option(
    "--max-per-day",
    "most",
    metavar="NUMBER",
    type=click.IntRange(0),
    help="Limit the runs let through in 24 hours; saved with --set.",
)
@domain_option
@since_option
@limit_option(10, least=0, told="With --threshold: number of changed runs to list.")
@output_options(in_pipe="table", columns=(*SettingView._fields[:-1], *_CURVE_COLUMNS))
@pass_db
def calibrate(
    db: Path,
    *,
    threshold: float | None,
    step: str | None,
    profile: str | None,
    chosen: str | None,
    most: int | None,
    domain: str | None,
    since: str | None,
    limit: int,
    output: Output,
) -> None:
    """Show how many runs each threshold would have let through.

    Replays the gate over all stored runs in recording order, without changing them. --set writes a
    threshold to settings.toml, which programs read on start; KP_THRESHOLD and a keyword in the
    program override it.

    --step and --threshold compare scores with fixed thresholds, in total and by domain. Private
    runs are not counted, since they are never sent.

    \b
    kp-middleware calibrate
    kp-middleware calibrate --step 0.1 -d code
    kp-middleware calibrate --threshold 0.7
    kp-middleware calibrate --set "top 10%" --max-per-day 20
    """
    is_fixed = threshold is not None or step is not None
    if profile is not None and not is_fixed:
        raise click.UsageError("--weights needs --threshold or --step")
    if chosen is not None:
        if is_fixed or domain is not None or since is not None:
            raise click.UsageError("--set applies to all runs: leave out other options")
        _set(chosen, most, output)
        return
    with History.open(db) as history:
        if is_fixed:
            weights = None if profile is None else profile_weights(db, profile)
            scores = Scores(history.decided_runs(domain=domain, since=since, weights=weights))
            if not scores.leaving:
                hint(f"nothing matches {_not_counted(scores.private)}".rstrip())
            if threshold is None:
                _print_curve(scores, _STEPS[step or "0.1"], history.threshold(), output)
            else:
                _print_effect(scores.effect(threshold), history, limit, output)
            output.fail_if_empty(not scores.leaving)
            return
        settings = read_settings(db)
        since_ms = None if since is None else epoch_ms(since)
        trial = Trial(history.scored_runs(), domain=domain, since_ms=since_ms)
        if most is None:
            most = settings.max_per_day
        with Progress("runs decided on") as shown:
            found = calibrated(trial, now=settings.threshold, most=most, reach=shown.reach)
        outcomes = history.success_record(), history.unjudged()

    def table() -> None:
        _print_settings(found)
        show("", *map(plain, successes_in_words(*outcomes)))

    document = found.as_json() | {"successes": successes_as_json(*outcomes)}
    rows = [one._asdict() for one in found.settings]
    _print(output, rows, SettingView._fields[:-1], lambda: print_json(document), table)
    output.fail_if_empty(not trial.runs)


def _print(
    output: Output,
    rows: Sequence[Row],
    columns: Sequence[str],
    as_json: Callable[[], None],
    as_table: Callable[[], None],
) -> None:
    if output.columns or output.format not in {"json", "table"}:
        output.print(rows, columns)
    elif output.format == "json":
        as_json()
    else:
        as_table()


def _not_counted(private: int) -> str:
    return never_leave(private) if private else ""


def _print_settings(found: Calibration) -> None:
    limit = "" if found.max_per_day is None else f", at most {found.max_per_day} a day"
    days = f" in {found.days:,.1f} days" if found.days > 1 else ""
    told = f"{counted(found.runs, 'scored run')}{days}. {_not_counted(found.private)}"
    show(plain(told.rstrip()), "")
    if domains := [_domain(one) for one in found.domains]:
        print_table(domains, [*domains[0]])
    click.echo(f"\nRuns that each threshold would have let through{limit}:\n")
    settings = [_setting(one, found) for one in found.settings]
    print_table(settings, [*settings[0]])
    show("", plain(_advice(found)))
    if found.recommended not in {None, found.now}:
        click.echo(f"\n  kp-middleware calibrate --set {_typed(found.recommended or '')}")


def _domain(domain: DomainScores) -> Row:
    most = max(domain.bins)
    drawn = sparkline([runs / most if runs else None for runs in domain.bins])
    told = {"median": domain.median, "top 10%": domain.top_tenth, "best": domain.best}
    return {"domain": domain.domain, "runs": domain.runs, **told, "0 to 1": Figure(drawn)}


def _setting(one: SettingView, found: Calibration) -> Row:
    name = exact(one.setting) if isinstance(one.setting, float) else one.setting
    of = f"{one.succeeded:,} of {one.known:,} known ({percent(one.succeeded, one.known)})"
    private = {"if not private": one.if_not_private} if found.private else {}
    return {
        "threshold": Figure(f"{name} (now)" if one.setting == found.now else name),
        "runs": one.let_through,
        "share": Figure(percent(one.let_through, found.runs)),
        **({"a day": Figure(f"{one.a_day:,.1f}")} if found.days > 1 else {}),
        "succeeded": Figure(of if one.known else "not known"),
        **private,
        "": bar(one.share, _BAR),
    }


def _advice(found: Calibration) -> str:
    """Return which setting is recommended and why."""
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
    """Return a setting as it is typed in a shell."""
    return exact(setting) if isinstance(setting, float) else f'"{setting}"'


def _set(chosen: str, most: int | None, output: Output) -> None:
    from kp_middleware.cli.config import tell_what_wins, write_setting

    path = locations.settings_file()
    written = {"threshold": write_setting(path, "threshold", chosen)}
    if most is not None:
        written["max_per_day"] = write_setting(path, "max_per_day", str(most))
    if output.format == "json":
        print_json({"path": str(path), **written})
    else:
        told = " and ".join(f"{name} = {json.dumps(value)}" for name, value in written.items())
        click.echo(f"{told} in {path}: programs read it on start")
    for name in written:
        tell_what_wins(name)


def _print_curve(scores: Scores, step: int, current: float | None, output: Output) -> None:
    curve = scores.curve(step, current)
    if output.format in {"json", "nl"}:
        output.print([one.as_json() for one in curve], ())
    elif output.columns or output.format != "table":
        output.print([row for one in curve for row in one.rows()], _CURVE_COLUMNS)
    elif curve:
        _print_curve_table(curve, current)


def _print_curve_table(curve: list[ThresholdView], current: float | None) -> None:
    first = curve[0]
    domains = [*first.domains] if len(first.domains) > 1 else []
    show(plain(f"{first.all.traces:,} runs. {_not_counted(first.private)}".rstrip()), "")
    told = [
        {
            "threshold": Figure(
                ("→ " if one.threshold == current else "") + in_hundredths(one.threshold)
            ),
            "would go": one.all.would_go,
            "share": _share(one.all),
            **{name: _share(one.domains[name]) for name in domains},
            "": bar(one.all.share, _BAR),
        }
        for one in curve
    ]
    print_table(told, [*told[0]])
    applied = "a share of its own" if current is None else exact(current)
    show("", plain(f"→ Applied to the last run: {applied}. --threshold 0.7 lists what it changes."))


def _print_effect(effect: EffectView, history: History, limit: int, output: Output) -> None:
    """Print which runs a threshold would change."""
    changes = {
        "newly_go": (effect.newly_go, _nearest(effect.newly_go, history, limit)),
        "newly_stay": (effect.newly_stay, _nearest(effect.newly_stay, history, limit)),
    }
    reach = effect.reach.as_json()
    for name, row in reach["domains"].items():
        row["went"] = effect.went[name]
        row |= {change: of.domains[name] for change, (of, _) in changes.items()}
    told = {change: {"count": of.count, "nearest": rows} for change, (of, rows) in changes.items()}
    document = {**reach, "went": sum(effect.went.values()), **told}
    rows = [{"change": name, **row} for name, (_, of) in changes.items() for row in of]
    _print(
        output,
        rows,
        _CHANGE_COLUMNS,
        lambda: print_json(document),
        lambda: _print_effect_table(effect, document),
    )


def _nearest(change: Change, history: History, limit: int) -> list[dict[str, Any]]:
    scores = {run.seq: run.score for run in change.nearest[:limit]}
    runs = {run.seq: run for run in history.runs_at(scores.keys())}
    return [
        {
            "id": runs[seq].id,
            "domain": runs[seq].domain,
            "score": score,
            "threshold": runs[seq].threshold,
            "objective": runs[seq].objective,
        }
        for seq, score in scores.items()
        if seq in runs
    ]


def _print_effect_table(effect: EffectView, document: Row) -> None:
    reach = effect.reach
    told = (
        f"At {exact(reach.threshold)}, {reach.all.would_go:,} of {reach.all.traces:,} runs would"
        f" have gone ({_share(reach.all)}); {document['went']:,} did. {_not_counted(reach.private)}"
    )
    show(plain(told.rstrip()))
    if len(reach.domains) > 1:
        rows = [
            {"domain": name, "would go": of.would_go, "of": of.traces, "share": _share(of)}
            for name, of in reach.domains.items()
        ]
        show("")
        print_table(rows, [*rows[0]])
    for change in ("newly_go", "newly_stay"):
        count, nearest = document[change]["count"], document[change]["nearest"]
        more = f", the nearest {len(nearest)}" if nearest and len(nearest) < count else ""
        show("", f"{count:,} would {change.replace('_', ' ')}{more}")
        if nearest:
            told_of = [
                {**row, "id": short_id(row["id"]), "threshold": Figure(short_bar(row["threshold"]))}
                for row in nearest
            ]
            print_table(told_of, ("id", "score", "threshold", "domain", "objective"))


def _share(reach: Reach) -> Figure:
    return Figure(percent(reach.would_go, reach.traces))
