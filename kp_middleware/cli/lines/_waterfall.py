"""A score as a waterfall: each part where the one before it ended, all on the scale from 0 to 1."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kp_middleware.views.trace import ScoreLine, added_up
from kp_middleware.views.wording import short_bar

_NAME: Final = 20
_AMOUNT: Final = 6
_GAP: Final = "  "
_WIDEST: Final = 50
_NARROWEST: Final = 12


class _Span(NamedTuple):
    """From where to where a bar goes, 0 to 1."""

    start: float
    end: float


def waterfall(lines: Sequence[ScoreLine], threshold: float | None, width: int) -> Iterator[str]:
    """One row for each line of the sum; bars only where there is room for them.

    Args:
        lines: The parts, and the score last.
        threshold: Marked in each row by ┆, from 0 to 1; None where there is none.
        width: Of the terminal, in characters; at least 54, or long rows break.
    """
    lines = added_up(lines)
    workings, notes = zip(*(_apart(line.working, width) for line in lines), strict=True)
    taken = 2 + _NAME + 3 * len(_GAP) + _AMOUNT + max(map(len, workings))
    room = min(width - taken - 1, _WIDEST)  # and a cell for 1 itself
    bars = [""] * len(lines)
    if room >= _NARROWEST:
        bars = [f"{_bar(span, threshold, room)}{_GAP}" for span in _spans(lines)]
    for line, working, bar in zip(lines, workings, bars, strict=True):
        yield f"  {_name(line)}{_GAP}{bar}{_amount(line)}{_GAP}{working}".rstrip()
    if room >= _NARROWEST:
        yield f"  {'':<{_NAME}}{_GAP}{_axis(threshold, room)}"
    for line, note in zip(lines, notes, strict=True):
        if note:
            yield f"  {_name(line)}{_GAP}{note}"


def _apart(working: str, width: int) -> tuple[str, str]:
    """A remark in brackets goes below the waterfall where a row has no room for it and a bar."""
    sum_, bracket, note = working.partition("  (")
    return (working, "") if width >= 100 or not bracket else (sum_, note.removesuffix(")"))


def _name(line: ScoreLine) -> str:
    return f"{line.part.replace('_', ' '):<{_NAME}}"


def _amount(line: ScoreLine) -> str:
    sign = " " if line.part == "score" else "+"
    return format(line.amount, f"{sign}.3f")


def _spans(lines: Sequence[ScoreLine]) -> Iterator[_Span]:
    total = 0.0
    for line in lines[:-1]:
        yield _Span(total, total + line.amount)
        total += line.amount
    yield _Span(0.0, lines[-1].amount)


def _bar(span: _Span, threshold: float | None, width: int) -> str:
    """What is taken away is hollow."""
    filled = "█" if span.end >= span.start else "░"
    left, right = sorted((_column(span.start, width), _column(span.end, width)))
    if left == right and span.start != span.end:
        left, right = (left, left + 1) if left < width else (left - 1, left)
    cells = [filled if left <= column < right else " " for column in range(width + 1)]
    if threshold is not None:
        cells[_column(threshold, width)] = "┆"
    return "".join(cells)


def _axis(threshold: float | None, width: int) -> str:
    """The ends of the scale, and the threshold under its mark where they leave room for it."""
    cells = [*f"0{'':{width - 1}}1"]
    if threshold is None:
        return "".join(cells)
    told = short_bar(threshold)
    start = _column(threshold, width) - len(told) // 2
    if start > 1 and start + len(told) < width:
        cells[start : start + len(told)] = told
    return "".join(cells)


def _column(value: float, width: int) -> int:
    return round(min(1.0, max(0.0, value)) * width)
