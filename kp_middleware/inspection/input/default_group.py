"""A group of commands, of which one is run where none is named."""

from typing import TYPE_CHECKING

import click

from kp_middleware.inspection.input.names import Completed

if TYPE_CHECKING:
    from click import Group as DefaultGroup  # the package has no types
else:
    from click_default_group import DefaultGroup


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
