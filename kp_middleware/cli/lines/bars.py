"""Pictures of numbers in block characters: bars, a histogram, a line of weeks."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kp_middleware.core.gates import exact

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_WIDEST: Final = 50
_LABEL: Final = 4
_COUNT: Final = 10


class Bin(NamedTuple):
    """How many traces scored at least this much, and less than the next bin asks for."""

    at_least: float
    traces: int


def bar(share: float, width: int) -> str:
    """A bar that fills this share, 0 to 1, of the width; what is there at all can be seen.

    >>> bar(0.5, 4), bar(0.001, 4), bar(0, 4)
    ('██', '▏', '')
    """
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def histogram(bins: Sequence[Bin], threshold: float | None, width: int) -> Iterator[str]:
    """One row a bin, the lowest first, with the threshold as a line between two.

    Args:
        bins: Without gaps.
        threshold: The line goes before the first bin of which all reaches it; None draws none.
        width: Of the terminal, in characters.
    """
    room = max(min(width - _LABEL - _COUNT - 4, _WIDEST), 1)
    most = max((one.traces for one in bins), default=0) or 1
    lines = [
        f"{one.at_least:.2f} {one.traces:>{_COUNT},}  {bar(one.traces / most, room)}"
        for one in bins
    ]
    if threshold is not None:
        below = sum(one.at_least < threshold for one in bins)
        lines.insert(below, _threshold_line(threshold, room, width))
    yield from map(str.rstrip, lines)


def _threshold_line(threshold: float, room: int, width: int) -> str:
    words = f" threshold {exact(threshold)}"
    return "┄" * min(_LABEL + _COUNT + 3 + room, width - len(words)) + words


def sparkline(values: Sequence[float | None]) -> str:
    """One sign for each value from 0 to 1; a blank where there is none.

    >>> sparkline([0, 0.5, None, 1])
    '▁▅ █'
    """
    return "".join(" " if value is None else _HEIGHTS[_height(value)] for value in values)


def _height(value: float) -> int:
    return min(int(value * len(_HEIGHTS)), len(_HEIGHTS) - 1)
