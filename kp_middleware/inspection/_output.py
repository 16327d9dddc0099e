"""Print rows: JSON for programs, tab-separated in a pipe, a table for people."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from kp_middleware.inspection._explanation import one_line
from kp_middleware.storage import Row

_PIPE_WIDTH: Final = 160
_GAP: Final = 2
_LEAST: Final = 10


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def print_json(value: object) -> None:
    """One JSON value; text as it is, not escaped."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_rows(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool) -> None:
    """These columns of the rows, tab-separated; or all columns as JSON."""
    if as_json:
        print_json(list(rows))
        return
    click.echo("\t".join(columns))
    for row in rows:
        click.echo("\t".join(one_line(_text(row[name])) for name in columns))


def print_rows_or_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    as_json: bool,
    for_people: Callable[[Row], Row] = lambda row: row,
) -> None:
    """A table on a terminal, tab-separated in a pipe, JSON if it is wanted."""
    if sys.stdout.isatty() and not as_json:
        print_table([for_people(row) for row in rows], columns)
    else:
        print_rows(rows, columns, as_json=as_json)


def print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """A table as wide as the terminal: the last column is cut to what is left, the others never."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(no_color=_no_color(), highlight=False, width=width)
    left = console.width - sum(_width(rows, name) + _GAP for name in columns[:-1])
    table = Table(box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False)
    for name in columns:
        numeric = any(isinstance(row[name], int | float) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        cells = [Text(_cell(row[name]), no_wrap=True) for name in columns]
        cells[-1].truncate(max(left, _LEAST), overflow="ellipsis")
        table.add_row(*cells)
    console.print(table, no_wrap=True, crop=False)


def _width(rows: Sequence[Row], column: str) -> int:
    return max(len(column), *(len(_cell(row[column])) for row in rows), 0)


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else one_line(_text(value))


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _no_color() -> bool:
    return bool(os.environ.get("NO_COLOR"))
