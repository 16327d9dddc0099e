"""Names from the file of traces, completed while they are typed: ids, domains and tools."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from kp_middleware.cli.input.options_of_all import file_of
from kp_middleware.storage import domain_names, tool_names, trace_ids
from kp_middleware.views.wording import one_line, short_id

Completed: TypeAlias = list[CompletionItem]
Word = TypeVar("Word")

_NEWEST_AND_BEST: Final = {"@last": "the newest trace", "@best": "the one that scored most"}
_HELP_WIDTH: Final = 60


def complete_trace_id(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The newest traces whose id begins so, with what was asked as help."""
    names = [
        CompletionItem(name, help=text)
        for name, text in _NEWEST_AND_BEST.items()
        if name.startswith(start)
    ]
    return [
        *names,
        *(
            CompletionItem(_as_typed(trace_id, start), help=one_line(objective)[:_HELP_WIDTH])
            for trace_id, objective in _asked(trace_ids, context, start)
        ),
    ]


def complete_domain(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The domains that there are."""
    return _items(_asked(domain_names, context, start))


domain_option = click.option(
    "-d", "--domain", shell_complete=complete_domain, help="Only traces of this domain."
)


def complete_tool(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The tools that were used."""
    return _items(_asked(tool_names, context, start))


def trace_id_argument(
    name: str = "trace_id", *, metavar: str = "ID", required: bool = True
) -> Callable[[Any], Any]:
    """An argument that names a trace, completed from the file."""
    return click.argument(
        name, metavar=metavar, required=required, shell_complete=complete_trace_id
    )


def _asked(
    words: Callable[[Path, str], list[Word]], context: click.Context, start: str
) -> list[Word]:
    """What the file offers."""
    return words(file_of(context), start)


def _as_typed(trace_id: str, start: str) -> str:
    """Short where that goes on with what was typed; a colon would end the word in bash."""
    short = short_id(trace_id)
    if short.startswith(start):
        return short
    whole = trace_id.removeprefix("kp:trace:")
    return whole if whole.startswith(start) else trace_id


def _items(names: list[str]) -> Completed:
    """Names of tools may come from a model: a terminal must not be steered by them."""
    return [CompletionItem(name) for name in names if name == one_line(name)]
