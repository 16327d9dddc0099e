"""Terminal output: rows in every format, tables, progress bars, hints and exit codes."""

import csv
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import click

from kp_middleware.storage import COUNTED, RunSummary
from kp_middleware.views.wording import (
    NO_OBJECTIVE,
    as_text,
    cell,
    cut,
    day,
    distance,
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

__all__ = ["ATTENTION", "BLOCKED", "BROKEN_PIPE", "EMPTY", "INTERRUPTED", "UNREACHABLE", "Figure",
           "Output", "Progress", "Row", "bar", "escaped", "grid", "has_flag", "hint",
           "hint_at_limit", "humanize_run", "indented", "json_line", "print_json", "print_result",
           "print_rich", "print_table", "progress", "render", "run_row", "safe_text",
           "screen_width", "store_option", "warn"]  # fmt: skip

T = TypeVar("T")

Row: TypeAlias = Mapping[str, Any]
"""One row of output, by column name."""

# Exit codes
ATTENTION: Final = 3  # `doctor` or `redact --check` reports a problem; runs remain to be sent
EMPTY: Final = 4  # nothing to write, or to print with --fail-empty
UNREACHABLE: Final = 5  # the registry is unreachable
BLOCKED: Final = 6  # redaction blocks a run
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141  # the reader closed the pipe, as `| head` does

_FIELDS: Final = (*RunSummary._fields[: RunSummary._fields.index("snippet")], "success_source")
_PIPE_WIDTH: Final = 100
_GAP: Final = 2
_TEXT_SHARE: Final = 0.3  # of the width, at least, for a truncated column
_TRAILING_BLANKS: Final = re.compile(r" +((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)
_CONTROL_CHARACTERS: Final = re.compile(  # those that JSON does not escape
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
_HEADINGS: Final = {  # the same as on the pages
    "success": "outcome",
    "started_at": "started",
    "duration_ms": "took",
    "traces": "runs",
    "mean_ms": "mean",
    "max_ms": "longest",
}


class Figure(str):
    """A number as text, such as ``4.8%``: right-aligned and never truncated."""

    __slots__ = ()


def store_option(context: click.Context, option: click.Parameter, value: object) -> None:
    """Store a common option, such as ``--quiet``, in the context instead of passing it."""
    if not value:
        return
    is_first = not has_flag(str(option.name))
    context.meta[f"kp_middleware.{option.name}"] = value
    if option.name == "verbose" and is_first:
        logger, handler = logging.getLogger("kp_middleware"), logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger.addHandler(handler)
        context.call_on_close(partial(logger.removeHandler, handler))
        context.call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.INFO)


def has_flag(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and f"kp_middleware.{name}" in context.meta


def hint(message: str) -> None:
    if not has_flag("quiet"):
        warn(message)


def warn(message: str) -> None:
    click.echo(message, err=True)


class Output(NamedTuple):
    """The requested format and columns of rows; without columns, the command chooses."""

    format: str
    columns: tuple[str, ...] = ()
    headers: bool = True
    fail_empty: bool = False

    def print(
        self,
        rows: Iterable[Row],
        columns: Sequence[str],
        *,
        humanize: Callable[[Row], Row] = lambda row: row,
        all_columns: bool = False,
        widths: Mapping[str, int] | None = None,
    ) -> None:
        """Stream the rows, JSON with every key; a table without fixed ``widths`` needs them all."""
        rows = iter(rows)
        first = next(rows, None)
        for name in self.columns:
            if first is not None and name not in first:
                names = one_line(", ".join(first))
                raise click.UsageError(f"no such column: {one_line(name)} (choose from {names})")
        rows = chain(() if first is None else (first,), rows)
        shown = self.columns or tuple(columns)
        selected = ({name: row[name] for name in self.columns or row} for row in rows)
        if self.format == "table":
            wide, humanized = all_columns or bool(self.columns), map(humanize, rows)
            if widths is None:
                print_table([*humanized], shown, headers=self.headers, all_columns=wide)
            else:
                self._print_lines(humanized, shown, widths)
        elif self.format == "json":
            prefix = "["
            for row in selected:
                click.echo(f"{prefix}{json_line(row)}", nl=False)
                prefix = ",\n "
            click.echo("[]" if prefix == "[" else "]")
        elif self.format == "nl":
            for row in selected:
                click.echo(json_line(row))
        else:
            self._print_text(rows, shown)
        self.fail_if_empty(first is None)

    def fail_if_empty(self, is_empty: object) -> None:
        """Exit with 4 if there are no rows and ``--fail-empty`` was given."""
        if is_empty and self.fail_empty:
            sys.exit(EMPTY)

    def _print_lines(
        self, rows: Iterable[Row], columns: Sequence[str], widths: Mapping[str, int]
    ) -> None:
        headings = {name: _HEADINGS.get(name, name) for name in columns}
        for row in chain([headings] if self.headers else [], rows):
            texts = (cell(row[name], name) for name in columns)
            padded = map(
                str.ljust, texts, (widths.get(name, len(headings[name])) for name in columns)
            )
            click.echo(cut("  ".join(padded).rstrip(), screen_width()))

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


def print_result(value: object, text: "str | Iterable[RenderableType]") -> None:
    """Print a command's result: ``value`` with ``--json``, otherwise ``text``."""
    if has_flag("as_json"):
        print_json(value)
    elif isinstance(text, str):
        click.echo(text)
    else:
        print_rich(*text)


def print_json(value: object) -> None:
    click.echo(json_line(value, indent=2))


def json_line(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON. Only control characters are escaped."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent))


def escaped(text: str) -> str:
    """Escape the terminal control characters in JSON text."""
    if text.isascii() and "\x7f" not in text:  # fast: most texts
        return text
    return _CONTROL_CHARACTERS.sub(lambda match: json.dumps(match[0])[1:-1], text)


def hint_at_limit(count: int, limit: int, shown: int) -> None:
    """Print a hint if nothing matched, or if ``limit`` cut the list."""
    if not shown:
        hint("nothing matches")
    elif count > limit:
        total = f"{count:,}" if count <= COUNTED else f"more than {COUNTED:,}"
        hint(f"{total} in all: -n shows more")


def run_row(run: RunSummary) -> dict[str, Any]:
    """Return a run as a row of JSON: ``success`` is 0, 1, or None if unknown."""
    row = {name: getattr(run, name) for name in _FIELDS}
    row |= {"success": zero_or_one(run.known_success), "tokens": run.tokens, "novelty": run.novelty}
    row |= {} if run.pod is None else {"pod": run.pod}
    return row if run.snippet is None else row | {"snippet": run.snippet}


def humanize_run(row: Row) -> dict[str, Any]:
    """Return a row for a table: short id, start to the minute, signed margin."""
    row = {**row, "id": short_id(row["id"]), "success": outcome(row["success"])}
    row["objective"] = row["objective"].strip() or NO_OBJECTIVE
    if started := row.get("started_at"):
        is_this_year = started[:4] == time.strftime("%Y")
        date = day(started, year=not is_this_year)
        row["started_at"] = f"{date} {started[11:16]}" if is_this_year else date
    if row.get("margin") is not None:
        sign = "-" if row["margin"] < -1e-9 else "+"  # not a rounding error
        row["margin"] = f"{sign}{distance(row['margin'], least=4)}"
    return row


def screen_width() -> int:
    if not sys.stdout.isatty():
        return _PIPE_WIDTH
    return shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns


def print_rich(*renderables: "RenderableType", width: int | None = None) -> None:
    # click.echo would strip the colors
    sys.stdout.write(render(*renderables, width=width))
    sys.stdout.flush()


def render(*renderables: "RenderableType", width: int | None = None) -> str:
    """Return rich renderables as text. Rich's own print exits on a broken pipe."""
    from rich.console import Console

    colors: Any = None if has_flag("no_color") or os.environ.get("NO_COLOR") else "auto"
    plain: Any = {"highlight": False, "markup": False, "emoji": False}
    console = Console(color_system=colors, width=width or screen_width(), **plain)
    with console.capture() as captured:
        for renderable in renderables:
            console.print(renderable, crop=False)
    return _TRAILING_BLANKS.sub(r"\1", captured.get())


def grid(*columns: Mapping[str, Any], gap: int = _GAP, headers: bool = False) -> "Table":
    """Return a borderless table; each mapping has the keywords of one column."""
    from rich.table import Table

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=headers)
    for column in columns:
        table.add_column(**column)
    return table


def indented(text: str, first: str = "", indent: int = 0) -> "Table":
    """Return a wrapped paragraph, with ``first`` before its first line."""
    table = grid({"width": max(width_of(first), indent)}, {"overflow": "fold"}, gap=0)
    table.add_row(safe_text(first), safe_text(text))
    return table


def safe_text(text: str, **style: Any) -> "Text":
    from rich.text import Text

    return Text(printable(text), **style)


def print_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    headers: bool = True,
    all_columns: bool = False,
) -> None:
    """Print a table that fits the terminal: columns drop from the right, the last text is cut."""
    is_terminal = sys.stdout.isatty()
    may_drop = is_terminal and not all_columns
    available = screen_width() if is_terminal else 160
    known = {} if all_columns else _HEADINGS
    headings = {name: one_line(known.get(name, name)) for name in columns}
    cells = {name: [cell(row[name], name) for row in rows] for name in columns}
    if rows and may_drop:
        columns = [name for name in columns if any(cells[name])]
    fitted = {name: max(map(width_of, [headings[name], *cells[name]])) for name in columns}
    last = columns[-1]
    is_id = last in {"", "id"} or last.endswith("_id")
    has_text = not is_id and any(type(row[last]) is str for row in rows)
    if has_text:
        fitted[last] = min(fitted[last], int(available * _TEXT_SHARE))
    shown = [*columns]
    while (width := sum(fitted[name] + _GAP for name in shown) - _GAP) > available:
        if not may_drop or len(shown) <= 2:
            break
        shown.pop(-2 if has_text else -1)
    dropped = [one_line(name) for name in columns if name and name not in shown]
    if dropped and not has_text:
        message = f"no room for {', '.join(dropped)}: --json shows them"
        hint(render(safe_text(message), width=available).rstrip())
    numbers = int, float, Figure
    numeric = {name for name in shown if any(isinstance(row[name], numbers) for row in rows)}
    fields = (
        {
            "header": safe_text(headings[name]),
            "justify": "right" if name in numeric else "left",
            "no_wrap": name != last or not has_text,  # rich shrinks the last text alone
        }
        for name in shown
    )
    table = grid(*fields, headers=headers)
    for line in zip(*(cells[name] for name in shown), strict=True):
        table.add_row(*(safe_text(text, no_wrap=True, overflow="ellipsis") for text in line))
    print_rich(table, width=max(available, width))


class Progress(ExitStack):
    """A progress bar with the rate, on standard error, shown after half a second."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._is_shown = sys.stderr.isatty() and not (has_flag("quiet") or has_flag("no_progress"))
        self._began_s = time.monotonic()
        self._label = label
        self._bar: Bar | None = None

    def update(self, done: int, total: int | None = None) -> None:
        """Update the bar; ``total`` may be unknown."""
        took_s = time.monotonic() - self._began_s
        if not self._is_shown or took_s < 0.5:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            columns = BarColumn(24), MofNCompleteColumn(), "{task.description}"
            console = Console(stderr=True)
            bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            bar.add_task(self._label)
            self._bar = self.enter_context(bar)
        words = f"{self._label}, {done / took_s:,.1f} a second"
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, description=words)


def progress(
    items: Iterable[T], total: int | None, *, label: str, size: Callable[[T], int] = lambda _: 1
) -> Iterator[T]:
    """Yield the items with a progress bar; ``size`` says how many steps an item counts for."""
    done = 0
    with Progress(label) as bar:
        for item in items:
            yield item
            done += size(item)
            bar.update(done, total)


def bar(share: float, width: int) -> str:
    """Draw a bar of this share, 0 to 1, of the width; at least one cell unless it is zero."""
    return "█" * max(round(share * width), share > 0)
