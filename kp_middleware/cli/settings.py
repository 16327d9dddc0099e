"""The commands on settings: show, change, and compare what each of the gate would let through."""

import json
import re
from collections.abc import Sequence
from inspect import getdoc
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli import console, options
from kp_middleware.cli.console import Figure, Output, Progress, Row, plain, print_table, show
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.instants import epoch_s
from kp_middleware.storage import History
from kp_middleware.views import gate
from kp_middleware.views.wording import counted, cut, one_line, percent

_COLUMNS: Final = ("setting", "value", "origin", "description")
_WIDTH: Final = 44
_ENTRY: Final = re.compile(r"^    (\w+): (.*(?:\n     +.*)*)", re.MULTILINE)
_ELSEWHERE: Final = {
    "api_key": "the API key is not stored in settings.toml: set KP_API_KEY",
    "shared": "it may hold a password, and is not stored in settings.toml: set KP_SHARED",
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
    if name not in _descriptions():
        raise click.UsageError(
            f"no such setting: {name} (choose from {', '.join(_descriptions())})"
        )
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
    KnowledgePulse's own command line. The API key is not shown.

    \b
    kp-middleware config list --json
    """
    output.print(
        _settings(context),
        _COLUMNS,
        for_people=lambda row: {**row, "value": cut(one_line(_text(row["value"])), _WIDTH)},
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
    console.answer(row, _text(row["value"]))
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
    from kp_middleware.settings import setting_origins

    value.encode()  # what is not UTF-8 is an error here, and TOML would escape it
    path = locations.settings_file()
    written = _write(path, name, value)
    told = json.dumps(written, ensure_ascii=False)
    words = f"{name} = {told} in {path}: programs read it on start"
    console.answer({"setting": name, "value": written, "path": str(path)}, words)
    variable = setting_origins().get(name, "")
    if variable.upper() == f"KP_{name.upper()}":
        console.warn(f"{variable} is set, and overrides the file")


@config.command()
@options.json_option
def path() -> None:
    """Print the path of settings.toml.

    \b
    $EDITOR "$(kp-middleware config path)"
    """
    file = locations.settings_file()
    console.answer({"path": str(file), "exists": file.exists()}, str(file))


def _descriptions() -> dict[str, str]:
    """Return what each setting does, as the docstring of `Settings` says."""
    from kp_middleware.settings import Settings

    entries = _ENTRY.findall(getdoc(Settings) or "")
    words = {name: " ".join(text.replace("``", "").split()) for name, text in entries}
    return {name: words.get(name, "") for name in Settings.model_fields}


def _write(path: Path, name: str, text: str) -> Any:
    """Check a value as `Settings` does, write it with mode 0600, and return it in JSON form."""
    import tomlkit

    if name in _ELSEWHERE:
        raise click.ClickException(_ELSEWHERE[name].format(path=path))
    if name == "enabled":  # KP_ENABLED=false wins over any keyword
        value = click.BOOL.convert(text, None, None)
    else:
        value = options.typed_settings({name: text}).model_dump(mode="json")[name]
    locations.read_settings_file()  # says why, where it cannot be read
    document = tomlkit.parse(path.read_bytes().decode() if path.exists() else "")
    document[name] = value
    path.resolve().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with options.new_file(path, force=True) as unfinished:
        unfinished.write_bytes(tomlkit.dumps(document).encode())
    return value


def _settings(context: click.Context) -> list[Row]:
    from kp_middleware.settings import setting_origins

    db = options.named_file(context)
    named: dict[str, Any] = {"db": db} if db else {}
    values = options.typed_settings(named).model_dump(mode="json")
    origins, told = setting_origins() | dict.fromkeys(named, "--db"), _descriptions()
    return [
        dict(zip(_COLUMNS, (name, value, origins.get(name, "default"), told[name]), strict=True))
        for name, value in values.items()
    ]


def _raise_for_wrong_settings() -> None:
    """Raise ClickException if anything is wrong, after the values in use are printed."""
    if wrong := options.wrong_settings():
        raise click.ClickException(f"{'; '.join(wrong)}; nothing is sent until this is fixed")


def _text(value: Any) -> str:
    return value or "" if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False)


_BAR: Final = 20
_DOMAIN_COLUMNS: Final = ("domain", "runs", "median", "top 10%", "best")


@click.command()
@click.option(
    "--threshold",
    "more",
    multiple=True,
    metavar="THRESHOLD",
    help='Try this one as well: a score, or a share such as "top 15%". Repeatable.',
)
@click.option("--max-per-day", "most", type=click.IntRange(0), help="Limit them in 24 hours.")
@options.domain
@options.since
@options.output_options(in_pipe="table")
@options.pass_db
def calibrate(
    db: Path,
    *,
    more: Sequence[str],
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
    settings = options.read_settings(db)
    with History.open(db) as history, Progress("runs decided on") as shown:
        found = gate.calibrated(
            history.scored_runs(),
            now=settings.threshold,
            most=settings.max_per_day if most is None else most,
            more=[options.typed_settings({"threshold": one}).threshold for one in more],
            domain=domain,
            since_ms=None if since is None else round(epoch_s(since) * 1000),
            reach=shown.reach,
        )
        outcomes = history.success_record(), history.unjudged()
    successes = gate.successes_as_json(*outcomes)
    if output.columns or output.format not in {"json", "table"}:
        output.print([one._asdict() for one in found.settings], gate.SettingView._fields[:-1])
    elif output.format == "json":
        console.print_json(found.as_json() | {"successes": successes})
    else:
        _print_calibration(found)
        show("", *map(plain, filter(None, (successes["in_words"], successes["warning"]))))
    output.fail_if_empty(not found.runs)


def _print_calibration(found: gate.Calibration) -> None:
    limit = "" if found.max_per_day is None else f", at most {found.max_per_day} a day"
    days = f" in {found.days:,.1f} days" if found.days > 1 else ""
    private = f" {gate.never_leave(found.private)}" if found.private else ""
    show(plain(f"{counted(found.runs, 'scored run')}{days}.{private}"), "")
    if found.domains:
        rows = [dict(zip(_DOMAIN_COLUMNS, one, strict=False)) for one in found.domains]
        print_table(rows, _DOMAIN_COLUMNS)
    click.echo(f"\nRuns that each threshold would have let through{limit}:\n")
    settings = [_setting(one, found) for one in found.settings]
    print_table(settings, [*settings[0]])
    show("", plain(_advice(found)))
    if found.recommended not in {None, found.now}:
        click.echo(f"\n  kp-middleware config set threshold {_typed(found.recommended or '')}")


def _setting(one: gate.SettingView, found: gate.Calibration) -> Row:
    name = exact(one.setting) if isinstance(one.setting, float) else one.setting
    of = f"{one.succeeded:,} of {one.known:,} known ({percent(one.succeeded, one.known)})"
    domains = one.domains if len(one.domains) > 1 else {}
    return {
        "threshold": Figure(f"{name} (now)" if one.setting == found.now else name),
        "runs": one.let_through,
        "share": Figure(percent(one.let_through, found.runs)),
        **({"a day": Figure(f"{one.a_day:,.1f}")} if found.days > 1 else {}),
        "succeeded": Figure(of if one.known else "not known"),
        **({"if not private": one.if_not_private} if found.private else {}),
        **{f"in {name}": count for name, count in domains.items()},
        "": console.bar(one.share, _BAR),
    }


def _advice(found: gate.Calibration) -> str:
    best, needed = found.recommended, found.runs_needed
    share = f"A share needs {needed} runs of a domain; until then, {DEFAULT_THRESHOLD:g} applies."
    if best is None:
        most = max((domain.runs for domain in found.domains), default=0)
        return f"Too few runs to recommend a threshold: the largest domain has {most}. {share}"
    passing = {one.setting: one for one in found.settings}
    a_day = f", {passing[best].a_day:,.1f} a day" if found.days > 1 else ""
    few = passing[DEFAULT_THRESHOLD].let_through
    than = "" if best == DEFAULT_THRESHOLD else f"; {few:,} reach {DEFAULT_THRESHOLD:g}"
    kept = " You use it already." if best == found.now else ""
    told = f"{passing[best].let_through:,} of {counted(found.runs, 'run')}{a_day}{than}.{kept}"
    return f"Recommended: {_typed(best)}, which lets through {told} {share}"


def _typed(setting: float | str) -> str:
    return exact(setting) if isinstance(setting, float) else f'"{setting}"'
