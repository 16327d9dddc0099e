"""A group of commands, of which one is run where none is named."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from kp_middleware.views.wording import one_line

if TYPE_CHECKING:
    from click import Group as DefaultGroup  # the package has no types
else:
    from click_default_group import DefaultGroup


class GroupWithDefault(DefaultGroup):
    """A group of commands, of which one is run where none is named, and all are completed."""

    default_cmd_name: str

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the default command where none is: what follows is its options, and not the group's.

        With nothing typed yet, a shell is told of every command.
        """
        at = self._own(ctx, args)
        typed = args[at] if at < len(args) else ""
        if typed.startswith("-") or not (typed or ctx.resilient_parsing):
            args = [*args[:at], self.default_cmd_name, *args[at:]]
        return click.Group.parse_args(self, ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or the default one for a word that is being completed."""
        if not ctx.resilient_parsing:
            self._check(ctx, cmd_name)
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands; or the options of the group, and of the command that it runs by itself."""
        own = super().shell_complete(ctx, incomplete)
        default = self.get_command(ctx, self.default_cmd_name)
        if not incomplete.startswith("-") or default is None:
            return own
        offered = {item.value: item for item in (*own, *default.shell_complete(ctx, incomplete))}
        return [*offered.values()]

    def _own(self, ctx: click.Context, args: list[str]) -> int:
        """How many of the words are options of the group, and their values."""
        options = {
            name: param
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
        }
        at = 0
        while at < len(args):
            name, equals, _ = args[at].partition("=")
            option = options.get(name)
            if not isinstance(option, click.Option):
                break
            at += 1 if option.is_flag or equals else 2
        return at

    def _check(self, ctx: click.Context, name: str) -> None:
        """The default command takes no word: one that is no command is a mistake."""
        names = self.list_commands(ctx)
        if name in names:
            return
        alike = get_close_matches(name, names, n=1)
        remedy = f"did you mean {alike[0]}?" if alike else "--help names those that there are"
        raise click.UsageError(f"there is no command {one_line(name)}: {remedy}", ctx)
