"""Numbers as block characters: bars, a histogram, a line of weeks."""

from collections.abc import Iterator, Sequence
from typing import Final

from kp_middleware.core.gates import exact

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_WIDEST: Final = 50
_TAKEN: Final = 18


def bar(share: float, width: int) -> str:
    """Return a bar that fills this share, 0 to 1, of the width; what is not zero can be seen.

    >>> bar(0.5, 4), bar(0.001, 4), bar(0, 4)
    ('██', '▏', '')
    """
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def histogram(
    bins: Sequence[tuple[float, int]], threshold: float | None, width: int
) -> Iterator[str]:
    """Yield a line for each bin, the lowest first, with the threshold as a line between two.

    Args:
        bins: The least score of each, and how many runs it has.
        threshold: Drawn before the first bin of which all reaches it; None draws none.
        width: Of the terminal, in characters.
    """
    room = max(min(width - _TAKEN, _WIDEST), 1)
    most = max((runs for _, runs in bins), default=0) or 1
    drawn = False
    for least, runs in bins:
        if threshold is not None and least >= threshold and not drawn:
            yield _threshold_line(threshold, room, width)
            drawn = True
        yield f"{least:.2f} {runs:>10,}  {bar(runs / most, room)}".rstrip()
    if threshold is not None and not drawn:
        yield _threshold_line(threshold, room, width)


def sparkline(values: Sequence[float | None]) -> str:
    """Return one sign for each value from 0 to 1; a blank where there is none.

    >>> sparkline([0, 0.5, None, 1])
    '▁▅ █'
    """
    top = len(_HEIGHTS) - 1
    return "".join(
        " " if value is None else _HEIGHTS[min(int(value * (top + 1)), top)] for value in values
    )


def _threshold_line(threshold: float, room: int, width: int) -> str:
    words = f" threshold {exact(threshold)}"
    return "┄" * min(_TAKEN - 1 + room, width - len(words)) + words
