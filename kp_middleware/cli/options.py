"""Options and arguments that several commands have, and what the shell completes for them."""

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from kp_middleware.cli.console import keep_flag
from kp_middleware.cli.user_settings import FILE, file_of
from kp_middleware.instants import instant
from kp_middleware.storage import STATES, Filters, domain_names, tool_names, trace_ids
from kp_middleware.views.wording import one_line, short_id

Completed: TypeAlias = list[CompletionItem]
Command: TypeAlias = Callable[..., Any]

_NEWEST_AND_BEST: Final = {"@last": "the newest run", "@best": "the run with the highest score"}
_HELP_WIDTH: Final = 60
_FLAGS: Final = {
    ("--no-color",): "Disable colour, as NO_COLOR and TERM=dumb do.",
    ("--no-progress",): "Hide progress bars.",
    ("--quiet",): "Print only warnings and errors.",
    ("-v", "--verbose"): "Print log messages.",
}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?) *(ms|[smhdwy])")
_UNITS_S: Final = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "w": 7 * 86_400,
    "y": 365 * 86_400,
}


def complete_trace_id(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """Return the newest runs whose ids start with what was typed, with objectives as help."""
    told = dict(_NEWEST_AND_BEST)
    for trace_id, objective in trace_ids(file_of(context), start):
        forms = short_id(trace_id), trace_id.removeprefix("kp:trace:"), trace_id
        shortest = next(form for form in forms if form.startswith(start))
        told[shortest] = one_line(objective)[:_HELP_WIDTH]
    return items(told, start)


def items(told: dict[str, str], start: str) -> Completed:
    """Return the words that start with what was typed, with a help text for each."""
    return [
        CompletionItem(name, help=text) for name, text in told.items() if name.startswith(start)
    ]


def complete_domain(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """Return the domains in the file."""
    return _names(domain_names(file_of(context), start))


def _complete_tool(context: click.Context, _: click.Parameter, start: str) -> Completed:
    return _names(tool_names(file_of(context), start))


def _names(names: list[str]) -> Completed:
    """Return completions, without names that hold control characters: a model may choose them."""
    return [CompletionItem(name) for name in names if name == one_line(name)]


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
    """Numbers within bounds; ``nan`` is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail with a usage error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


UNIT: Final = NumberRange(0, 1)


def common_options(*, hidden: bool = False) -> list[click.Option]:
    """Return the options of all commands; a command after which they are typed hides them."""
    kept: dict[str, Any] = {"expose_value": False, "hidden": hidden}
    file = click.Option(
        ["--db"],
        type=click.Path(path_type=Path, dir_okay=False),
        callback=_keep_file,
        help="Trace database. Default: KP_DB, or kp.db in your data folder.",
        **kept,
    )
    kept |= {"is_flag": True, "callback": keep_flag}
    return [file, *(click.Option(names, help=text, **kept) for names, text in _FLAGS.items())]


def _keep_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta[FILE] = path


def trace_id_argument(
    name: str = "trace_id", *, metavar: str = "ID", **more: Any
) -> Callable[[Any], Any]:
    """Return an argument that names a run."""
    return click.argument(name, metavar=metavar, shell_complete=complete_trace_id, **more)


def limit_option(
    default: int | None = 20, *, least: int = 1, told: str = "Maximum number of rows."
) -> Callable[[Any], Any]:
    """Return ``-n``; without a default, the command gets None if it is not given."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=least),
        default=default,
        show_default=default is not None,
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


def _instant(value: str) -> str:
    try:
        age_s = _span_s(value)
        if age_s is not None:
            return instant(time.time() - age_s)
        moment = datetime.fromisoformat(value)
        return instant(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        told = f"{value!r} is not a date (2026-11-01) or an age (30s, 5m, 36h, 7d, 1y)"
        raise click.BadParameter(told) from error


def _milliseconds(value: str) -> float:
    seconds = _span_s(value)
    if seconds is None:
        raise click.BadParameter(f"{value} is not a duration: type 500ms, 10s, 5m or 2h")
    return seconds * 1000


def _span_s(text: str) -> float | None:
    """Return a number with a unit in seconds; None if it is something else.

    >>> _span_s("1.5s"), _span_s("2 m"), _span_s("soon")
    (1.5, 120.0, None)
    """
    match = _SPAN.fullmatch(text.strip())
    return float(match[1]) * _UNITS_S[match[2]] if match else None


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
    type=_instant,
    help="Only runs started since a UTC date (2026-11-01) or age (30s, 5m for minutes, 36h, 7d,"
    " 2w, 1y).",
)

older_option = click.option(
    "--older",
    metavar="DATE|AGE",
    type=_instant,
    help="Only runs started before a UTC date or age: 2026-11-01, 90d, 1y.",
)

_FILTERS: Final = (
    domain_option,
    click.option(
        "--above/--below", default=None, help="Only runs at or above / below their threshold."
    ),
    click.option(
        "--state",
        type=_State([state.replace(" ", "-") for state in STATES]),
        help="Only runs in this state; failed: could not be scored.",
    ),
    click.option("--tool", shell_complete=_complete_tool, help="Only runs that used this tool."),
    click.option("--failed", is_flag=True, help="Only runs whose task failed."),
    click.option(
        "--slower",
        "slower_ms",
        metavar="TIME",
        type=_milliseconds,
        help="Only runs that took at least this long: 500ms, 10s, 5m.",
    ),
    since_option,
    click.option(
        "--after",
        metavar="ID",
        shell_complete=complete_trace_id,
        help="Only runs recorded after this one.",
    ),
    click.option(
        "-q",
        "--text",
        metavar="TEXT",
        help='Search objectives, results and steps: leak*, "memory leak", leak OR crash.',
    ),
)
