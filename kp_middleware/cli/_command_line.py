"""The command line: what every command has in common, and which there are."""

import os
import sys
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import add_completion_class

from kp_middleware.cli.input.bash_completion import BashWords
from kp_middleware.cli.input.default_group import GroupWithDefault
from kp_middleware.cli.input.options_of_all import (
    file_of,
    take_options_of_all,
    take_them_too,
)
from kp_middleware.cli.output.exit_codes import BROKEN_PIPE, INTERRUPTED
from kp_middleware.cli.output.streams import prepare_streams
from kp_middleware.database import TROUBLE, in_words
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.views.wording import printable

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
    "calibrate",
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
    "migrate",
    "prune",
    "rescore",
    "feedback",
    "config",
    "path",
    "completion",
    "demo",
)
"""In the order in which help names them; each in a module of its name in `commands`."""

_WITHOUT_FILE: Final = {"completion", "config", "doctor"}
"""They work where ``settings.toml``, which may name the file of traces, cannot be read."""


class _Group(GroupWithDefault):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*_COMMANDS]

    def main(self, *values: Any, **more: Any) -> Any:
        prepare_streams()
        # numpy would start a thread for each processor: slower than what any command computes
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        add_completion_class(BashWords)
        return super().main(*values, **more)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name if cmd_name in _COMMANDS else _DEFAULT
        if name not in self.commands:
            self.add_command(_command(name))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # at exit, a pipe that nobody reads would be complained of
        except KnowledgePulseError as error:
            words = "\n".join(map(printable, str(error).splitlines()))  # it may quote what was read
            raise click.ClickException(words) from error
        except TROUBLE as error:  # the file is damaged, locked, or on a disk that fails
            raise click.ClickException(str(in_words(file_of(ctx), error))) from error
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


def _command(name: str) -> click.Command:
    noun = name.replace("-", "_")
    module = import_module(f"kp_middleware.cli.commands.{noun}")
    command: click.Command = getattr(module, "list_" if noun == "list" else noun)
    take_them_too(command, needs_file=name not in _WITHOUT_FILE)
    return command


@click.group(
    cls=_Group,
    default=_DEFAULT,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="kp-middleware", message="%(version)s")
def cli() -> None:
    """Look at what your agents did, how it scored, and what was sent.

    Its options may be typed after a command, too.

    \b
    kp-middleware demo          see it work, on this machine alone
    kp-middleware               the newest traces
    kp-middleware show @last    why the last one scored as it did
    """


take_options_of_all(cli)
