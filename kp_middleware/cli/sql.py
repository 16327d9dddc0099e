"""The command that answers any question in SQL."""

import base64
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.console import Figure, Row
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
        blob = _BLOBS.get(output.format, _in_text)
        rows = (_readable(row, blob) for row in answer.rows)
        output.print(rows, answer.columns, for_people=_for_reading, all_columns=True)


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


def _readable(row: Row, blob: Callable[[bytes], object]) -> Row:
    return {name: _readable_value(value, blob) for name, value in row.items()}


def _readable_value(value: object, blob: Callable[[bytes], object]) -> object:
    """Return a value that JSON can represent: bytes by ``blob``, infinity and nan as text."""
    match value:
        case bytes():
            return blob(value)
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def _for_reading(row: Row) -> Row:
    """Return a row with numbers of any kind as text: a whole one may be a year or a key."""
    return {name: _figure(value) for name, value in row.items()}


def _figure(value: object) -> object:
    match value:
        case float():
            return Figure(f"{value:,.3f}" if abs(value) >= 1 else f"{value:.3g}")
        case int():
            return Figure(value)
        case _:
            return value


def _in_json(blob: bytes) -> object:
    """Return bytes in the JSON form of sqlite-utils, which can read it back.

    >>> _in_json(b"\\x00\\xff")
    {'$base64': True, 'encoded': 'AP8='}
    """
    return {"$base64": True, "encoded": base64.b64encode(blob).decode()}


def _in_text(blob: bytes) -> str:
    """Return bytes as an SQL literal.

    >>> _in_text(b"\\x3f\\x80")
    "x'3f80'"
    """
    return f"x'{blob.hex()}'"


def _for_people(blob: bytes) -> str:
    """Return bytes as an SQL literal, cut if it is long.

    >>> _for_people(b"\\x3f\\x80"), _for_people(bytes(1536))[-17:]
    ("x'3f80'", "0…' (1,536 bytes)")
    """
    if len(blob) <= _SHOWN_BYTES:
        return _in_text(blob)
    return f"x'{blob[:_SHOWN_BYTES].hex()}…' ({len(blob):,} bytes)"


_BLOBS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "json": _in_json,
    "nl": _in_json,
    "table": _for_people,
}
