"""Write rows in the formats of sqlite-utils (table, TSV, CSV, JSON, JSON lines), and new files."""

import csv
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kp_middleware.cli import options
from kp_middleware.cli.console import EMPTY, Row, as_text, hint, print_table
from kp_middleware.cli.options import Command
from kp_middleware.storage import COUNTED, RunSummary
from kp_middleware.views.wording import day, distance, one_line, outcome, short_id, zero_or_one

_STEERING: Final = re.compile(  # JSON escapes all others that steer a terminal
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
_FORMATS: Final = {
    "json": "One JSON array.",
    "nl": "One JSON object per line.",
    "csv": "Comma-separated.",
    "tsv": "Tab-separated.",
    "table": "A table: the default on a terminal.",
}
_FIELDS: Final = (*RunSummary._fields[: RunSummary._fields.index("snippet")], "success_source")
_NOISE: Final = 1e-9  # less than this is the last bits of a sum

COLUMNS: Final = (  # of a run; a narrow terminal leaves out those before the objective
    *("id", "score", "success", "state", "started_at", "duration_ms", "tokens", "domain"),
    "objective",
)


class Output(NamedTuple):
    """The requested format and columns of rows; no columns: the command's choice."""

    format: str
    columns: tuple[str, ...] = ()
    headers: bool = True
    fail_empty: bool = False

    def print(
        self,
        rows: Iterable[Row],
        columns: Sequence[str],
        *,
        for_people: Callable[[Row], Row] = lambda row: row,
        all_columns: bool = False,
    ) -> None:
        """Print each row as it arrives; a table needs all of them first.

        ``columns`` are those of a table and text: JSON has every key of the rows.
        """
        rows = iter(rows)
        first = next(rows, None)
        self.check(first)
        rows = chain(() if first is None else (first,), rows)
        shown = self.columns or tuple(columns)
        chosen = ({name: row[name] for name in self.columns or row} for row in rows)
        if self.format == "json":
            start = "["
            for row in chosen:
                click.echo(f"{start}{json_line(row)}", nl=False)
                start = ",\n "
            click.echo("[]" if start == "[" else "]")
        elif self.format == "nl":
            for row in chosen:
                click.echo(json_line(row))
        elif self.format == "table":
            wide = all_columns or bool(self.columns)
            told = [for_people(row) for row in rows]
            print_table(told, shown, headers=self.headers, all_columns=wide)
        else:
            self._print_text(rows, shown)
        self.fail_if_empty(first is None)

    def fail_if_empty(self, is_empty: object) -> None:
        """Exit with 4 if there is nothing and ``--fail-empty`` was given."""
        if is_empty and self.fail_empty:
            sys.exit(EMPTY)

    def check(self, row: Row | None) -> None:
        """Refuse columns that a row does not have."""
        for name in self.columns:
            if row is not None and name not in row:
                names = one_line(", ".join(row))
                raise click.UsageError(f"no such column: {one_line(name)} (choose from {names})")

    def _print_text(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        is_csv = self.format == "csv"
        writer = csv.writer(sys.stdout, lineterminator="\n")
        texts = ([as_text(row[name]) for name in columns] for row in rows)
        for line in chain([columns] if self.headers else [], texts):
            cells = line if is_csv and not sys.stdout.isatty() else [*map(one_line, line)]
            if is_csv:
                writer.writerow(cells)
            else:
                sys.stdout.write("\t".join(cells) + "\n")
            sys.stdout.flush()


def output_options(*, in_pipe: str = "tsv") -> Callable[[Command], Command]:
    """Add the options that say how rows are wanted; the command gets them as ``output``."""
    told = _FORMATS | {in_pipe: f"{_FORMATS[in_pipe].removesuffix('.')}: the default in a pipe."}
    if in_pipe == "table":
        told["table"] = "Text: the default."
    formats = (
        click.option(f"--{name}", "format", flag_value=name, default=None, help=text)
        for name, text in told.items()
    )

    def make(**chosen: Any) -> Output:
        chosen["format"] = chosen["format"] or ("table" if sys.stdout.isatty() else in_pipe)
        return Output(**chosen)

    return options.bundled("output", Output._fields, make, (*formats, *_ROW_OPTIONS))


def _columns(_: click.Context, __: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    """Split at commas, too.

    >>> _columns(None, None, ("id, score", "state"))
    ('id', 'score', 'state')
    """
    return tuple(filter(None, map(str.strip, ",".join(typed).split(","))))


_ROW_OPTIONS: Final = (
    click.option(
        "-c",
        "--column",
        "columns",
        multiple=True,
        callback=_columns,
        help="Columns to print: -c id,score. Repeatable.",
    ),
    click.option("--headers/--no-headers", default=True, help="Print a header row."),
    click.option("--fail-empty", is_flag=True, help="Exit with 4 if there are no rows."),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    """Print one JSON value."""
    click.echo(json_line(value, indent=2))


def answer(value: object, words: str, *, as_json: bool) -> None:
    """Print what a command has done: as JSON, or in words."""
    click.echo(json_line(value, indent=2) if as_json else words)


def json_line(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON: text unescaped, but for what steers a terminal."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent))


def escaped(text: str) -> str:
    r"""Return the same JSON with nothing in it that steers a terminal.

    >>> escaped('"caf\u00e9 \u009b2J"')
    '"café \\u009b2J"'
    """
    return _STEERING.sub(lambda sign: json.dumps(sign[0])[1:-1], text)


def tell_how_many(count: int, limit: int, shown: int) -> None:
    """Say on standard error if nothing matched, or if there is more than was shown."""
    if not shown:
        hint("nothing matches")
    elif count > limit:
        told = f"{count:,}" if count <= COUNTED else f"more than {COUNTED:,}"
        hint(f"{told} in all: -n shows more")


def run_row(run: RunSummary) -> dict[str, Any]:
    """Return a run as programs get it: ``success`` is 0 or 1, and None where it is assumed."""
    row = {name: getattr(run, name) for name in _FIELDS}
    row |= {"success": zero_or_one(run.known_success), "tokens": run.tokens, "novelty": run.novelty}
    return row if run.snippet is None else row | {"snippet": run.snippet}


def run_for_people(row: Row) -> dict[str, Any]:
    """Return a row of a list as a person reads it: a short id, minutes, a signed margin."""
    row = {**row, "id": short_id(row["id"]), "success": outcome(row["success"])}
    if at := row.get("started_at"):
        is_of_this_year = at[:4] == time.strftime("%Y")
        row["started_at"] = f"{day(at, year=False)} {at[11:16]}" if is_of_this_year else day(at)
    if row.get("margin") is not None:
        sign = "-" if row["margin"] < -_NOISE else "+"
        row["margin"] = f"{sign}{distance(row['margin'], least=4)}"
    return row


_BESIDE: Final = ("-wal", "-shm", "-journal")  # SQLite's; the last writes may be in them


@contextmanager
def new_file(file: Path, *, force: bool, db: Path | None = None) -> Iterator[Path]:
    """Yield an empty file of mode 0600 beside this one, which takes its place in the end."""
    file, db = resolved(file), db and db.expanduser().resolve()
    if file.name == "-":
        raise click.UsageError("this cannot go to standard output: name a file")
    if file == db or file in {Path(f"{db}{suffix}") for suffix in _BESIDE}:
        raise click.UsageError(f"{file} is part of the trace database: choose another name")
    if file.exists() and not file.is_file():
        raise click.UsageError(f"{file} is not a regular file: choose another name")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists: choose another name, or replace it with --force")
    for journal in (Path(f"{file}{suffix}") for suffix in _BESIDE):
        if journal.exists():  # SQLite would take it for one of the new file, and spoil that
            raise click.UsageError(f"{file} is in use ({journal} exists): choose another name")
    with _takes_its_place(file) as unfinished:
        unfinished.touch(0o600)
        yield unfinished


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder of mode 0700 beside this one, whose name it takes in the end."""
    folder = resolved(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise click.UsageError(f"{folder} exists and is not an empty folder: choose another")
    with _takes_its_place(folder) as unfinished:
        unfinished.mkdir(0o700)
        yield unfinished


def resolved(path: Path) -> Path:
    """Return where a path leads; refuse a dangling link."""
    path = path.expanduser()
    if path.is_symlink() and not path.exists():
        raise click.UsageError(f"{path} is a dangling link: remove it, or choose another name")
    return path.resolve()


@contextmanager
def _takes_its_place(path: Path) -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            unfinished = Path(folder) / path.name
            yield unfinished
            unfinished.replace(path)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}; choose another place, or make room"
        raise click.ClickException(message) from error
