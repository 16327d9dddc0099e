"""How a command talks to people: colour, bars, hints. Said before the command or after it."""

import logging
import os
import sys
from typing import NamedTuple, TextIO

import click

_KEY = "kp_middleware.manners"


class Manners(NamedTuple):
    """What the options of all commands say.

    Attributes:
        color: Whether colour may be used, if environment and terminal allow it.
        progress: Whether a bar may be shown.
        quiet: Whether standard error is for warnings and errors alone.
        verbose: Whether the library's log messages are shown, and progress in a pipe too.
    """

    color: bool = True
    progress: bool = True
    quiet: bool = False
    verbose: bool = False


def set_manners(context: click.Context, said: Manners) -> None:
    """Keep what was said for the command that follows, and nothing beyond it."""
    before: Manners = context.meta.get(_KEY, Manners())
    context.meta[_KEY] = said
    if said.verbose and not before.verbose:
        _show_log(context)


def manners() -> Manners:
    """What was said before this command; outside of one, nothing was."""
    context = click.get_current_context(silent=True)
    said: Manners = context.meta.get(_KEY, Manners()) if context else Manners()
    return said


def hint(message: str) -> None:
    """Tell what may help, on standard error; not under ``--quiet``. Warnings are no hints."""
    if not manners().quiet:
        click.echo(message, err=True)


def wants_color(stream: TextIO | None = None) -> bool:
    """Whether colour may be used: ``--no-color`` and NO_COLOR win, then FORCE_COLOR.

    Args:
        stream: Where to; None means standard output.
    """
    if not manners().color or os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream or sys.stdout)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at it, on a terminal whose cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _show_log(context: click.Context) -> None:
    logger, handler = logging.getLogger("kp_middleware"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    context.call_on_close(lambda: logger.removeHandler(handler))
    context.call_on_close(lambda: logger.setLevel(level))
