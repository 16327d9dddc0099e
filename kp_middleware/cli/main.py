"""The main command: subcommands by section, common options and error handling."""

import io
import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from kp_middleware.cli import options
from kp_middleware.cli.console import BROKEN_PIPE, INTERRUPTED, UNREACHABLE, warn
from kp_middleware.errors import (
    KnowledgePulseError,
    RegistryUnavailableError,
    describe_os_error,
)
from kp_middleware.storage import DATABASE_ERRORS, to_database_error
from kp_middleware.views.wording import printable

_SECTIONS: Final = {  # of --help: each command with its module
    "Find runs": "runs.list runs.show runs.similar runs.diff runs.tail recall.recall runs.sql",
    "Summarize": "stats.status stats.stats calibrate.calibrate stats.ui stats.report",
    "Review and score": "feedback.review feedback.feedback feedback.rescore",
    "Share": "outbox.outbox redact.redact maintenance.shared maintenance.pull",
    "Import, export, maintain": "transfer.import transfer.export recall.mcp"
    " maintenance.backup maintenance.migrate maintenance.repair maintenance.prune",
    "Set up": "setup.demo setup.doctor config.config",
}
_MODULES: Final = {
    path.split(".")[1]: path.split(".")[0] for paths in _SECTIONS.values() for path in paths.split()
}


class _Main(options.DefaultGroup):
    """All commands. Each module is imported when one of its commands is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*_MODULES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name in [cmd_name] if cmd_name in _MODULES else _MODULES:  # all, to suggest one
            if name not in self.commands:
                self.add_command(_with_common_options(_load(name)))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, _MODULES))
        help_width = formatter.width - width - 6
        for title, paths in _SECTIONS.items():
            names = [path.split(".")[1] for path in paths.split()]
            helps = (_load(name).get_short_help_str(help_width) for name in names)
            with formatter.section(title):
                padded = (name.ljust(width) for name in names)
                formatter.write_dl([*zip(padded, helps, strict=True)])

    def main(self, *values: Any, **more: Any) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):  # UTF-8 for pipes whatever the locale
            encoding = None if sys.stdout.isatty() else "utf-8"
            sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
        # starting numpy's threads takes longer than any computation here
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        return super().main(*values, **more)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # so that a broken pipe is raised here, not at exit
        except KnowledgePulseError as error:
            message = "\n".join(map(printable, str(error).splitlines()))  # it may quote input
            if isinstance(error, RegistryUnavailableError):
                warn(f"Error: {message}")
                sys.exit(UNREACHABLE)
            raise click.ClickException(message) from error
        except DATABASE_ERRORS as error:  # the file is damaged or locked, or the disk fails
            message = str(to_database_error(options.find_file(ctx)[0], error))
            raise click.ClickException(message) from error
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            sys.exit(BROKEN_PIPE)
        except (OSError, OverflowError, UnicodeError) as error:
            raise click.ClickException(describe_os_error(error)) from error
        return result


def _load(name: str) -> click.Command:
    module = import_module(f"kp_middleware.cli.{_MODULES[name]}")
    command: click.Command = vars(module).get(name) or vars(module)[f"{name}_"]
    return command


def _with_common_options(command: click.Command) -> click.Command:
    command.params += options.common(hidden=True)
    command.epilog = "Common options: see kp-middleware --help."
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _with_common_options(subcommand)
    return command


@click.group(cls=_Main, default="list", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kp-middleware", message="%(version)s")
def main() -> None:
    """Inspect the runs of your agents: scores, decisions, and what was sent.

    Options may also follow a command.

    \b
    kp-middleware demo          try it, entirely on this machine
    kp-middleware               list the newest runs
    kp-middleware show @last    show the last run
    """


main.params += options.common()
