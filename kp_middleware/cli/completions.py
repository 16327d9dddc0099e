"""Shell completion from the file of traces: ids, domains, tools, thresholds."""

from contextlib import suppress
from typing import Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from kp_middleware.cli.user_settings import file_of, read_settings
from kp_middleware.core.formula import DEFAULT_THRESHOLD, PROFILES
from kp_middleware.storage import domain_names, tool_names, trace_ids
from kp_middleware.views.wording import one_line, short_id

Completed: TypeAlias = list[CompletionItem]

_NEWEST_AND_BEST: Final = {"@last": "the newest run", "@best": "the one that scored most"}
_THRESHOLDS: Final = {  # without a blank, at which a shell would divide it
    "top10%": "the best tenth of each domain",
    "top5%": "the best twentieth of each domain",
    "top20%": "the best fifth of each domain",
    f"{DEFAULT_THRESHOLD:g}": "as the protocol specifies",
}
_HELP_WIDTH: Final = 60


def complete_trace_id(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """Return the newest runs whose ids start with what was typed, with objectives as help."""
    found = [
        CompletionItem(_as_typed(trace_id, start), help=one_line(objective)[:_HELP_WIDTH])
        for trace_id, objective in trace_ids(file_of(context), start)
    ]
    return items(_NEWEST_AND_BEST, start) + found


def complete_domain(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """Return the domains in the file."""
    return _names(domain_names(file_of(context), start))


def complete_tool(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """Return the tools that were used."""
    return _names(tool_names(file_of(context), start))


def complete_threshold(_: click.Context, __: click.Parameter, start: str) -> Completed:
    """Return shares, and the protocol's own threshold."""
    return items(_THRESHOLDS, start.replace(" ", ""))


def complete_profile(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """Return the protocol's profiles and the user's own; these only if the settings are usable."""
    names = dict.fromkeys(PROFILES, "")
    with suppress(click.ClickException):
        names |= dict.fromkeys(read_settings(file_of(context)).profiles, "yours")
    return items(names, start)


def items(told: dict[str, str], start: str) -> Completed:
    """Return the words that start with what was typed, with a help text for each."""
    return [
        CompletionItem(name, help=text) for name, text in told.items() if name.startswith(start)
    ]


def _as_typed(trace_id: str, start: str) -> str:
    """Return an id in the shortest form that starts with what was typed."""
    short = short_id(trace_id)
    if short.startswith(start):
        return short
    whole = trace_id.removeprefix("kp:trace:")
    return whole if whole.startswith(start) else trace_id


def _names(names: list[str]) -> Completed:
    """Return completions, without names that hold control characters: a model may choose them."""
    return [CompletionItem(name) for name in names if name == one_line(name)]
