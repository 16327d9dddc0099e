"""What fits on a terminal: its width, and lines broken or cut to it."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

from kp_middleware.views.wording import cut, width_of

_PIPE_WIDTH: Final = 100


def screen_width() -> int:
    """How many characters a line has room for; 100 where nobody looks."""
    if not sys.stdout.isatty():
        return _PIPE_WIDTH
    return shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns


def padded(line: str, width: int) -> str:
    """A line cut or filled up to exactly this width."""
    line = cut(line, width)
    return line + " " * (width - width_of(line))


def broken(
    line: str, width: int, *, first: str = "", indent: str = "", most: int | None = None
) -> Iterator[str]:
    """A long line on several, broken between words.

    Args:
        line: Without line breaks.
        width: Of each.
        first: Before the first.
        indent: Before the others.
        most: How many at the most; None means as many as it takes.
    """
    yield from textwrap.wrap(
        line,
        max(width, len(indent) + 20),
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" …",
    )
