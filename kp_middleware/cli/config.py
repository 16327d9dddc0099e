"""The command ``config``."""

import json
import os
import re
from inspect import getdoc
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli import console, options
from kp_middleware.cli.console import Output, Row
from kp_middleware.patterns import compile_pattern, is_pattern
from kp_middleware.views.wording import cut, one_line

_ENTRY: Final = re.compile(r"^    (\w+): (.*(?:\n     +.*)*)", re.MULTILINE)
_NOT_IN_FILE: Final = {
    "api_key": "the shell keeps typed keys in its history: set KP_API_KEY, or add it to {path}",
    "shared": "the shell keeps typed passwords in its history: set KP_SHARED, or add it to {path}",
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

    Lists are JSON or comma-separated. To unset a setting, remove its line from the file.

    \b
    kp-middleware config set threshold "top 10%"
    kp-middleware config set redact_deny '["Bluebird", "/ACME-[0-9]+/"]'
    """
    result, text = write_setting(name, value)
    console.print_result(result, text)


@config.command()
@options.json_option
def path() -> None:
    """Print the path of settings.toml.

    \b
    $EDITOR "$(kp-middleware config path)"
    """
    file = locations.settings_file()
    console.print_result({"path": str(file), "exists": file.exists()}, str(file))


def write_setting(name: str, text: str) -> tuple[Row, str]:
    import tomlkit

    text.encode()  # raise here if it is not UTF-8; TOML would escape it
    path = locations.settings_file()
    if name in _NOT_IN_FILE:
        raise click.ClickException(_NOT_IN_FILE[name].format(path=path))
    if name == "enabled":  # KP_ENABLED=false wins over any keyword
        value: Any = click.BOOL.convert(text or "?", None, None)
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
    variable = next((one for one in os.environ if one.upper() == f"KP_{name.upper()}"), "")
    if os.environ.get(variable):
        console.warn(f"{variable} is set, and overrides the file")
    literal = json.dumps(value, ensure_ascii=False)
    words = f"{name} = {literal} in {path}: programs read it when they start"
    return {"setting": name, "value": value, "path": str(path)}, words


def _descriptions() -> dict[str, str]:
    from kp_middleware.settings import Settings

    entries = dict(_ENTRY.findall(getdoc(Settings) or ""))
    return {
        name: " ".join(entries.get(name, "").replace("``", "").split())
        for name in Settings.model_fields
    }


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
