"""What fits on a terminal: its width, and lines broken or cut to it."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

_PIPE_WIDTH: Final = 100


def screen_width() -> int:
    """How many characters a line has room for; 100 where nobody looks."""
    if not sys.stdout.isatty():
        return _PIPE_WIDTH
    return shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns


def width_of(line: str) -> int:
    """How many columns a line takes: some signs take two, some none."""
    if line.isascii():
        return len(line)
    from rich.cells import cell_len

    return cell_len(line)


def cut(line: str, width: int) -> str:
    """As much of a line as has room, with … where something is missing.

    >>> cut("as it is", 8), cut("longer than that", 8)
    ('as it is', 'longer…')
    """
    if width_of(line) <= width:
        return line
    from rich.cells import set_cell_size

    return set_cell_size(line, max(width - 1, 0)).rstrip() + "…"


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
