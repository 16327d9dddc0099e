"""What became of them? From recorded to sent, and what was lost on the way."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.web.pictures._palette import LOSS
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._rows import ROW, BarRow, Part, bar_rows
from kp_middleware.web.pictures._scale import Scale
from kp_middleware.web.pictures._wording import count, share

_NOTHING: Final = "nothing recorded yet: decorate a function with @kp.capture, or try the demo"
_COLUMNS: Final = ("State", "Traces", "Share of all")


class Stage(NamedTuple):
    """How many traces came so far, or were lost.

    Attributes:
        colour: Of its bar.
        note: More about it, such as why.
        href: Where they are listed; None means nowhere.
    """

    name: str
    traces: int
    colour: str
    note: str = ""
    href: str | None = None


def funnel(stages: Sequence[Stage]) -> Picture:
    """One bar a stage; the first has all."""
    whole = stages[0].traces if stages else 0
    if not whole:
        return empty(_NOTHING)
    finding = ", ".join(
        f"{count(stage.traces)} {stage.name}"
        for stage in stages
        if stage.traces or stage.colour != LOSS
    )
    rows = [_row(stage, whole) for stage in stages]
    svg = drawing(ROW * len(rows), finding, *bar_rows(rows, Scale(0, whole, 0, WIDTH)))
    lines = (Line(_cells(stage, whole), stage.href) for stage in stages)
    return Picture(svg, finding, _COLUMNS, tuple(lines))


def _row(stage: Stage, whole: int) -> BarRow:
    note = f": {stage.note}" if stage.note else ""
    part = share(stage.traces, whole) if stage.traces not in {0, whole} else ""
    bars = (Part(0, stage.traces, stage.colour),) if stage.traces else ()
    return BarRow(f"{stage.name}{note}", count(stage.traces), bars, part, stage.href)


def _cells(stage: Stage, whole: int) -> tuple[str, ...]:
    note = f" ({stage.note})" if stage.note else ""
    return f"{stage.name}{note}", count(stage.traces), share(stage.traces, whole)
