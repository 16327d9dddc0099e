"""Clean a text that is too long for one look: in parts, between which nothing is found."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Protocol, TypeAlias

from kp_middleware.errors import RedactionError

PART: Final = 1 << 19
"""Characters of a part, at the most."""

_AROUND: Final = 1 << 15  # twice the longest value that a rule takes
_STEP: Final = 1 << 12
_TRIES: Final = 16


class Cleaned(Protocol):
    """A text without what had to go."""

    @property
    def text(self) -> str:
        """With placeholders."""


Clean: TypeAlias = Callable[[str], Cleaned]


def parts(text: str, clean: Clean) -> Iterator[str]:
    """The lines of a text, many at a time; what is found in one part goes on in no other.

    Raises:
        RedactionError: ``too_large`` if there is no place for a cut.
    """
    start = 0
    while len(text) - start > PART:
        end = _cut(text, start, clean)
        yield text[start:end]
        start = end
    yield text[start:]


def _cut(text: str, start: int, clean: Clean) -> int:
    for place in islice(_line_ends(text, start), _TRIES):
        before, after = text[max(start, place - _AROUND) : place], text[place : place + _AROUND]
        if clean(before + after).text == clean(before).text + clean(after).text:
            return place
    raise RedactionError("too_large", f"character {start:,}: there is no line end to cut at")


def _line_ends(text: str, start: int) -> Iterator[int]:
    place = start + PART
    while (place := text.rfind("\n", start, place)) >= 0:
        yield place + 1
        place = max(start, place + 1 - _STEP)
