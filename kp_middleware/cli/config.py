"""The commands ``config`` and ``calibrate``."""

import json
import os
import re
from collections.abc import Sequence
from inspect import getdoc
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli import console, options
from kp_middleware.cli.console import Figure, Output, Progress, Row, print_table, safe_text
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.instants import epoch_s
from kp_middleware.patterns import compile_pattern, is_pattern
from kp_middleware.storage import History
from kp_middleware.views import gate
from kp_middleware.views.wording import counted, cut, one_line, percent

_ENTRY: Final = re.compile(r"^    (\w+): (.*(?:\n     +.*)*)", re.MULTILINE)
_NOT_IN_FILE: Final = {
    "api_key": "a typed key stays in the shell's history: set KP_API_KEY, or add it to {path}",
    "shared": "a typed password stays in the shell's history: set KP_SHARED, or add it to {path}",
    "profiles": "edit {path}: weights are tables, such as [profiles.DOMAIN]",
}


@click.group(cls=options.DefaultGroup, default="list")
def config() -> None:
    """Show settings and their sources; change settings.toml.

    \b
    kp-middleware config                      every setting
    kp-middleware config set threshold 0.8    write it to settings.toml
    kp-middleware config path                 print its path
    """


def _check_name(_: click.Context, __: click.Parameter, name: str) -> str:
    if name not in (names := _descriptions()):
        raise click.UsageError(f"no such setting: {name} (choose from {', '.join(names)})")
    return name


_setting_argument: options.Command = click.argument(
    "name",
    metavar="NAME",
    callback=_check_name,
    shell_complete=lambda _context, _option, start: options.complete(_descriptions(), start),
)


@config.command("list")
@options.output_options()
@click.pass_context
def list_(context: click.Context, *, output: Output) -> None:
    """List all settings with their values, sources and descriptions.

    Precedence: keyword in your program, environment variable, settings.toml, files of
    KnowledgePulse's own command line. Hides the API key.

    \b
    kp-middleware config list --json
    """
    output.print(
        _settings(context),
        ("setting", "value", "origin", "description"),
        humanize=lambda row: {**row, "value": cut(one_line(_text(row["value"])), 44)},
    )
    _raise_for_wrong_settings()


@config.command()
@_setting_argument
@options.json_option
@click.pass_context
def get(context: click.Context, *, name: str) -> None:
    """Print the value of one setting.

    \b
    kp-middleware config get threshold
    sqlite3 "$(kp-middleware config get db)"
    """
    row = next(row for row in _settings(context) if row["setting"] == name)
    console.print_result(row, _text(row["value"]))
    _raise_for_wrong_settings()


@config.command("set")
@_setting_argument
@click.argument("value")
@options.json_option
def set_(*, name: str, value: str) -> None:
    """Check a setting and write it to settings.toml.

    Lists are JSON or comma-separated.

    \b
    kp-middleware config set threshold "top 10%"
    kp-middleware config set redact_deny '["Bluebird", "/ACME-[0-9]+/"]'
    """
    value.encode()  # raise here if it is not UTF-8; TOML would escape it
    path = locations.settings_file()
    written = _write(path, name, value)
    literal = json.dumps(written, ensure_ascii=False)
    text = f"{name} = {literal} in {path}: programs read it when they start"
    console.print_result({"setting": name, "value": written, "path": str(path)}, text)
    variable = next((one for one in os.environ if one.upper() == f"KP_{name.upper()}"), "")
    if os.environ.get(variable):
        console.warn(f"{variable} is set, and overrides the file")


@config.command()
@options.json_option
def path() -> None:
    """Print the path of settings.toml.

    \b
    $EDITOR "$(kp-middleware config path)"
    """
    file = locations.settings_file()
    console.print_result({"path": str(file), "exists": file.exists()}, str(file))


def _descriptions() -> dict[str, str]:
    from kp_middleware.settings import Settings

    entries = dict(_ENTRY.findall(getdoc(Settings) or ""))
    return {
        name: " ".join(entries.get(name, "").replace("``", "").split())
        for name in Settings.model_fields
    }


def _write(path: Path, name: str, text: str) -> Any:
    """Validate a setting, write it with mode 0600, and return its value in JSON form."""
    import tomlkit

    if name in _NOT_IN_FILE:
        raise click.ClickException(_NOT_IN_FILE[name].format(path=path))
    if name == "enabled":  # KP_ENABLED=false wins over any keyword
        value: Any = click.BOOL.str_to_bool(text or "?")
        if value is None:
            raise click.UsageError("not a valid boolean: write true or false")
    else:
        value = options.lenient_settings({name: text}).model_dump(mode="json")[name]
    for pattern in filter(is_pattern, value if name in {"redact_allow", "redact_deny"} else ()):
        compile_pattern(pattern[1:-1])  # raises without RE2: nothing would be sent
    locations.read_settings_file()  # raises if it cannot be read
    document = tomlkit.parse(path.read_bytes().decode() if path.exists() else "")
    document[name] = value
    path.resolve().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with options.new_file(path, force=True) as temporary:
        temporary.write_bytes(tomlkit.dumps(document).encode())
    return value


