"""A long text in pieces, so that whoever looks at it can be stopped between two of them."""

import re
from collections.abc import Iterator

_ENDS = (
    re.compile(r"\n"),
    re.compile(r"[,;\"'{}<>|]"),
    re.compile(r"(?<=[^\W\d])\s(?=[^\W\d])"),
)
"""Where a text is cut, if it can be: a line, a value, a word ends, and no number goes on."""


def pieces(text: str, size: int) -> Iterator[tuple[int, str]]:
    r"""The parts of a text, each with its place; none is longer than ``size`` characters.

    Where there is no good place for a cut, a part repeats the end of the one before it.

    >>> [*pieces("one two three\nfour", 16)]
    [(0, 'one two three\n'), (14, 'four')]
    """
    start = 0
    while len(text) - start > size:
        end = _end_before(text, start + size - size // 4, start + size)
        yield start, text[start : end or start + size]
        start = end or start + size - size // 8
    yield start, text[start:]


def _end_before(text: str, first: int, last: int) -> int | None:
    for end in _ENDS:
        found = [match.end() for match in end.finditer(text, first, last)]
        if found:
            return found[-1]
    return None
