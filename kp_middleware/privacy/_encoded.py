"""Texts in base64: decoded once, so that a secret in one is found as it is in any other text."""

import base64
import re
from bisect import bisect_right
from codecs import utf_8_decode, utf_16_le_decode
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from kp_middleware.privacy._rules import Span
from kp_middleware.privacy._signs import HIDDEN

_LEAST = 20
_SIGN = r"[\w+/-]"  # of both alphabets
_LINES = "|".join(  # as programs break them
    rf"(?:{_SIGN}{{{size}}}\r?\n[ \t]{{0,12}}){{1,20000}}+{_SIGN}+" for size in (76, 64, 60)
)
_RUN = re.compile(rf"(?<!{_SIGN})(?:{_LINES}|{_SIGN}{{18,}}+)={{0,2}}", re.ASCII)
_LINE = re.compile(rf"{_SIGN}{{18,}}+={{0,2}}", re.ASCII)
_PART = re.compile(r"[\w+-]{18,}={0,2}", re.ASCII)
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_ORDINARY = str.maketrans("-_", "+/")
_BETWEEN = f"\n{HIDDEN}\n"


class _Piece(NamedTuple):
    """A part of a text, and what it says."""

    start: int
    end: int
    text: str


class Decoded:
    """What a text says in base64, as one text.

    Attributes:
        text: All that was decoded; no rule takes one piece for a part of the next.
    """

    def __init__(self, text: str) -> None:
        self._pieces = [*_pieces(text)]
        self.text = _BETWEEN.join(piece.text for piece in self._pieces)
        sizes = (len(piece.text) + len(_BETWEEN) for piece in self._pieces)
        self._starts = [*accumulate(sizes, initial=0)]

    def origins(self, spans: Iterable[Span]) -> Iterator[Span]:
        """The base64, all of it, in which something was found."""
        for span in spans:
            first = bisect_right(self._starts, span.start) - 1
            last = bisect_right(self._starts, span.end - 1)
            for at, piece in enumerate(self._pieces[first:last], first):
                found = self.text[max(span.start, self._starts[at]) : span.end]
                if any(map(str.isalnum, found.partition(HIDDEN)[0])):
                    yield span._replace(start=piece.start, end=piece.end)


def _pieces(text: str) -> Iterator[_Piece]:
    """All that is the base64 of a text: whole, a line alone, or a part of a path."""
    for run in _RUN.finditer(text):
        if said := _said(run[0]):
            yield _Piece(*run.span(), said)
            continue
        for line in _LINE.finditer(text, *run.span()):
            for part in [line] if _said(line[0]) else _PART.finditer(text, *line.span()):
                if said := _said(part[0]):
                    yield _Piece(*part.span(), said)


def _said(encoded: str) -> str:
    """The text that this is the base64 of; empty if it is none."""
    signs = "".join(encoded.split()).rstrip("=").translate(_ORDINARY)
    if len(encoded) < _LEAST or len(signs) % 4 == 1:
        return ""
    data = base64.b64decode(signs + "=" * (-len(signs) % 4))
    try:  # what is cut off may end within a character
        said, _ = utf_8_decode(data) if any(data[1::2]) else utf_16_le_decode(data)
    except UnicodeDecodeError:
        return ""
    return "" if _NO_TEXT.search(said) else said
