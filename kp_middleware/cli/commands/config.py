"""The commands on the settings: what each is, where that comes from, and how to change it."""

import json
from collections.abc import Callable
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli.input.default_group import GroupWithDefault
from kp_middleware.cli.input.names import Completed
from kp_middleware.cli.input.options_of_all import named_file
from kp_middleware.cli.input.thresholds import complete_threshold
from kp_middleware.cli.installation.user_settings import wrong_settings
from kp_middleware.cli.output.rows import Output, json_option, output_options, print_json
from kp_middleware.storage import Row
from kp_middleware.views.wording import one_line

_COLUMNS: Final = ("setting", "value", "origin", "description")
_WIDTH: Final = 44


@click.group(cls=GroupWithDefault, default="list")
def config() -> None:
    """See each setting, where it comes from and what it does; change the settings file.

    \b
    kp-middleware config                      every setting
    kp-middleware config set threshold 0.8    write it to settings.toml
    kp-middleware config path                 where that is
    """


def _complete_setting(_: click.Context, __: click.Parameter, start: str) -> Completed:
    from click.shell_completion import CompletionItem

    from kp_middleware.cli.installation.origins import descriptions

    return [
        CompletionItem(name, help=text)
        for name, text in descriptions().items()
        if name.startswith(start)
    ]


def _complete_value(context: click.Context, parameter: click.Parameter, start: str) -> Completed:
    if context.params.get("name") == "threshold":
        return complete_threshold(context, parameter, start)
    return []


_setting_argument: Callable[[Any], Any] = click.argument(
    "name", metavar="NAME", shell_complete=_complete_setting
)


@config.command("list")
@output_options(columns=_COLUMNS)
@click.pass_context
def list_(context: click.Context, *, output: Output) -> None:
    """List every setting: its value, where it comes from, and what it does.

    A variable of the environment wins over settings.toml, that over the files of the reference
    command line, and a keyword in your program over all. The API key is not shown.

    \b
    kp-middleware config list --json
    """
    output.print(_rows(context), _COLUMNS, for_people=_for_people)
    _raise_for(wrong_settings())


@config.command()
@_setting_argument
@json_option
@click.pass_context
def get(context: click.Context, *, name: str, as_json: bool) -> None:
    """Print the value of one setting.

    \b
    kp-middleware config get threshold
    """
    rows = {row["setting"]: row for row in _rows(context)}
    _check_name(name, [*rows])
    if as_json:
        print_json(rows[name])
    else:
        click.echo(_text(rows[name]["value"]))
    _raise_for(wrong_settings())


@config.command("set")
@_setting_argument
@click.argument("value", shell_complete=_complete_value)
@json_option
def set_(*, name: str, value: str, as_json: bool) -> None:
    """Write one setting to settings.toml, after a check. Other lines stay as they are.

    A list is JSON, or texts divided by commas.

    \b
    kp-middleware config set threshold "top 10%"
    kp-middleware config set redact_deny '["Bluebird", "/ACME-[0-9]+/"]'
    """
    from kp_middleware.cli.installation.origins import descriptions
    from kp_middleware.cli.installation.settings_file import tell_what_wins, write_setting

    _check_name(name, [*descriptions()])
    _check_text(value)
    written = write_setting(locations.settings_file(), name, value)
    if as_json:
        print_json({"setting": name, "value": written, "path": str(locations.settings_file())})
    else:
        click.echo(f"{name} is {json.dumps(written, ensure_ascii=False)} from the next program on")
    tell_what_wins(name)


@config.command()
@json_option
def path(*, as_json: bool) -> None:
    """Print where settings.toml is, or would be.

    \b
    $EDITOR "$(kp-middleware config path)"
    """
    file = locations.settings_file()
    if as_json:
        print_json({"path": str(file), "exists": file.exists()})
    else:
        click.echo(file)


def _rows(context: click.Context) -> list[Row]:
    from kp_middleware.cli.installation.origins import settings_with_origins

    return settings_with_origins(named_file(context))


def _raise_for(wrong: list[str]) -> None:
    """What is wrong is said after what is used instead."""
    if wrong:
        raise click.ClickException(f"{'; '.join(wrong)}; until this is corrected, nothing is sent")


def _check_name(name: str, names: list[str]) -> None:
    if name not in names:
        raise click.UsageError(f"there is no setting {name}: there are {', '.join(names)}")


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError("the value is no UTF-8 text: type it anew") from error


def _for_people(row: Row) -> Row:
    text = one_line(_text(row["value"]))
    return row | {"value": text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"}


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)
