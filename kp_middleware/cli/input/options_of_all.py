"""The options that every command has: they may be typed before its name, or after it."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware import locations
from kp_middleware.cli.output.manners import manners, set_manners
from kp_middleware.errors import SettingsFileError
from kp_middleware.views.wording import one_line

_FILE: Final = "kp_middleware.file"
_TOO: Final = "It takes the options of all commands, too: see kp-middleware --help."


_MANNERS: Final = {
    ("--no-color",): "No colour; NO_COLOR and TERM=dumb say the same.",
    ("--no-progress",): "No bars where something takes long.",
    ("--quiet",): "No hints and bars, warnings and errors alone.",
    ("-v", "--verbose"): "Show what the library logs.",
}


def file_of(context: click.Context) -> Path:
    """The file of traces that is meant: as for a program, the default where that is not known."""
    return named_file(context) or _file_and_doubt()[0]


def _file_and_doubt() -> tuple[Path, str | None]:
    """The file of traces, and why it may not be the one that is meant."""
    try:
        path = locations.database_file()
        doubt = locations.why_no_file(path)
    except SettingsFileError as error:
        doubt = str(error)
    return (locations.default_database_file(), doubt) if doubt else (path, None)


def named_file(context: click.Context) -> Path | None:
    """The file that ``--db`` names; None where it was not typed."""
    named: Path | None = context.meta.get(_FILE)
    return named


def take_options_of_all(group: click.Group) -> None:
    """Give them to the group of all commands, and name them in its help."""
    group.params += _options()


def take_them_too(command: click.Command, *, needs_file: bool) -> None:
    """Let a command have them after its name as well, and the commands of a group.

    Args:
        command: Its help says so in one line.
        needs_file: Whether it is given the path of the file, as its object. Where the settings
            would have to say that, and cannot be used, it is told.
    """
    command.params += _options(hidden=True)
    command.epilog = _TOO
    if isinstance(command, click.Group):
        for one in command.commands.values():
            take_them_too(one, needs_file=needs_file)
    elif needs_file and command.callback is not None:
        command.callback = _given_file(command.callback)


def _given_file(callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def run(*values: Any, **more: Any) -> Any:
        context = click.get_current_context()
        context.obj = named_file(context)
        if context.obj is None:
            context.obj, doubt = _file_and_doubt()
            if doubt:
                click.echo(f"{one_line(doubt)}; this is about {context.obj}", err=True)
        return callback(*values, **more)

    return run


def _options(*, hidden: bool = False) -> list[click.Option]:
    kept: dict[str, Any] = {"expose_value": False, "hidden": hidden}
    file = click.Option(
        ["--db"],
        type=click.Path(path_type=Path, dir_okay=False),
        callback=_keep_file,
        help="The file of traces. Default: KP_DB, or kp.db in your data folder.",
        **kept,
    )
    manners_ = (
        click.Option(names, is_flag=True, callback=_keep_manner, help=text, **kept)
        for names, text in _MANNERS.items()
    )
    return [file, *manners_]


def _keep_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta[_FILE] = path


def _keep_manner(context: click.Context, option: click.Parameter, typed: bool) -> None:  # noqa: FBT001
    """``--quiet`` makes ``quiet`` true, ``--no-color`` makes ``color`` false."""
    if typed and option.name:
        field = option.name.removeprefix("no_")
        set_manners(context, manners()._replace(**{field: field == option.name}))
