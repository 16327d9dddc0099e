"""Complete words while they are typed: ids, domains and tools, from the file of traces."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem, get_completion_class

from kp_middleware import locations
from kp_middleware.inspection._explanation import one_line, short_id
from kp_middleware.storage import domain_names, tool_names, trace_ids

if TYPE_CHECKING:
    from click import Group as DefaultGroup  # the package has no types
else:
    from click_default_group import DefaultGroup

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


class GroupWithDefault(DefaultGroup):
    """A group of commands, of which one is run where none is named, and all are completed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With nothing typed, what comes may be any command: only to run one is chosen."""
        if ctx.resilient_parsing and not args:
            return click.Group.parse_args(self, ctx, args)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Completed:
        """The commands, or the options of the one that is run where none is named."""
        default = self.get_command(ctx, "")
        if incomplete.startswith("-") and default is not None:
            return default.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


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
            for trace_id, objective in trace_ids(file_of(context), start)
        ),
    ]


def complete_domain(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The domains that there are."""
    return _items(domain_names(file_of(context), start))


def complete_tool(context: click.Context, _: click.Parameter, start: str) -> Completed:
    """The tools that were used."""
    return _items(tool_names(file_of(context), start))


def trace_id_argument(
    name: str = "trace_id", *, metavar: str = "ID", required: bool = True
) -> Callable[[Any], Any]:
    """An argument that names a trace, completed from the file."""
    return click.argument(
        name, metavar=metavar, required=required, shell_complete=complete_trace_id
    )


def file_of(context: click.Context) -> Path:
    """The file of traces that a command gets: click begins none while it completes."""
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
