"""Complete words while they are typed: ids, domains and tools, from the file of traces."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem, get_completion_class

from kp_middleware import locations
from kp_middleware.inspection._explanation import one_line, short_id
from kp_middleware.storage import domain_names, tool_names, trace_ids

Completed: TypeAlias = list[CompletionItem]

_SHELLS: Final = ("bash", "zsh", "fish")
_INSTALL: Final = {
    "bash": 'eval "$({name} completion bash)"    in ~/.bashrc',
    "zsh": 'eval "$({name} completion zsh)"    in ~/.zshrc',
    "fish": "{name} completion fish > ~/.config/fish/completions/{name}.fish    once",
}
_PROGRAMS: Final = ("kp-middleware", "kp-mw")
_NEWEST_AND_BEST: Final = {"@last": "the newest trace", "@best": "the one that scored most"}
_HELP_WIDTH: Final = 60


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print what makes your shell complete commands, options, ids, domains, tools and states.

    \b
    eval "$(kp-middleware completion bash)"    in ~/.bashrc
    eval "$(kp-middleware completion zsh)"     in ~/.zshrc
    kp-middleware completion fish > ~/.config/fish/completions/kp-middleware.fish
    """
    root = context.find_root()
    name = root.info_name if root.info_name in _PROGRAMS else _PROGRAMS[0]
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has all three
    click.echo(made(root.command, {}, name, variable).source())
    click.echo(f"# To install: {_INSTALL[shell].format(name=name)}")


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
            for trace_id, objective in trace_ids(_file(context), start)
        ),
    ]


def complete_domain(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The domains that there are."""
    return _items(domain_names(_file(context), start))


def complete_tool(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The tools that were used."""
    return _items(tool_names(_file(context), start))


def trace_id_argument(
    name: str = "trace_id", *, metavar: str = "ID", required: bool = True
) -> Callable[[Any], Any]:
    """An argument that names a trace, completed from the file."""
    return click.argument(
        name, metavar=metavar, required=required, shell_complete=complete_trace_id
    )


def _file(context: click.Context) -> Path:
    """The same that a command gets, which click does not begin while it completes."""
    db: Path | None = context.find_root().params.get("db")
    return db or locations.database_file()


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
