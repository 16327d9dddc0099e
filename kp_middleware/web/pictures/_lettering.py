"""How wide a text will be, without a browser: labels decide how much room a picture has."""

import unicodedata
from typing import Final

SIZE: Final = 12.0
"""The usual height of a letter, in px."""

_WIDTHS: Final = (
    (0.32, " \N{NO-BREAK SPACE}',.IJijl\"·"),
    (0.4, "!()-/:;[\\]ft|"),
    (0.46, "r"),
    (0.53, "*?_`sz"),
    (0.6, "FLckvxy"),
    (0.7, "ABCKRVXZ"),
    (0.78, "&DGHNU"),
    (0.84, "#+<=>OQ^w~−×±"),
    (1.0, "%@MWm…"),
)
"""In heights of a letter, of DejaVu Sans: of what the style sheet names, nothing is wider."""

_USUAL: Final = 0.64
_CAPITAL: Final = 0.78
_FULL: Final = 1.05
_BOLD: Final = 1.12
_ADVANCES: Final = {character: wide for wide, characters in _WIDTHS for character in characters}
_UNSEEN: Final = frozenset({"Mn", "Me", "Cf"})


def width(text: str, *, size: float = SIZE, bold: bool = False) -> float:
    """In px, a little more rather than less.

    >>> [round(width(text), 1) for text in ("threshold", "模型")]
    [58.9, 25.2]
    """
    return sum(map(_advance, text)) * size * (_BOLD if bold else 1)


def shortened(text: str, room: float, *, size: float = SIZE) -> str:
    """A text on one line, cut where it would be wider than this many px.

    >>> shortened("many recoveries", 64)
    'many re…'
    """
    left = room / size
    line = " ".join(text[: int(max(left, 0)) * 8 + 4].split())
    used, fitting = 0.0, 0
    for place, character in enumerate(line):
        if used + _ADVANCES["…"] <= left:
            fitting = place
        used += _advance(character)
        if used > left:
            return line[:fitting] + "…"
    return line


def _advance(character: str) -> float:
    """In heights of a letter."""
    if character in _ADVANCES:
        return _ADVANCES[character]
    if unicodedata.category(character) in _UNSEEN:
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return _FULL
    return _CAPITAL if character.isupper() and not character.isascii() else _USUAL