def _settings(context: click.Context) -> list[Row]:
    from kp_middleware.settings import setting_origins

    db = options.named_file(context)
    named: dict[str, Any] = {"db": db} if db else {}
    values = options.lenient_settings(named).model_dump(mode="json")
    origins, descriptions = setting_origins() | dict.fromkeys(named, "--db"), _descriptions()
    return [
        {
            "setting": name,
            "value": value,
            "origin": origins.get(name, "default"),
            "description": descriptions[name],
        }
        for name, value in values.items()
    ]


def _raise_for_wrong_settings() -> None:
    """Raise ClickException for invalid settings. Call this after printing the values in use."""
    if problems := options.settings_problems():
        raise click.ClickException(f"{'; '.join(problems)}; nothing is sent until this is fixed")


def _text(value: Any) -> str:
    return value or "" if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False)


_DOMAIN_COLUMNS: Final = ("domain", "runs", "median", "top 10%", "best")


@click.command()
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="THRESHOLD",
    help='Also try this: a score, or a share such as "top 15%". Repeatable.',
)
@click.option("--max-per-day", type=click.IntRange(0), help="Also apply this limit per 24 hours.")
@options.domain
@options.since
@options.output_options(in_pipe="table")
@options.pass_db
def calibrate(
    db: Path,
    *,
    thresholds: Sequence[str],
    max_per_day: int | None,
    domain: str | None,
    since: str | None,
    output: Output,
) -> None:
    """Show how many runs each threshold would have let through.

    Replays the gate over all stored runs in recording order, without changing them. Leaves out
    private runs, which are never sent. Set one with kp-middleware config set threshold.

    \b
    kp-middleware calibrate
    kp-middleware calibrate --threshold 0.62 --threshold "top 15%" -d code
    kp-middleware config set threshold "top 10%"
    """
    settings = options.read_settings(db)
    most = settings.max_per_day if max_per_day is None else max_per_day
    with History.open(db) as history, Progress("settings tried") as bar:
        calibration = gate.calibrated(
            history.scored_runs(domain if most is None else None),  # a limit is for all domains
            now=settings.threshold,
            most=most,
            more=[options.lenient_settings({"threshold": text}).threshold for text in thresholds],
            domain=domain,
            since_ms=None if since is None else round(epoch_s(since) * 1000),
            reach=bar.update,
        )
        outcomes = history.success_record(), history.unjudged()
    successes = gate.successes_as_json(*outcomes)
    if output.columns or output.format not in {"json", "table"}:
        rows = [view._asdict() for view in calibration.settings]
        output.print(rows, gate.SettingView._fields[:-1])
    elif output.format == "json":
        console.print_json(calibration.as_json() | {"successes": successes})
    else:
        _print_calibration(calibration)
        sentences = filter(None, (successes["in_words"], successes["warning"]))
        console.print_rich("", *map(safe_text, sentences))
    output.fail_if_empty(not calibration.runs)


def _print_calibration(calibration: gate.Calibration) -> None:
    limit = "" if calibration.max_per_day is None else f", at most {calibration.max_per_day} a day"
    days = f" in {calibration.days:,.1f} days" if calibration.days > 1 else ""
    private = f" {gate.never_leave(calibration.private)}" if calibration.private else ""
    console.print_rich(safe_text(f"{counted(calibration.runs, 'scored run')}{days}.{private}"), "")
    if calibration.domains:
        rows = [dict(zip(_DOMAIN_COLUMNS, row, strict=False)) for row in calibration.domains]
        print_table(rows, _DOMAIN_COLUMNS)
    click.echo(f"\nRuns that each threshold would have let through{limit}:\n")
    settings = [_setting_row(view, calibration) for view in calibration.settings]
    print_table(settings, [*settings[0]])
    console.print_rich("", safe_text(_recommendation(calibration)))
    best = calibration.recommended
    if best not in {None, calibration.now}:
        click.echo(f"\n  kp-middleware config set threshold {_as_typed(best or '')}")


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
    share = f"A share needs {needed} runs of a domain; until then, {DEFAULT_THRESHOLD:g} applies."
    if best is None:
        most = max((domain.runs for domain in calibration.domains), default=0)
        return f"Too few runs to recommend a threshold: the largest domain has {most}. {share}"
    passing = {view.setting: view for view in calibration.settings}
    a_day = f", {passing[best].a_day:,.1f} a day" if calibration.days > 1 else ""
    reaching = passing[DEFAULT_THRESHOLD].let_through
    than = "" if best == DEFAULT_THRESHOLD else f"; {reaching:,} reach {DEFAULT_THRESHOLD:g}"
    note = " You already use it." if best == calibration.now else ""
    result = f"{passing[best].let_through:,} of {counted(calibration.runs, 'run')}{a_day}{than}"
    return f"Recommended: {_as_typed(best)}, which lets through {result}.{note} {share}"


def _as_typed(setting: float | str) -> str:
    return exact(setting) if isinstance(setting, float) else f'"{setting}"'
