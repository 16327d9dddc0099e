"""Print rows: a table for people, tab-separated in a pipe, JSON or CSV for programs.

The grammar is that of sqlite-utils. Data alone goes to standard output; what is said about it goes
to standard error.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import click

from kp_middleware.inspection._exit_codes import EMPTY
from kp_middleware.inspection._explanation import one_line
from kp_middleware.inspection._manners import wants_color
from kp_middleware.storage import Row

Command: TypeAlias = Callable[..., Any]

_PIPE_WIDTH: Final = 160
_GAP: Final = 2
_LEAST: Final = 10
_STEERING: Final = re.compile("[\x7f-\x9f]")  # JSON escapes all others that steer a terminal
_FORMATS: Final = {
    "json": "One JSON array.",
    "nl": "One JSON object a line.",
    "csv": "Comma-separated.",
    "tsv": "Tab-separated: the default in a pipe.",
    "table": "A table: the default on a terminal.",
}


class Output(NamedTuple):
    """How rows are wanted.

    Attributes:
        format: ``json``, ``nl``, ``csv``, ``tsv`` or ``table``.
        columns: Only these; empty means those that the command chose, or all as JSON.
        headers: Whether the columns are named first, in CSV, TSV and tables.
        fail_empty: Whether the command fails where there is no row.
    """

    format: str
    columns: tuple[str, ...] = ()
    headers: bool = True
    fail_empty: bool = False

    @classmethod
    def usual(cls, *, as_json: bool = False, in_pipe: str = "tsv") -> "Output":
        """A table on a terminal, and in a pipe what suits it there, unless JSON is wanted."""
        if as_json:
            return cls("json")
        return cls("table" if sys.stdout.isatty() else in_pipe)

    def print(
        self,
        rows: Iterable[Row],
        columns: Sequence[str],
        *,
        for_people: Callable[[Row], Row] = lambda row: row,
    ) -> None:
        """Print each row as soon as it is there; a table needs them all.

        Args:
            rows: By column name.
            columns: What a table and text show; JSON has all that the rows have.
            for_people: How a row is told in a table.

        Raises:
            click.UsageError: If a column is asked for that the rows do not have.
        """
        rows = iter(rows)
        first = next(rows, None)
        self.check(first)
        rows = chain(() if first is None else (first,), rows)
        shown = self.columns or tuple(columns)
        match self.format:
            case "json":
                _print_array(self._cut(rows))
            case "nl":
                for row in self._cut(rows):
                    click.echo(json_line(row))
            case "csv":
                self._print_csv(rows, shown)
            case "tsv":
                self._print_tsv(rows, shown)
            case _:
                print_table([for_people(row) for row in rows], shown, headers=self.headers)
        if first is None and self.fail_empty:
            sys.exit(EMPTY)

    def check(self, row: Row | None) -> None:
        """Refuse columns that a row does not have."""
        unknown = [name for name in self.columns if row is not None and name not in row]
        if row is not None and unknown:
            raise click.UsageError(f"there is no column {unknown[0]}: there are {', '.join(row)}")

    def _cut(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield {name: row[name] for name in self.columns} if self.columns else row

    def _print_csv(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        if self.headers:
            _put(_csv_line(columns))
        for row in rows:
            _put(_csv_line([_text(row[name]) for name in columns]))

    def _print_tsv(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        if self.headers:
            click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(one_line(_text(row[name])) for name in columns))


def output_options(*, in_pipe: str = "tsv") -> Callable[[Command], Command]:
    """Options that say how rows are wanted; the command gets them as ``output``.

    Args:
        in_pipe: The format where standard output is no terminal and none was asked for.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(
            *values: Any,
            format_: str | None,
            column: tuple[str, ...],
            headers: bool,
            fail_empty: bool,
            **more: Any,
        ) -> Any:
            chosen = format_ or Output.usual(in_pipe=in_pipe).format
            return command(*values, output=Output(chosen, column, headers, fail_empty), **more)

        made: Command = run
        for option in reversed(_options()):  # click lists the one applied last first
            made = option(made)
        return made

    return decorate


def _options() -> list[Callable[[Command], Command]]:
    return [
        *(
            click.option(f"--{name}", "format_", flag_value=name, help=text)
            for name, text in _FORMATS.items()
        ),
        click.option("-c", "--column", multiple=True, help="Only this column. May be repeated."),
        click.option("--headers/--no-headers", default=True, help="Name the columns first."),
        click.option("--fail-empty", is_flag=True, help="Exit with 4 where there is nothing."),
    ]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def print_json(value: object) -> None:
    """One JSON value; text as it is, not escaped."""
    click.echo(json_line(value, indent=2))


def json_line(value: object, *, indent: int | None = None) -> str:
    """A value as JSON: text as it is, but for what steers a terminal."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent))


def escaped(text: str) -> str:
    r"""JSON that says the same, with nothing in it that steers a terminal.

    >>> escaped('"caf\u00e9 \u009b2J"')
    '"café \\u009b2J"'
    """
    return _STEERING.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def print_table(rows: Sequence[Row], columns: Sequence[str], *, headers: bool = True) -> None:
    """A table as wide as the terminal: the last column is cut to what is left, the others never."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(no_color=not wants_color(), highlight=False, width=width)
    left = console.width - sum(_width(rows, name) + _GAP for name in columns[:-1])
    table = Table(
        box=None,
        header_style="bold",
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        show_header=headers,
    )
    for name in columns:
        numeric = any(isinstance(row[name], int | float) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        cells = [Text(cell(row[name]), no_wrap=True) for name in columns]
        cells[-1].truncate(max(left, _LEAST), overflow="ellipsis")
        table.add_row(*cells)
    with console.capture() as drawn:
        console.print(table, no_wrap=True, crop=False)
    _put(drawn.get())  # where nobody reads, rich would end the program itself


def _print_array(rows: Iterator[Row]) -> None:
    first = next(rows, None)
    if first is None:
        click.echo("[]")
        return
    click.echo(f"[{json_line(first)}", nl=False)
    for row in rows:
        click.echo(f",\n {json_line(row)}", nl=False)
    click.echo("]")


def _csv_line(cells: Iterable[str]) -> str:
    """On a terminal without what would steer it."""
    line = io.StringIO()
    on_terminal = sys.stdout.isatty()
    csv.writer(line, lineterminator="\n").writerow(map(one_line, cells) if on_terminal else cells)
    return line.getvalue()


def _put(text: str) -> None:
    """To standard output as it is, at once: click would take colour codes out of the data."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _width(rows: Sequence[Row], column: str) -> int:
    from rich.cells import cell_len  # some signs take two places, some none

    return max(len(column), *(cell_len(cell(row[column])) for row in rows), 0)


def cell(value: Any) -> str:
    """A value as a table has it: on one line, a fraction with three digits."""
    return f"{value:.3f}" if isinstance(value, float) else one_line(_text(value))


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
