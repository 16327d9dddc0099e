"""A table for people: as wide as the terminal, with nothing in it that is cut and looks whole."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kp_middleware.cli.output.manners import hint, wants_color
from kp_middleware.cli.output.screen import broken, screen_width
from kp_middleware.storage import Row
from kp_middleware.views.wording import cut, one_line

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table
    from rich.text import Text

_PIPE_WIDTH: Final = 160
_GAP: Final = 2
_LEAST: Final = 10


class Plain(int):
    """A whole number that may be a year or a name: its thousands are not set apart."""


class Measured(float):
    """A number of any size: what is less than a thousandth has three digits that say something."""


class _Layout(NamedTuple):
    """What of a table has room.

    Attributes:
        columns: That are shown.
        cut: How many places a column has that may be cut.
    """

    columns: Sequence[str]
    cut: Mapping[str, int]


def print_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    headers: bool = True,
    all_columns: bool = False,
) -> None:
    """A table as wide as the terminal: a text in the last column is cut to what is left.

    Nothing else is ever cut, since half a number is a wrong one. Where there is no room for all
    columns, those with nothing in them are left out, then the widest between the first and the
    last, measures after all others; if that does not do, or ``all_columns`` are wanted, lines are
    longer than the terminal.

    A table that ends with numbers has its name first: that is cut, as long as no two names look
    alike, and the last numbers are left out, which is said.
    """
    room = screen_width() if sys.stdout.isatty() else _PIPE_WIDTH
    layout = _laid_out(rows, columns, room, all_columns=all_columns)
    width = max(room, _taken(rows, layout.columns))
    put(_drawn(_table(rows, layout, headers=headers), width))


def _laid_out(
    rows: Sequence[Row], columns: Sequence[str], room: int, *, all_columns: bool
) -> _Layout:
    named_first = not all_columns and _is_named_first(rows, columns)
    if sys.stdout.isatty() and not all_columns:
        columns = (_first_ones if named_first else _fitting)(rows, columns, room)
    cut_one = columns[0 if named_first else -1]
    others = columns[1:] if named_first else columns[:-1]
    left = max(room - _taken(rows, others), _LEAST)
    return _Layout(columns, {cut_one: left} if _may_be_cut(rows, cut_one) else {})


def _table(rows: Sequence[Row], layout: _Layout, *, headers: bool) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        header_style="bold",
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        show_header=headers,
    )
    for name in layout.columns:
        justify: JustifyMethod = "right" if _is_numeric(rows, name) else "left"
        table.add_column(Text(one_line(name)), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row, name, layout.cut.get(name)) for name in layout.columns))
    return table


def _cell(row: Row, name: str, most: int | None) -> "Text":
    from rich.text import Text

    text = Text(cell(row[name], name), no_wrap=True)
    if most is not None:
        text.truncate(most, overflow="ellipsis")
    return text


def _drawn(table: "Table", width: int) -> str:
    """As text, because where nobody reads, rich would end the program itself."""
    from rich.console import Console

    color = wants_color()
    console = Console(no_color=not color, force_terminal=color, highlight=False, width=width)
    with console.capture() as drawn:
        console.print(table, no_wrap=True, crop=False)
    return drawn.get()


def _fitting(rows: Sequence[Row], columns: Sequence[str], room: int) -> Sequence[str]:
    """Those that have room beside each other; the first and the last that is not empty always."""
    if _taken(rows, columns) - _GAP > room:
        columns = [name for name in columns if _has_any(rows, name)] or columns
    *others, last = columns
    least = _LEAST if _may_be_cut(rows, last) else _width(rows, last)
    while len(others) > 1 and _taken(rows, others) + min(least, _width(rows, last)) > room:
        others.remove(max(others[1:], key=lambda name: _dispensable(rows, name)))
    return (*others, last)


def _is_named_first(rows: Sequence[Row], columns: Sequence[str]) -> bool:
    first, last = columns[0], columns[-1]
    return first != last and not _has_text(rows, last) and _may_be_cut(rows, first)


def _first_ones(rows: Sequence[Row], columns: Sequence[str], room: int) -> Sequence[str]:
    """Those that have room beside a name; the first two always."""
    count, least = len(columns), _telling(rows, columns, room)
    while count > 2 and least + _taken(rows, columns[1:count]) > room:
        count -= 1
    if left_out := columns[count:]:
        names = ", ".join(map(one_line, left_out))
        hint("\n".join(broken(f"no room for {names}: --json, or a wider window", room)))
    return columns[:count]


def _telling(rows: Sequence[Row], columns: Sequence[str], room: int) -> int:
    """How wide names must be for none to look like another; where there is no room, as ever."""
    names = {cell(row[columns[0]], columns[0]) for row in rows}
    least = min(_LEAST, _width(rows, columns[0]))
    for width in range(least, room - _taken(rows, columns[1:2]) + 1):
        if len({cut(name, width) for name in names}) == len(names):
            return width
    return least


def _dispensable(rows: Sequence[Row], column: str) -> tuple[bool, int]:
    is_measure = any(isinstance(row[column], float) for row in rows)
    return not is_measure, _width(rows, column)


def _taken(rows: Sequence[Row], columns: Sequence[str]) -> int:
    return sum(_width(rows, name) + _GAP for name in columns)


def _is_numeric(rows: Sequence[Row], column: str) -> bool:
    return any(isinstance(row[column], int | float) for row in rows)


def _has_any(rows: Sequence[Row], column: str) -> bool:
    return any(cell(row[column], column) for row in rows)


def _has_text(rows: Sequence[Row], column: str) -> bool:
    return not all(isinstance(row[column], int | float | None) for row in rows)


def _may_be_cut(rows: Sequence[Row], column: str) -> bool:
    """Half an id is none, half a number another."""
    is_id = column == "id" or column.endswith("_id")
    return not (is_id or _is_numeric(rows, column))


def put(text: str) -> None:
    """To standard output as it is, at once: click would take colour codes out of the data."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _width(rows: Sequence[Row], column: str) -> int:
    from rich.cells import cell_len  # some signs take two places, some none

    cells = (cell(row[column], column) for row in rows)
    return max(cell_len(one_line(column)), *map(cell_len, cells), 0)


def cell(value: Any, column: str) -> str:
    """A value as a table has it: on one line, a fraction with three digits.

    >>> cell(12345, "calls"), cell(12345.6, "mean_ms"), cell(0.42, "mean_ms"), cell(0.75, "score")
    ('12,345', '12,346', '0.4', '0.750')
    """
    match value:
        case bool() | Plain():
            return str(value)
        case int():
            return f"{value:,}"
        case Measured() if 0 < abs(value) < 0.001:
            return f"{value:.3g}"
        case float() if column.endswith("_ms"):
            return _milliseconds(value)
        case float():
            return f"{value:,.3f}"
        case _:
            return one_line(as_text(value))


def _milliseconds(took_ms: float) -> str:
    """Whole ones from ten on; what is less is some time all the same."""
    if took_ms >= 10:
        return f"{took_ms:,.0f}"
    return "<0.1" if 0 < took_ms < 0.05 else f"{took_ms:.1f}"


def as_text(value: Any) -> str:
    """A value as text has it: nothing for None, JSON for what has parts."""
    match value:
        case None:
            return ""
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
