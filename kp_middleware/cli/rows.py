"""Write rows in the formats of sqlite-utils (table, TSV, CSV, JSON, JSON lines), and new files."""

import csv
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import click

from kp_middleware.cli.console import EMPTY, Row, as_text, hint, print_table, put
from kp_middleware.storage import COUNTED, RunSummary
from kp_middleware.views.wording import distance, one_line, short_id, yes_or_no, zero_or_one

Command: TypeAlias = Callable[..., Any]

_STEERING: Final = re.compile(  # JSON escapes all others that steer a terminal
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # the last turn the line around
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

COLUMNS: Final = (
    "id",
    "started_at",
    "domain",
    "score",
    "margin",
    "step_count",
    "tool_count",
    "success",
    "success_source",
    "state",
    "objective",
)
"""The columns of a run in TSV, CSV and on a wide terminal."""


class Output(NamedTuple):
    """The requested format and columns of rows.

    Attributes:
        format: ``json``, ``nl``, ``csv``, ``tsv`` or ``table``.
        columns: Only these; empty means those that the command chose, or all as JSON.
        headers: Whether CSV, TSV and tables name the columns first.
        fail_empty: Whether the command fails if there is no row.
    """

    format: str
    columns: tuple[str, ...] = ()
    headers: bool = True
    fail_empty: bool = False

    @classmethod
    def usual(cls, *, as_json: bool = False, in_pipe: str = "tsv") -> "Output":
        """Return a table on a terminal, and in a pipe what suits it, unless JSON is wanted."""
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
        """Print each row as it arrives; a table needs all of them first.

        Args:
            rows: By column name.
            columns: What a table and text show; JSON has every key of the rows.
            for_people: How a table shows a row.
            all_columns: Whether a table shows all of them on a narrow terminal too.

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
                _print_array(self._chosen(rows))
            case "nl":
                for row in self._chosen(rows):
                    click.echo(json_line(row))
            case "csv" | "tsv":
                self._print_text(rows, shown)
            case _:
                wide = all_columns or bool(self.columns)
                told = [for_people(row) for row in rows]
                print_table(told, shown, headers=self.headers, all_columns=wide)
        self.fail_if_empty(first is None)

    def fail_if_empty(self, is_empty: object) -> None:
        """Exit with 4 if there is nothing and ``--fail-empty`` was given."""
        if is_empty and self.fail_empty:
            sys.exit(EMPTY)

    def check(self, row: Row | None) -> None:
        """Refuse columns that a row does not have."""
        unknown = [name for name in self.columns if row is not None and name not in row]
        if row is not None and unknown:
            names = one_line(", ".join(row))
            raise click.UsageError(f"there is no column {one_line(unknown[0])}: there are {names}")

    def _chosen(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield {name: row[name] for name in self.columns} if self.columns else row

    def _print_text(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        line = _csv_line if self.format == "csv" else _tsv_line
        if self.headers:
            put(line(columns))
        for row in rows:
            put(line([as_text(row[name]) for name in columns]))


def output_options(
    *, in_pipe: str = "tsv", columns: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Add the options that say how rows are wanted; the command gets them as ``output``.

    Args:
        in_pipe: The format in a pipe, unless one was asked for.
        columns: What the shell completes for ``-c``.
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
            format_ = format_ or Output.usual(in_pipe=in_pipe).format
            return command(*values, output=Output(format_, column, headers, fail_empty), **more)

        made: Command = run
        for option in reversed(_options(columns, in_pipe)):  # click lists the last applied first
            made = option(made)
        return made

    return decorate


def _options(columns: Sequence[str], in_pipe: str) -> list[Callable[[Command], Command]]:
    told = {**_FORMATS, in_pipe: f"{_FORMATS[in_pipe].removesuffix('.')}: the default in a pipe."}
    return [
        *format_options(told),
        click.option(
            "-c",
            "--column",
            multiple=True,
            callback=_columns,
            shell_complete=lambda _context, _option, start: [
                name for name in columns if name.startswith(start)
            ],
            help="Columns to print: -c id,score. Repeatable.",
        ),
        click.option("--headers/--no-headers", default=True, help="Print a header row."),
        click.option("--fail-empty", is_flag=True, help="Exit with 4 if there are no rows."),
    ]


def format_options(formats: dict[str, str]) -> list[Callable[[Command], Command]]:
    """Return a flag for each format; the command gets the last one typed as ``format_``."""
    return [
        click.option(f"--{name}", "format_", flag_value=name, default=None, help=text)
        for name, text in formats.items()
    ]


def _columns(_: click.Context, __: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    """Split at commas, too.

    >>> _columns(None, None, ("id, score", "state"))
    ('id', 'score', 'state')
    """
    names = (name.strip() for text in typed for name in text.split(","))
    return tuple(name for name in names if name)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    """Print one JSON value."""
    click.echo(json_line(value, indent=2))


def json_line(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON: text unescaped, but for what steers a terminal."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent))


def escaped(text: str) -> str:
    r"""Return the same JSON with nothing in it that steers a terminal.

    >>> escaped('"caf\u00e9 \u009b2J"')
    '"café \\u009b2J"'
    """
    return _STEERING.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def exact_json(body: str) -> str:
    """Return a document as it is; on a terminal, with escapes for what cannot be printed."""
    if not sys.stdout.isatty():
        return body
    return "".join(
        sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in body
    )


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
    row["success"] = zero_or_one(run.known_success)
    return row if run.snippet is None else row | {"snippet": run.snippet}


def run_for_people(row: Row) -> dict[str, Any]:
    """Return a row of a list as a person reads it: a short id, minutes, a signed margin."""
    row = {**row, "id": short_id(row["id"]), "success": yes_or_no(row["success"])}
    if "started_at" in row:
        row["started_at"] = row["started_at"][:16].replace("T", " ")
    if row.get("margin") is not None:
        sign = "-" if row["margin"] < 0 else "+"
        is_noise = abs(row["margin"]) < _NOISE
        row["margin"] = "+0.0000" if is_noise else f"{sign}{distance(row['margin'], least=4)}"
    return row


def _print_array(rows: Iterator[Row]) -> None:
    first = next(rows, None)
    if first is None:
        click.echo("[]")
        return
    click.echo(f"[{json_line(first)}", nl=False)
    for row in rows:
        click.echo(f",\n {json_line(row)}", nl=False)
    click.echo("]")


def _tsv_line(cells: Iterable[str]) -> str:
    return "\t".join(map(one_line, cells)) + "\n"


def _csv_line(cells: Iterable[str]) -> str:
    """Return a line of CSV; on a terminal, without control characters."""
    line = io.StringIO()
    on_terminal = sys.stdout.isatty()
    csv.writer(line, lineterminator="\n").writerow(map(one_line, cells) if on_terminal else cells)
    return line.getvalue()


_STDOUT: Final = Path("-")
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite keeps beside a database; the last writes may be in them."""


@contextmanager
def new_file(file: Path, *, db: Path, force: bool) -> Iterator[Path]:
    """Yield an empty file of mode 0600 beside this one; it takes its name at the end of the block.

    Args:
        file: What is wanted.
        db: The file of traces, which is never replaced, nor is what SQLite keeps beside any file.
        force: Whether an existing file may be replaced.

    Raises:
        click.ClickException: If it exists, is no ordinary file or a link to what is not there, or
            cannot be written.
    """
    if file == _STDOUT:
        raise click.UsageError("this cannot be written to standard output: name a file")
    file = resolved(file)
    _refuse(file, db, force=force)
    with _told(file):
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        os.close(descriptor)
        unfinished = Path(name)
        try:
            yield unfinished
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder of mode 0700 beside this one, whose name it takes in the end.

    Raises:
        click.ClickException: If it is there and not empty, or cannot be written.
    """
    folder = resolved(folder)
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"{folder} is a file: name a folder")
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty: name another folder")
    with _told(folder):
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            yield unfinished
            if folder.exists():
                folder.rmdir()
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def resolved(path: Path) -> Path:
    """Return where a path leads; refuse a link to what is not there."""
    path = path.expanduser()
    if path.is_symlink() and not path.exists():
        raise click.UsageError(f"{path} is a link to what is not there: remove it, or name another")
    return path.resolve()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say what keeps a path from being written, and what to do."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}): name another, or make room"
        raise click.ClickException(message) from error


def _refuse(file: Path, db: Path, *, force: bool) -> None:
    with suppress(OSError):
        if file.samefile(db.expanduser()):
            raise click.UsageError(f"{file} is the file of traces itself: name another")
    if database := _database_beside(file):
        raise click.UsageError(f"{file} belongs to {database}: name another")
    if file.exists() and not file.is_file():
        raise click.UsageError(f"{file} is not an ordinary file: name another")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists: name another, or replace it with --force")
    for journal in (Path(f"{file}{suffix}") for suffix in _BESIDE):
        if journal.exists():  # SQLite would take it for one of the new file, and spoil that
            raise click.UsageError(f"{file} is in use, there is {journal}: name another")


def _database_beside(file: Path) -> Path | None:
    """Return the database that SQLite would take this file for a part of, or None."""
    for suffix in _BESIDE:
        name = file.name[: -len(suffix)]
        if name and file.name.lower().endswith(suffix):  # on some disks, case is no difference
            database = file.with_name(name)
            return database if database.exists() else None
    return None
