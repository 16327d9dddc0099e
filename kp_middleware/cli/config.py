"""The ``config`` commands: show settings and their sources, and change them."""

import json
import re
from collections.abc import Callable
from inspect import getdoc
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli.console import Row
from kp_middleware.cli.options import (
    Completed,
    DefaultGroup,
    items,
    named_file,
    typed_settings,
    wrong_settings,
)
from kp_middleware.cli.rows import Output, json_option, new_file, output_options, print_json
from kp_middleware.views.wording import cut, one_line

_COLUMNS: Final = ("setting", "value", "origin", "description")
_WIDTH: Final = 44
_ENTRY: Final = re.compile(r"^    (\w+): (.*(?:\n     +.*)*)", re.MULTILINE)
_ELSEWHERE: Final = {
    "api_key": "the API key is not stored in settings.toml: set KP_API_KEY",
    "shared": "it may hold a password, and is not stored in settings.toml: set KP_SHARED",
    "profiles": "edit {path}: weights are tables, such as [profiles.DOMAIN]",
}


@click.group(cls=DefaultGroup, default="list")
def config() -> None:
    """Show settings and their sources; change settings.toml.

    \b
    kp-middleware config                      every setting
    kp-middleware config set threshold 0.8    write it to settings.toml
    kp-middleware config path                 print its path
    """


def _complete_setting(_: click.Context, __: click.Parameter, start: str) -> Completed:
    return items(descriptions(), start)


_setting_argument: Callable[[Any], Any] = click.argument(
    "name", metavar="NAME", shell_complete=_complete_setting
)


@config.command("list")
@output_options()
@click.pass_context
def list_(context: click.Context, *, output: Output) -> None:
    """List all settings with their values, sources and descriptions.

    Precedence: keyword in your program, environment variable, settings.toml, files of
    KnowledgePulse's own command line. The API key is not shown.

    \b
    kp-middleware config list --json
    """
    output.print(
        _settings(named_file(context)),
        _COLUMNS,
        for_people=lambda row: {**row, "value": cut(one_line(_text(row["value"])), _WIDTH)},
    )
    _raise_for(wrong_settings())


@config.command()
@_setting_argument
@json_option
@click.pass_context
def get(context: click.Context, *, name: str, as_json: bool) -> None:
    """Print the value of one setting.

    \b
    kp-middleware config get threshold
    sqlite3 "$(kp-middleware config get db)"
    """
    rows = {row["setting"]: row for row in _settings(named_file(context))}
    _check_name(name, [*rows])
    if as_json:
        print_json(rows[name])
    else:
        click.echo(_text(rows[name]["value"]))
    _raise_for(wrong_settings())


@config.command("set")
@_setting_argument
@click.argument("value")
@json_option
def set_(*, name: str, value: str, as_json: bool) -> None:
    """Check a setting and write it to settings.toml.

    Lists are JSON or comma-separated.

    \b
    kp-middleware config set threshold "top 10%"
    kp-middleware config set redact_deny '["Bluebird", "/ACME-[0-9]+/"]'
    """
    _check_name(name, [*descriptions()])
    value.encode()  # what is not UTF-8 is an error here, and TOML would escape it
    written = write_setting(locations.settings_file(), name, value)
    if as_json:
        print_json({"setting": name, "value": written, "path": str(locations.settings_file())})
    else:
        told = json.dumps(written, ensure_ascii=False)
        click.echo(f"{name} = {told} in {locations.settings_file()}: programs read it on start")
    tell_what_wins(name)


@config.command()
@json_option
def path(*, as_json: bool) -> None:
    """Print the path of settings.toml.

    \b
    $EDITOR "$(kp-middleware config path)"
    """
    file = locations.settings_file()
    if as_json:
        print_json({"path": str(file), "exists": file.exists()})
    else:
        click.echo(file)


def descriptions() -> dict[str, str]:
    """Return what each setting does, as the docstring of `Settings` says."""
    from kp_middleware.settings import Settings

    entries = _ENTRY.findall(getdoc(Settings) or "")
    words = {name: " ".join(text.replace("``", "").split()) for name, text in entries}
    return {name: words.get(name, "") for name in Settings.model_fields}


def write_setting(path: Path, name: str, text: str) -> Any:
    """Check a value as `Settings` does, write it with mode 0600, and return it in JSON form."""
    import tomlkit

    if name in _ELSEWHERE:
        raise click.ClickException(_ELSEWHERE[name].format(path=path))
    if name == "enabled":  # KP_ENABLED=false wins over any keyword
        value = click.BOOL.convert(text, None, None)
    else:
        value = typed_settings({name: text}).model_dump(mode="json")[name]
    locations.settings_lines()  # says why, where it cannot be read
    document = tomlkit.parse(path.read_bytes().decode() if path.exists() else "")
    document[name] = value
    path.resolve().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with new_file(path, force=True) as unfinished:
        unfinished.write_bytes(tomlkit.dumps(document).encode())
    return value


def tell_what_wins(name: str) -> None:
    """Say that an environment variable hides what the file says, if one does."""
    from kp_middleware.settings import outside_origins

    variable = outside_origins().get(name, "")
    if variable.upper() == f"KP_{name.upper()}":
        click.echo(f"{variable} is set, and overrides the file", err=True)


def _settings(db: Path | None) -> list[Row]:
    from kp_middleware.settings import outside_origins

    named: dict[str, Any] = {"db": db} if db else {}
    values = typed_settings(named).model_dump(mode="json")
    origins, told = outside_origins() | dict.fromkeys(named, "--db"), descriptions()
    return [
        dict(zip(_COLUMNS, (name, value, origins.get(name, "default"), told[name]), strict=True))
        for name, value in values.items()
    ]


def _raise_for(wrong: list[str]) -> None:
    """Raise ClickException if anything is wrong, after the values in use are printed."""
    if wrong:
        raise click.ClickException(f"{'; '.join(wrong)}; nothing is sent until this is fixed")


def _check_name(name: str, names: list[str]) -> None:
    if name not in names:
        raise click.UsageError(f"no such setting: {name} (choose from {', '.join(names)})")


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
