"""Print to the terminal: rows in each format, tables, bars, hints, and the exit codes."""

import csv
import json
import logging
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import click

from kp_middleware.storage import COUNTED, RunSummary
from kp_middleware.views.wording import (
    day,
    distance,
    duration,
    one_line,
    outcome,
    printable,
    short_id,
    width_of,
    zero_or_one,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress as Bar
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")

Row: TypeAlias = Mapping[str, Any]
"""One row of output, by column name."""

# Exit codes
FOUND: Final = 3  # `doctor` or `redact --check` found something; `outbox send` left something
EMPTY: Final = 4  # nothing matched, and --fail-empty was given
UNREACHABLE: Final = 5  # the registry cannot be reached
BLOCKED: Final = 6  # redaction keeps something from being sent
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141  # the reader of the output is gone, as after `| head`

COLUMNS: Final = (  # of a run; a narrow terminal leaves out those before the objective
    *("id", "score", "success", "state", "started_at", "duration_ms", "tokens", "domain"),
    "objective",
)
_FIELDS: Final = (*RunSummary._fields[: RunSummary._fields.index("snippet")], "success_source")
_NOISE: Final = 1e-9  # less than this is the last bits of a sum
_PIPE_WIDTH: Final = 100
_TABLE_IN_PIPE: Final = 160
_GAP: Final = 2
_TEXT_SHARE: Final = 0.3  # of the width, for the column that is cut
_PATIENCE_S: Final = 0.5
_BLANKS: Final = re.compile(r" +((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)
_STEERING: Final = re.compile(  # JSON escapes all others that steer a terminal
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
_HEADS: Final = {  # as the pages have them, of columns in words or with a unit
    "success": "outcome",
    "started_at": "started",
    "duration_ms": "took",
    "traces": "runs",
    "mean_ms": "mean",
    "max_ms": "longest",
}


class Figure(str):
    """A number as text, such as ``4.8%``: never cut, and justified as numbers are."""

    __slots__ = ()


def keep(context: click.Context, option: click.Parameter, value: object) -> None:
    """Remember an option that is no parameter of the command, such as ``--quiet``."""
    if not value:
        return
    is_new = not has_flag(str(option.name))
    context.meta[f"kp_middleware.{option.name}"] = value
    if option.name == "verbose" and is_new:
        logger, handler = logging.getLogger("kp_middleware"), logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger.addHandler(handler)
        context.call_on_close(partial(logger.removeHandler, handler))
        context.call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.INFO)


def has_flag(name: str) -> bool:
    """Return whether a flag was given, such as ``quiet`` or ``as_json``."""
    context = click.get_current_context(silent=True)
    return context is not None and f"kp_middleware.{name}" in context.meta


def hint(message: str) -> None:
    """Print advice to standard error, unless ``--quiet`` is given."""
    if not has_flag("quiet"):
        warn(message)


def warn(message: str) -> None:
    """Print to standard error."""
    click.echo(message, err=True)


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
        widths: Mapping[str, int] | None = None,
    ) -> None:
        """Print each row as it arrives; a table needs all of them first, or ``widths``.

        ``columns`` are those of a table and text: JSON has every key of the rows.
        """
        rows = iter(rows)
        first = next(rows, None)
        for name in self.columns:
            if first is not None and name not in first:
                names = one_line(", ".join(first))
                raise click.UsageError(f"no such column: {one_line(name)} (choose from {names})")
        rows = chain(() if first is None else (first,), rows)
        shown = self.columns or tuple(columns)
        chosen = ({name: row[name] for name in self.columns or row} for row in rows)
        if self.format == "table":
            wide, headers = all_columns or bool(self.columns), self.headers
            told = map(for_people, rows)
            for part in ([row] for row in told) if widths else ([*told],):
                print_table(part, shown, headers=headers, all_columns=wide, widths=widths)
                headers = False
        elif self.format == "json":
            before = "["
            for row in chosen:
                click.echo(f"{before}{json_line(row)}", nl=False)
                before = ",\n "
            click.echo("[]" if before == "[" else "]")
        elif self.format == "nl":
            for row in chosen:
                click.echo(json_line(row))
        else:
            self._print_text(rows, shown)
        self.fail_if_empty(first is None)

    def fail_if_empty(self, is_empty: object) -> None:
        """Exit with 4 if there is nothing and ``--fail-empty`` was given."""
        if is_empty and self.fail_empty:
            sys.exit(EMPTY)

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


def answer(value: object, words: "str | Iterable[RenderableType]") -> None:
    """Print what a command has to say: with ``--json`` the value, else the words."""
    if has_flag("as_json"):
        print_json(value)
    elif isinstance(words, str):
        click.echo(words)
    else:
        show(*words)


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


def screen_width() -> int:
    """Return the columns of the terminal, or 100 in a pipe."""
    if not sys.stdout.isatty():
        return _PIPE_WIDTH
    return shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns


def show(*parts: "RenderableType", width: int | None = None) -> None:
    """Print what rich draws, without trailing blanks. Strings are plain text, never markup."""
    sys.stdout.write(drawn(*parts, width=width))  # click would strip colour codes out of data
    sys.stdout.flush()


def drawn(*parts: "RenderableType", width: int | None = None) -> str:
    """Return what rich draws. Rich itself would end the program when nobody reads the pipe."""
    from rich.console import Console

    is_plain = has_flag("no_color") or bool(os.environ.get("NO_COLOR"))
    console = Console(
        color_system=None if is_plain else "auto",
        width=width or screen_width(),
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part, crop=False)
    return _BLANKS.sub(r"\1", captured.get())


def grid(*columns: Mapping[str, Any], gap: int = _GAP) -> "Table":
    """Return a borderless table; each mapping has the keywords of one column."""
    from rich.table import Table

    table = Table.grid(padding=(0, gap, 0, 0))
    for column in columns:
        table.add_column(**column)
    return table


def indented(text: str, first: str = "", indent: int = 0) -> "Table":
    """Return a wrapped paragraph behind a mark."""
    table = grid({"width": max(width_of(first), indent)}, {"overflow": "fold"}, gap=0)
    table.add_row(plain(first), plain(text))
    return table


def plain(text: str) -> "Text":
    """Return a text that a terminal shows as it is: no markup, no control characters."""
    from rich.text import Text

    return Text(printable(text))


def print_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    headers: bool = True,
    all_columns: bool = False,
    widths: Mapping[str, int] | None = None,
) -> None:
    """Print a table as wide as the terminal.

    Numbers, ids and names are never cut; a text in the last column is, to what is left or three
    tenths. Columns without a value are left out, and those that do not fit, from the right.
    ``widths`` are for rows that are printed one by one.
    """
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    chooses = is_terminal and not all_columns
    room = screen_width() if is_terminal else _TABLE_IN_PIPE
    heads = {name: one_line(name if all_columns else _HEADS.get(name, name)) for name in columns}
    cells = {name: [cell(row[name], name) for row in rows] for name in columns}
    if rows and widths is None and chooses:
        columns = [name for name in columns if any(cells[name])]
    wide = {name: max(map(width_of, [heads[name], *cells[name]])) for name in columns}
    wide.update(widths or {})
    last, least = columns[-1], int(room * _TEXT_SHARE)
    is_text = last not in {"", "id"} and not last.endswith("_id")
    is_text = is_text and any(type(row[last]) is str for row in rows)
    needed = wide | ({last: min(wide[last], least)} if is_text else {})
    kept = [*columns]
    while chooses and len(kept) > 2 and sum(needed[name] + _GAP for name in kept) - _GAP > room:
        kept.pop(-2 if is_text else -1)
    if is_text:
        wide[last] = min(
            wide[last], max(room - sum(wide[name] + _GAP for name in kept[:-1]), least)
        )
    elif left_out := [one_line(name) for name in columns if name and name not in kept]:
        told = f"no room for {', '.join(left_out)}: --json shows them"
        hint(drawn(plain(told), width=room).rstrip())
    table = Table(
        box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False, show_header=headers
    )
    for name in kept:
        is_number = any(isinstance(row[name], int | float | Figure) for row in rows)
        justify: Any = "right" if is_number else "left"
        table.add_column(plain(heads[name]), justify=justify, no_wrap=True, width=wide[name])
    for line in zip(*(cells[name] for name in kept), strict=True):
        table.add_row(*map(plain, line))
    show(table, width=max(room, sum(wide[name] + _GAP for name in kept)))


