"""Print rows: JSON for programs, tab-separated in a pipe, a table for people."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from kp_middleware.storage import Row

_PIPE_WIDTH: Final = 160


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
        click.echo("\t".join(_one_line(_text(row[name])) for name in columns))


def print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """A table as wide as the terminal; the last column takes what is left."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        last = name == columns[-1]
        numeric = any(isinstance(row[name], int | float) for row in rows)
        table.add_column(
            name.replace("_", " "),
            justify="right" if numeric else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            min_width=None if last else max(len(name), *(len(_cell(row[name])) for row in rows), 0),
        )
    for row in rows:
        table.add_row(*(_escaped(_cell(row[name])) for name in columns))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(no_color=_no_color(), highlight=False, width=width).print(table)


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else _one_line(_text(value))


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _no_color() -> bool:
    return bool(os.environ.get("NO_COLOR"))
