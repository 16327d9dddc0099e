"""Options that say which traces are meant, the same for every command that takes many."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeAlias

import click

from kp_middleware.cli.input.names import complete_tool, complete_trace_id, domain_option
from kp_middleware.cli.input.since import since_option
from kp_middleware.storage import STATES, Filters

Command: TypeAlias = Callable[..., Any]

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|m|h)")


def filter_options(*, text: bool = True) -> Callable[[Command], Command]:
    """Options that say which traces are meant; the command gets them as ``filters``.

    Args:
        text: Whether ``-q`` is one of them; without, an argument ``text`` of the command is.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*values: Any, **more: Any) -> Any:
            said = {name: more.pop(name) for name in Filters._fields if name in more}
            return command(*values, filters=Filters(**said), **more)

        made: Command = run
        for option in reversed(_options()[: None if text else -1]):
            made = option(made)
        return made

    return decorate


def _options() -> list[Callable[[Command], Command]]:
    return [
        domain_option,
        click.option(
            "--above/--below", default=None, help="Only those that reached their threshold, or not."
        ),
        click.option(
            "--state",
            type=click.Choice(STATES),
            help="Only those of which this became; failed: it could not be scored.",
        ),
        click.option(
            "--tool", shell_complete=complete_tool, help="Only those that used this tool."
        ),
        click.option(
            "--failed", is_flag=True, help="Only those whose task was not done; scored or not."
        ),
        click.option(
            "--slower",
            "slower_ms",
            metavar="TIME",
            callback=_milliseconds,
            help="Only those that took so long: 500ms, 10s, 5m.",
        ),
        since_option,
        click.option(
            "--after",
            metavar="ID",
            shell_complete=complete_trace_id,
            help="Only those recorded after that one.",
        ),
        click.option("-q", "--text", help="Only those with this text; see search."),
    ]


def _milliseconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """What was typed as a span of time.

    >>> _milliseconds(None, None, "1.5s"), _milliseconds(None, None, "2 m")
    (1500.0, 120000.0)
    """
    if text is None:
        return None
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text} is no span of time: type 500ms, 10s, 5m or 2h")
    return float(match[1]) * _UNITS_MS[match[2]]