def cell(value: Any, column: str) -> str:
    """Return a value for a table: on one line, fractions with three digits, times with a unit.

    >>> cell(12345, "calls"), cell(1234.5, "mean_ms"), cell(0.75, "score"), cell(None, "score")
    ('12,345', '1.2 s', '0.750', '')
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return one_line(as_text(value))
    if column.endswith("_ms"):
        return one_line(duration(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def as_text(value: Any) -> str:
    """Return a value as text: nothing for None, JSON for lists and mappings."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


class Progress:
    """A progress bar on standard error, for whoever waits longer than half a second."""

    def __init__(self, what: str) -> None:
        is_wanted = sys.stderr.isatty() and not (has_flag("quiet") or has_flag("no_progress"))
        self._shows_at = time.monotonic() + _PATIENCE_S if is_wanted else math.inf
        self._what = what
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def reach(self, done: int, total: int | None = None) -> None:
        """Show how many are done, of how many if that is known."""
        if time.monotonic() < self._shows_at:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            columns = BarColumn(24), MofNCompleteColumn(), "{task.description}"
            console = Console(stderr=True)
            self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._bar.add_task(self._what)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)


def progress(
    items: Iterable[T], total: int | None, *, what: str, size: Callable[[T], int] = lambda _: 1
) -> Iterator[T]:
    """Yield the items, and show how many are done; ``size``: how many an item stands for."""
    done = 0
    with Progress(what) as bar:
        for item in items:
            yield item
            done += size(item)
            bar.reach(done, total)


def bar(share: float, width: int) -> str:
    """Return a bar that fills this share, 0 to 1, of the width; what is not zero can be seen.

    >>> bar(0.5, 4), bar(0.001, 4), bar(0, 4)
    ('██', '█', '')
    """
    return "█" * max(round(share * width), share > 0)
