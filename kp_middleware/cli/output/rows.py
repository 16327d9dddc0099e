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

from kp_middleware.cli.output.exit_codes import EMPTY
from kp_middleware.cli.output.table import as_text, print_table, put
from kp_middleware.storage import Row
from kp_middleware.views.wording import one_line

Command: TypeAlias = Callable[..., Any]

_STEERING: Final = re.compile(  # JSON escapes all others that steer a terminal
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # the last turn the line around
)
_FORMATS: Final = {
    "json": "One JSON array.",
    "nl": "One JSON object a line.",
    "csv": "Comma-separated.",
    "tsv": "Tab-separated.",
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
        all_columns: bool = False,
    ) -> None:
        """Print each row as soon as it is there; a table needs them all.

        Args:
            rows: By column name.
            columns: What a table and text show; JSON has all that the rows have.
            for_people: How a row is told in a table.
            all_columns: Whether a table has all of them on a narrow terminal too, in long lines.

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
                print_table(
                    [for_people(row) for row in rows],
                    shown,
                    headers=self.headers,
                    all_columns=all_columns or bool(self.columns),
                )
        if first is None and self.fail_empty:
            sys.exit(EMPTY)

    def check(self, row: Row | None) -> None:
        """Refuse columns that a row does not have."""
        unknown = [name for name in self.columns if row is not None and name not in row]
        if row is not None and unknown:
            names = one_line(", ".join(row))
            raise click.UsageError(f"there is no column {one_line(unknown[0])}: there are {names}")

    def _cut(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield {name: row[name] for name in self.columns} if self.columns else row

    def _print_csv(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        if self.headers:
            put(_csv_line(columns))
        for row in rows:
            put(_csv_line([as_text(row[name]) for name in columns]))

    def _print_tsv(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        if self.headers:
            click.echo("\t".join(map(one_line, columns)))
        for row in rows:
            click.echo("\t".join(one_line(as_text(row[name])) for name in columns))


def output_options(
    *, in_pipe: str = "tsv", columns: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Options that say how rows are wanted; the command gets them as ``output``.

    Args:
        in_pipe: The format where standard output is no terminal and none was asked for.
        columns: What a shell offers for ``-c``.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(
            *values: Any,
            column: tuple[str, ...],
            headers: bool,
            fail_empty: bool,
            **more: Any,
        ) -> Any:
            chosen = chosen_format(_FORMATS, more) or Output.usual(in_pipe=in_pipe).format
            return command(*values, output=Output(chosen, column, headers, fail_empty), **more)

        made: Command = run
        for option in reversed(
            _options(columns, in_pipe)
        ):  # click lists the one applied last first
            made = option(made)
        return made

    return decorate


def _options(columns: Sequence[str], in_pipe: str) -> list[Callable[[Command], Command]]:
    return [
        *(
            click.option(f"--{name}", f"as_{name}", is_flag=True, help=_told(name, text, in_pipe))
            for name, text in _FORMATS.items()
        ),
        click.option(
            "-c",
            "--column",
            multiple=True,
            callback=_columns,
            shell_complete=lambda _context, _option, start: [
                name for name in columns if name.startswith(start)
            ],
            help="Only this column, or these: -c id,score. May be repeated.",
        ),
        click.option("--headers/--no-headers", default=True, help="Name the columns first."),
        click.option("--fail-empty", is_flag=True, help="Exit with 4 where there is nothing."),
    ]


def _told(name: str, text: str, in_pipe: str) -> str:
    return f"{text.removesuffix('.')}: the default in a pipe." if name == in_pipe else text


def _columns(_: click.Context, __: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    """As they were typed, one by one or with commas between them.

    >>> _columns(None, None, ("id, score", "state"))
    ('id', 'score', 'state')
    """
    names = (name.strip() for text in typed for name in text.split(","))
    return tuple(name for name in names if name)


def chosen_format(names: Iterable[str], typed: dict[str, Any]) -> str | None:
    """Which of the options ``as_…`` was typed, taken out of the others; None for none.

    Raises:
        click.UsageError: If it is more than one.
    """
    chosen = [name for name in names if typed.pop(f"as_{name}")]
    if len(chosen) > 1:
        raise click.UsageError(f"--{' and --'.join(chosen)} exclude each other: type one of them")
    return chosen[0] if chosen else None


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


def exact_json(body: str) -> str:
    """A document as it is; on a terminal the same JSON, with what is not printed as its escapes."""
    if not sys.stdout.isatty():
        return body
    return "".join(
        sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in body
    )


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
