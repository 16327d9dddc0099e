"""The command line: what every command has in common, and which there are."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kp_middleware import locations
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.inspection._demo import demo
from kp_middleware.inspection._doctor import doctor
from kp_middleware.inspection._exit_codes import INTERRUPTED
from kp_middleware.inspection._list import list_
from kp_middleware.inspection._outbox import outbox
from kp_middleware.inspection._path import path
from kp_middleware.inspection._prune import prune
from kp_middleware.inspection._redact import redact
from kp_middleware.inspection._show import show
from kp_middleware.inspection._stats import stats
from kp_middleware.inspection._status import status

if TYPE_CHECKING:
    from click import Group as DefaultGroup  # the package has no types
else:
    from click_default_group import DefaultGroup

_COMMANDS = (
    list_,
    show,
    stats,
    status,
    outbox,
    redact,
    prune,
    path,
    doctor,
    demo,
)


class _Group(DefaultGroup):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KnowledgePulseError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


@click.group(
    cls=_Group,
    default="list",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="KP_DB",
    help="The file of traces. Default: KP_DB, or kp.db in your data folder.",
)
@click.version_option(package_name="kp-middleware", message="%(version)s")
@click.pass_context
def cli(context: click.Context, db: Path | None) -> None:
    """Look at what your agents did, how it scored, and what was sent.

    \b
    kp-middleware demo          see it work, on this machine alone
    kp-middleware               the newest traces
    kp-middleware show @last    why the last one scored as it did
    """
    context.obj = db or locations.database_file()
    if context.invoked_subcommand is None:
        context.invoke(list_)


for command in _COMMANDS:
    cli.add_command(command)
