"""Options and arguments that several commands have."""

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from kp_middleware.cli.completions import (
    complete_domain,
    complete_profile,
    complete_tool,
    complete_trace_id,
)
from kp_middleware.cli.console import keep_flag
from kp_middleware.cli.user_settings import FILE
from kp_middleware.instants import instant
from kp_middleware.storage import STATES, Filters

Command: TypeAlias = Callable[..., Any]

_MOST: Final = 2**63 - 1  # SQLite has no larger number
_FLAGS: Final = {
    ("--no-color",): "No colour; NO_COLOR and TERM=dumb do the same.",
    ("--no-progress",): "No progress bars.",
    ("--quiet",): "No hints and no bars: warnings and errors alone.",
    ("-v", "--verbose"): "Show what the library logs.",
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|m|h)")
_DURATIONS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdwy])")
_DAY_S: Final = 86_400
_AGES_S: Final = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S, "w": 7 * _DAY_S, "y": 365 * _DAY_S}
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_MONTH: Final = re.compile(r"\d{4}-\d{2}")


class DefaultGroup(click.Group):
    """A group that runs one of its commands if none is named."""

    def __init__(self, *values: Any, default: str, **more: Any) -> None:
        super().__init__(*values, **more)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command before the first option that is not the group's."""
        own = {name: one for one in self.get_params(ctx) for name in one.opts + one.secondary_opts}
        at = 0
        while at < len(args) and args[at].partition("=")[0] in own:
            option = own[args[at].partition("=")[0]]
            has_value = isinstance(option, click.Option) and not option.is_flag
            at += 2 if has_value and "=" not in args[at] else 1
        typed = args[at] if at < len(args) else ""
        if typed.startswith("-") or not (typed or ctx.resilient_parsing):
            args = [*args[:at], self._default, *args[at:]]
        return super().parse_args(ctx, args)


class NumberRange(click.FloatRange):
    """Fractions within bounds; ``nan`` is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail with a usage error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


UNIT: Final = NumberRange(0, 1)
"""From 0 to 1."""


def common_options(*, hidden: bool = False) -> list[click.Option]:
    """Return the options of all commands; a command after which they are typed hides them."""
    kept: dict[str, Any] = {"expose_value": False, "hidden": hidden}
    file = click.Option(
        ["--db"],
        type=click.Path(path_type=Path, dir_okay=False),
        callback=_keep_file,
        help="The file of traces. Default: KP_DB, or kp.db in your data folder.",
        **kept,
    )
    flags = (
        click.Option(names, is_flag=True, callback=keep_flag, help=text, **kept)
        for names, text in _FLAGS.items()
    )
    return [file, *flags]


def trace_id_argument(
    name: str = "trace_id", *, metavar: str = "ID", required: bool = True
) -> Callable[[Any], Any]:
    """Return an argument that names a run."""
    return click.argument(
        name, metavar=metavar, required=required, shell_complete=complete_trace_id
    )


def limit_option(
    default: int | None = 20, *, least: int = 1, told: str = "How many."
) -> Callable[[Any], Any]:
    """Return ``-n``; without a default, the command gets None if it is not given."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=least),
        default=default,
        show_default=default is not None,
        callback=lambda _, __, number: None if number is None else min(number, _MOST),
        help=told,
    )


def filter_options(command: Command) -> Command:
    """Add the options that say which runs are meant; the command gets them as ``filters``."""

    @wraps(command)
    def run(*values: Any, **more: Any) -> Any:
        said = {name: more.pop(name) for name in Filters._fields if name in more}
        return command(*values, filters=Filters(**said), **more)

    made: Command = run
    for option in reversed(_FILTERS):
        made = option(made)
    return made


def _instant(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Return the instant as columns have it."""
    if value is None:
        return None
    age = _AGE.fullmatch(value)
    try:
        if age:
            return instant(time.time() - float(age[1]) * _AGES_S[age[2]])
        moment = _moment(value)
        return instant(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        dates, ages = "2026-11-01, 2026-11, yesterday", "30s, 5m, 36h, 7d, 1y"
        told = f"{value!r} is no date ({dates}) and no age ({ages})"
        raise click.BadParameter(told) from error


def _moment(value: str) -> datetime:
    """Return the beginning of a day or a month, or what ISO 8601 says.

    >>> _moment("2026-11")
    datetime.datetime(2026, 11, 1, 0, 0)
    """
    if value in _DAYS_AGO:
        day = datetime.now(UTC) - timedelta(days=_DAYS_AGO[value])
        return day.replace(hour=0, minute=0, second=0, microsecond=0)
    return datetime.fromisoformat(f"{value}-01" if _MONTH.fullmatch(value) else value)


def _milliseconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Return a duration.

    >>> _milliseconds(None, None, "1.5s"), _milliseconds(None, None, "2 m")
    (1500.0, 120000.0)
    """
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text} is no span of time: type 500ms, 10s, 5m or 2h")
    return float(match[1]) * _DURATIONS_MS[match[2]]


class _State(click.Choice[str]):
    """States, of which some have a blank: completed and typed with a hyphen."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value.replace(" ", "-"), param, ctx).replace("-", " ")


domain_option = click.option(
    "-d", "--domain", shell_complete=complete_domain, help="Only runs of this domain."
)

since_option = click.option(
    "--since",
    metavar="DATE|AGE",
    callback=_instant,
    help="Only what started then or later: 2026-11-01, 2026-11, yesterday; 30s, 5m (minutes), 36h,"
    " 7d, 2w, 1y. Dates are in UTC.",
)
"""The command gets an instant, or None for all times."""

older_option = click.option(
    "--older",
    metavar="DATE|AGE",
    callback=_instant,
    help="Only what started before that: 90d, 1y, 2026-11-01; as for --since.",
)
"""The same for what was before it."""

weights_option = click.option(
    "--weights",
    "profile",
    metavar="PROFILE",
    shell_complete=complete_profile,
    help="Score again with these weights: default, code, finance … or a profile of yours.",
)

_FILTERS: Final = (
    domain_option,
    click.option(
        "--above/--below", default=None, help="Only those that reached their threshold, or not."
    ),
    click.option(
        "--state",
        type=_State([state.replace(" ", "-") for state in STATES]),
        help="Only those in this state; failed: it could not be scored.",
    ),
    click.option("--tool", shell_complete=complete_tool, help="Only those that used this tool."),
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
    click.option(
        "-q",
        "--text",
        metavar="TEXT",
        help='Only those with these words: leak*, "memory leak", leak OR crash.',
    ),
)


def _keep_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta[FILE] = path
