"""The command line: what every command has in common, and which there are."""

import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware import locations
from kp_middleware.database import TROUBLE, in_words
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.inspection.output.exit_codes import BROKEN_PIPE, INTERRUPTED
from kp_middleware.inspection.output.manners import Manners, set_manners
from kp_middleware.inspection.output.streams import prepare_streams
from kp_middleware.inspection.output.wording import one_line

if TYPE_CHECKING:
    from click import Group as DefaultGroup  # the package has no types
else:
    from click_default_group import DefaultGroup

_DEFAULT: Final = "list"
_COMMANDS: Final = (
    _DEFAULT,
    "search",
    "tail",
    "show",
    "explain",
    "similar",
    "diff",
    "stats",
    "what-if",
    "ui",
    "report",
    "tools",
    "sql",
    "status",
    "doctor",
    "outbox",
    "redact",
    "export",
    "backup",
    "prune",
    "config",
    "path",
    "completion",
    "demo",
)
"""In the order in which help names them; each in a module of its name in `commands`."""


class _Group(DefaultGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*_COMMANDS]

    def main(self, *values: Any, **more: Any) -> Any:
        prepare_streams()
        return super().main(*values, **more)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if not ctx.resilient_parsing:  # else a word is being completed
            _check_command(cmd_name)
        name = cmd_name if cmd_name in _COMMANDS else _DEFAULT
        if name not in self.commands:
            self.add_command(_command(name))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # at exit, a pipe that nobody reads would be complained of
        except KnowledgePulseError as error:
            raise click.ClickException(str(error)) from error
        except TROUBLE as error:  # the file is damaged, locked, or on a disk that fails
            raise click.ClickException(str(in_words(ctx.obj, error))) from error
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except UnicodeError as error:
            raise click.ClickException("what was given is no UTF-8 text: type it anew") from error
        except OverflowError as error:
            raise click.ClickException("a number is too large: type a smaller one") from error
        except BrokenPipeError:
            sys.exit(BROKEN_PIPE)
        except OSError as error:
            raise click.ClickException(str(error)) from error
        return result


def _check_command(name: str) -> None:
    """Refuse what is neither a command nor an option of the default one, which has no arguments."""
    if name in _COMMANDS or name.startswith("-"):
        return
    alike = get_close_matches(name, _COMMANDS, n=1)
    remedy = f"did you mean {alike[0]}?" if alike else "--help names those that there are"
    raise click.UsageError(f"there is no command {one_line(name)}: {remedy}")


def _command(name: str) -> click.Command:
    noun = name.replace("-", "_")
    module = import_module(f"kp_middleware.inspection.commands.{noun}")
    command: click.Command = getattr(module, "list_" if noun == "list" else noun)
    return command


@click.group(
    cls=_Group,
    default=_DEFAULT,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="KP_DB",
    help="The file of traces. Default: KP_DB, or kp.db in your data folder.",
)
@click.option("--no-color", is_flag=True, help="No colour; NO_COLOR and TERM=dumb say the same.")
@click.option("--no-progress", is_flag=True, help="No bars where something takes long.")
@click.option("-q", "--quiet", is_flag=True, help="No hints and bars, warnings and errors alone.")
@click.option("-v", "--verbose", is_flag=True, help="Show what the library logs.")
@click.version_option(package_name="kp-middleware", message="%(version)s")
@click.pass_context
def cli(
    context: click.Context,
    *,
    db: Path | None,
    no_color: bool,
    no_progress: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Look at what your agents did, how it scored, and what was sent.

    \b
    kp-middleware demo          see it work, on this machine alone
    kp-middleware               the newest traces
    kp-middleware show @last    why the last one scored as it did
    """
    set_manners(context, Manners(not no_color, not no_progress, quiet, verbose))
    context.obj = db or locations.database_file()
    if context.invoked_subcommand is None:
        context.invoke(_command(_DEFAULT))
