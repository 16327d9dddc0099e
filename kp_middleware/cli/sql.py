"""The command that answers any question in SQL."""

import base64
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.console import Figure
from kp_middleware.cli.rows import Output, output_options
from kp_middleware.cli.user_settings import pass_db
from kp_middleware.storage import FreeQuery

_SHOWN_BYTES: Final = 16
_LARGEST: Final = 2**63


@click.command()
@click.argument("query")
@click.option(
    "-p",
    "--param",
    "parameters",
    type=(str, str),
    multiple=True,
    metavar="NAME VALUE",
    help="Value of :NAME in the query. Repeatable.",
)
@output_options(in_pipe="json")
@pass_db
def sql(db: Path, *, query: str, parameters: Iterable[tuple[str, str]], output: Output) -> None:
    """Run a read-only SQL query, for at most 5 s.

    QUERY is one statement; - reads it from standard input. Useful views: history, score_parts,
    daily, tool_usage, funnel, near_misses.

    \b
    kp-middleware sql "select domain, avg(score) from traces group by 1"
    kp-middleware sql "select * from near_misses where domain = :d" -p d code --csv
    kp-middleware sql - < question.sql
    """
    if query == "-":
        query = sys.stdin.read()
    values = {name.lstrip(":"): _value(text) for name, text in parameters}
    with closing(FreeQuery(db)) as free_query:
        answer = free_query.ask(query, values)
        rows = (
            {name: _readable(value, output.format) for name, value in row.items()}
            for row in answer.rows
        )
        output.print(rows, answer.columns, all_columns=True)


def _value(text: str) -> str | float:
    """Return a number if the text is one, so that it compares as a number.

    >>> _value("0.5"), _value("7"), _value("007"), _value("1e3"), _value("nan")
    (0.5, 7, '007', '1e3', 'nan')
    """
    kinds: tuple[Callable[[str], float], ...] = (int, float)
    for kind in kinds:
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text and abs(number) < _LARGEST:
            return number
    return text


def _readable(value: object, format_: str) -> object:
    r"""Return a value as a format can show it; in a table, a number may be a year or a key.

    >>> _readable(b"\x00\xff", "json"), _readable(b"\x3f", "csv"), _readable(2026, "table")
    ({'$base64': True, 'encoded': 'AP8='}, "x'3f'", '2026')
    """
    match value:
        case bytes() if format_ in {"json", "nl"}:  # as sqlite-utils reads it back
            return {"$base64": True, "encoded": base64.b64encode(value).decode()}
        case bytes() if format_ == "table" and len(value) > _SHOWN_BYTES:
            return f"x'{value[:_SHOWN_BYTES].hex()}…' ({len(value):,} bytes)"
        case bytes():
            return f"x'{value.hex()}'"
        case float() if not math.isfinite(value):
            return str(value)
        case float() if format_ == "table":
            return Figure(f"{value:,.3f}" if abs(value) >= 1 else f"{value:.3g}")
        case int() if format_ == "table":
            return Figure(value)
        case _:
            return value
