"""The ``calibrate`` command: compare settings of the gate, and set one."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware import locations
from kp_middleware.cli.bars import bar, sparkline
from kp_middleware.cli.completions import complete_threshold
from kp_middleware.cli.console import Figure, Progress, hint, plain, print_table, show
from kp_middleware.cli.options import (
    UNIT,
    domain_option,
    limit_option,
    since_option,
    weights_option,
)
from kp_middleware.cli.rows import Output, output_options, print_json
from kp_middleware.cli.user_settings import profile_weights, read_settings
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.core.replay import Trial
from kp_middleware.database import connect
from kp_middleware.instants import epoch_ms
from kp_middleware.storage import Distribution, Row, read_scored_runs
from kp_middleware.views.thresholds import (
    CALIBRATION_COLUMNS,
    LONG_COLUMNS,
    ONE_COLUMNS,
    calibration,
    effect_row,
    in_long_form,
    never_leave,
    rows_of,
)
from kp_middleware.views.wording import in_hundredths, percent, short_bar, short_id

_BAR: Final = 20
_STEPS: Final = {"0.01": 1, "0.05": 5, "0.1": 10}
_EVERY_COLUMN: Final = tuple(dict.fromkeys((*CALIBRATION_COLUMNS, *LONG_COLUMNS, *ONE_COLUMNS)))
_NONE: Final = "nothing matches: no such run has a score"


@click.command()
@click.option("--threshold", type=UNIT, help="Only this one, and which runs it would change.")
@click.option(
    "--step", type=click.Choice([*_STEPS]), help="Every threshold from 0 to 1, by this step."
)
@weights_option
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
@limit_option(10, least=0, told="With --threshold: how many of the runs that change.")
@output_options(in_pipe="json", columns=_EVERY_COLUMN)
@click.pass_obj
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
    """Show what each setting of the gate would have let through, or what a threshold would.

    Every run of the file is decided on anew, by the rules of the gate and in the order of
    recording. Nothing that is stored changes. With --set, the setting is written to settings.toml,
    where programs read it when they start: KP_THRESHOLD and a keyword in the program win over it.

    With --step or --threshold, the stored parts of each score are held against plain thresholds,
    in all and by domain; what is private is not counted, since it never leaves.

    \b
    kp-middleware calibrate
    kp-middleware calibrate --step 0.1 -d code
    kp-middleware calibrate --threshold 0.7
    kp-middleware calibrate --set "top 10%" --max-per-day 20
    """
    holds = threshold is not None or step is not None
    if profile is not None and not holds:
        raise click.UsageError("--weights needs --threshold or --step")
    if chosen is not None:
        if holds or domain is not None or since is not None:
            raise click.UsageError("--set is for every domain and time: nothing else goes with it")
        _set(chosen, most, output)
        return
    with closing(connect(db, read_only=True)) as connection:
        if holds:
            weights = None if profile is None else profile_weights(db, profile)
            spread = Distribution(connection, domain=domain, since=since, weights=weights)
            if threshold is None:
                runs = _every_threshold(spread, _STEPS[step or "0.1"], output)
            else:
                runs = _one_threshold(spread, threshold, limit, output)
        else:
            settings = read_settings(db)
            with Progress("runs decided on") as shown:
                since_ms = None if since is None else epoch_ms(since)
                trial = Trial(read_scored_runs(connection), domain=domain, since_ms=since_ms)
                found = calibration(
                    trial,
                    now=settings.threshold,
                    most=settings.max_per_day if most is None else most,
                    reach=shown.reach,
                )
            runs = trial.runs
            _print(found, output)
    output.fail_if_empty(not runs)


def _print(found: Row, output: Output) -> None:
    if found["recommended"] is None and output.format != "table":
        hint(_advice(found))
    if output.columns or output.format not in {"json", "table"}:
        output.print(found["settings"], CALIBRATION_COLUMNS)
    elif output.format == "json":
        print_json(found)
    else:
        _print_calibration(found)


def _print_calibration(found: Row) -> None:
    limit = "" if found["max_per_day"] is None else f", at most {found['max_per_day']} a day"
    click.echo(f"{found['runs']:,} scored runs in {found['days']:,.1f} days")
    if found["private"]:
        show(plain(never_leave(found["private"])))
    click.echo()
    if domains := [_domain(one) for one in found["domains"]]:
        print_table(domains, [*domains[0]])
    click.echo(f"\nOf them would have been let through, by setting{limit}:\n")
    settings = [_setting(one, found["runs"], found["now"]) for one in found["settings"]]
    print_table(settings, [*settings[0]])
    needed = found["runs_needed"]
    told = f"A share needs {needed} runs of a domain; before, {DEFAULT_THRESHOLD:g} holds."
    show("", told, "", plain(_advice(found)))
    if found["recommended"] not in {None, found["now"]}:
        click.echo(f"\n  kp-middleware calibrate --set {_typed(found['recommended'])}")


def _domain(domain: Row) -> Row:
    most = max(domain["bins"])
    drawn = sparkline([runs / most if runs else None for runs in domain["bins"]])
    numbers = {"median": "median", "top_tenth": "top 10%", "best": "best"}
    told = {title: domain[name] for name, title in numbers.items()}
    return {"domain": domain["domain"], "runs": domain["runs"], **told, "0 to 1": Figure(drawn)}


def _setting(row: Row, runs: int, now: float | str) -> Row:
    name = exact(row["setting"]) if isinstance(row["setting"], float) else row["setting"]
    let_through = row["let_through"]
    share = f" ({percent(row['succeeded'], let_through)})" if let_through else ""
    return {
        "threshold": Figure(f"{name} (now)" if row["setting"] == now else name),
        "runs": let_through,
        "share": Figure(percent(let_through, runs)),
        "a day": Figure(f"{row['a_day']:,.1f}"),
        "succeeded": Figure(f"{row['succeeded']:,}{share}"),
        "": bar(row["share"], _BAR),
    }


def _advice(found: Row) -> str:
    """Return which setting is recommended and why, in one sentence."""
    best, runs = found["recommended"], found["runs"]
    if best is None:
        most = max((domain["runs"] for domain in found["domains"]), default=0)
        return (
            f"Too few runs to recommend a setting: a domain needs {found['runs_needed']} scored"
            f" runs, the largest here has {most}."
        )
    passing = {row["setting"]: row for row in found["settings"]}
    row, kept = passing[best], " It is what you have." if best == found["now"] else ""
    how = f"{row['let_through']:,} of {runs:,} runs, {row['a_day']:,.1f} a day"
    if isinstance(best, float):
        return f"Recommended: {best:g}, which the protocol specifies: {how}, reach it.{kept}"
    few = passing[DEFAULT_THRESHOLD]["let_through"]
    why = f"{few:,} reach" if few else "none reaches"
    return (
        f"Recommended: {_typed(best)}: it would have let through {how};"
        f" {why} {DEFAULT_THRESHOLD:g}.{kept}"
    )


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
        click.echo(f"{told} in {path}: programs read it when they start")
    for name in written:
        tell_what_wins(name)


def _every_threshold(spread: Distribution, step: int, output: Output) -> int:
    """Print a row for each; return how many runs are counted."""
    rows = rows_of(spread, step)
    traces = int(rows[0]["traces"]) if rows else 0
    _tell_if_none(traces, spread)
    if output.format in {"json", "nl"}:
        output.print(rows, ())
    elif output.columns or output.format != "table":
        output.print(in_long_form(rows), LONG_COLUMNS)
    elif rows:
        _print_curve(rows, spread.threshold())
    return traces


def _print_curve(rows: list[Row], current: float | None) -> None:
    domains = [*rows[0]["domains"]] if len(rows[0]["domains"]) > 1 else []
    show(plain(f"Of {rows[0]['traces']:,} runs that may leave, at each threshold:"), "")
    told = [
        {
            "threshold": Figure(
                ("→ " if row["threshold"] == current else "") + in_hundredths(row["threshold"])
            ),
            "would go": row["would_go"],
            "share": _share(row),
            **{name: _share(row["domains"][name]) for name in domains},
            "": bar(row["share"], _BAR),
        }
        for row in rows
    ]
    print_table(told, [*told[0]])
    if current is None:
        remark = "Each run was held against a bar of its own: see kp-middleware calibrate."
    else:
        remark = f"→ The last scored run was held against {exact(current)}."
    if rows[0]["private"]:
        remark += f" {never_leave(rows[0]['private'])}"
    show("", plain(f"{remark} --threshold 0.7 says which runs would change."))


def _one_threshold(spread: Distribution, threshold: float, limit: int, output: Output) -> int:
    """Print what changes at one; return how many runs are counted."""
    effect = effect_row(spread, threshold, limit)
    _tell_if_none(effect["traces"], spread)
    if output.columns or output.format not in {"json", "table"}:
        output.print(_changes(effect), ONE_COLUMNS)
    elif output.format == "json":
        print_json(effect)
    else:
        _print_effect(effect)
    return int(effect["traces"])


def _print_effect(effect: Row) -> None:
    at = exact(effect["threshold"])
    told = (
        f"At {at}, {effect['would_go']:,} of {effect['traces']:,} runs would have gone"
        f" ({_share(effect)}); {effect['went']:,} were let through by the gate of their day."
    )
    show(plain(told), *([never_leave(effect["private"])] if effect["private"] else []))
    if len(effect["domains"]) > 1:
        rows = [
            {"domain": name, "would go": row["would_go"], "of": row["traces"], "share": _share(row)}
            for name, row in effect["domains"].items()
        ]
        show("")
        print_table(rows, [*rows[0]])
    for change, words in (("newly_go", "would newly go"), ("newly_stay", "would newly stay")):
        count, nearest = effect[change]["count"], effect[change]["nearest"]
        more = f", the nearest {len(nearest)}" if nearest and len(nearest) < count else ""
        show("", f"{count:,} {words}{more}")
        if nearest:
            print_table([*map(_change, nearest)], [*_change(nearest[0])], headers=False)


def _change(trace: Row) -> Row:
    return {
        "id": short_id(trace["id"]),
        "score": trace["score"],
        "threshold": Figure(f"was held against {short_bar(trace['threshold'])}"),
        "domain": trace["domain"],
        "objective": trace["objective"],
    }


def _changes(effect: Row) -> Iterator[Row]:
    for change in ("newly_go", "newly_stay"):
        for trace in effect[change]["nearest"]:
            yield {"change": change, **trace}


def _share(row: Row) -> Figure:
    return Figure(percent(row["would_go"], row["traces"]))


def _tell_if_none(traces: int, spread: Distribution) -> None:
    """Print a hint if nothing matches: rows of zeros would look like an answer."""
    if not traces:
        private = sum(one.traces for one in spread.hundredths(private=True))
        hint(f"nothing matches. {never_leave(private)}" if private else _NONE)
