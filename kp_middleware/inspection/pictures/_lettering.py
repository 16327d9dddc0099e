"""How wide a text will be, without a browser: labels decide how much room a picture has."""

import unicodedata
from typing import Final

SIZE: Final = 12.0
"""The usual height of a letter, in px."""

_PER_CHARACTER: Final = 6.3 / SIZE
_USUAL: Final = 1.15
_CAPITAL: Final = 1.35
_ADVANCES: Final = dict.fromkeys(" !'(),-./:;I[]fijlrt|", 0.7) | dict.fromkeys("%@MWmw", 1.85)
_UNSEEN: Final = frozenset({"Mn", "Me", "Cf"})


def width(text: str, *, size: float = SIZE) -> float:
    """In px, a little more rather than less.

    >>> [round(width(text), 1) for text in ("threshold", "模型")]
    [56.7, 25.2]
    """
    return sum(map(_advance, text)) * _PER_CHARACTER * size


def shortened(text: str, room: float, *, size: float = SIZE) -> str:
    """A text on one line, cut where it would be wider than this many px.

    >>> shortened("many recoveries", 60)
    'many re…'
    """
    left = room / (_PER_CHARACTER * size)
    line = " ".join(text[: int(max(left, 0)) * 4 + 4].split())
    used, fitting = 0.0, 0
    for place, character in enumerate(line):
        if used + _USUAL <= left:
            fitting = place
        used += _advance(character)
        if used > left:
            return line[:fitting] + "…"
    return line


def _advance(character: str) -> float:
    """In average characters."""
    if character.isascii():
        return _ADVANCES.get(character, _CAPITAL if character.isupper() else _USUAL)
    if unicodedata.category(character) in _UNSEEN:
        return 0.0
    return 2.0 if unicodedata.east_asian_width(character) in "WF" else _USUAL
