"""How wide a text will be, without a browser: labels decide how much room a picture has."""

import unicodedata
from typing import Final

SIZE: Final = 12.0
"""The usual height of a letter, in px."""

_PER_CHARACTER: Final = 6.3 / SIZE
_UNSEEN: Final = frozenset({"Mn", "Me", "Cf"})


def width(text: str, *, size: float = SIZE) -> float:
    """In px, a little more rather than less.

    >>> width("threshold"), width("模型")
    (56.7, 25.2)
    """
    return sum(map(_advance, text)) * _PER_CHARACTER * size


def shortened(text: str, room: float, *, size: float = SIZE) -> str:
    """A text on one line, cut where it would be wider than this many px.

    >>> shortened("many recoveries", 60)
    'many rec…'
    """
    left = room / (_PER_CHARACTER * size)
    line = " ".join(text[: int(max(left, 0)) * 4 + 4].split())
    kept = 0.0
    for place, character in enumerate(line):
        kept += _advance(character)
        if kept > left:
            return line[: max(0, place - 1)] + "…"
    return line


def count(number: int) -> str:
    """A count as it is read.

    >>> count(12345)
    '12,345'
    """
    return f"{number:,}"


def share(part: int, whole: int) -> str:
    """A part of a whole in per cent; never 0 % or 100 % for some or for not all.

    >>> share(48, 600), share(1, 100_000), share(99_999, 100_000), share(0, 0)
    ('8.0 %', '<0.1 %', '>99.9 %', '0 %')
    """
    if part in {0, whole}:
        return "100 %" if part else "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1 %"
    return ">99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def took(milliseconds: float) -> str:
    """How long something took.

    >>> took(0.4), took(242.2), took(4200), took(754_000)
    ('<1 ms', '242 ms', '4.2 s', '12 min 34 s')
    """
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms" if milliseconds >= 1 else "<1 ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _advance(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in _UNSEEN:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
