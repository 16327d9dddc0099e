"""Print to the terminal: tables, bars, progress, hints, and the exit codes of all commands."""

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
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import click

from kp_middleware.views.wording import duration, one_line, printable, width_of

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

_PIPE_WIDTH: Final = 100
_TABLE_IN_PIPE: Final = 160
_GAP: Final = 2
_TEXT_SHARE: Final = 0.3  # of the width, for the column that is cut
_PATIENCE_S: Final = 0.5
_BLANKS: Final = re.compile(r" +((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)
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
    """Remember an option that every command takes, such as ``--quiet``."""
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
    """Return whether a flag of all commands was given, such as ``quiet``."""
    context = click.get_current_context(silent=True)
    return context is not None and f"kp_middleware.{name}" in context.meta


def hint(message: str) -> None:
    """Print advice to standard error, unless ``--quiet`` is given."""
    if not has_flag("quiet"):
        click.echo(message, err=True)


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

    Numbers and ids are never cut; a text in the last column is, to what is left or three tenths,
    and a name in the first one wraps. Columns without a value are left out, and those that do not
    fit, from the right. ``widths`` are for rows that are printed one by one.
    """
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    room = screen_width() if is_terminal else _TABLE_IN_PIPE
    heads = {name: one_line(name if all_columns else _HEADS.get(name, name)) for name in columns}
    cells = {name: [cell(row[name], name) for row in rows] for name in columns}
    if rows and widths is None and is_terminal and not all_columns:
        columns = [name for name in columns if any(cells[name])]
    wide = {name: max(map(width_of, [heads[name], *cells[name]])) for name in columns}
    wide.update(widths or {})
    texts = (  # which may be cut: not ids and numbers, which would be wrong then
        name
        for name in (columns[-1], columns[0])
        if name not in {"", "id"}
        and not name.endswith("_id")
        and any(type(row[name]) is str for row in rows)
    )
    text = next(texts, None)
    least = int(room * _TEXT_SHARE)
    if is_terminal and not all_columns:
        columns = _fitting(columns, wide, text, least, room)
    if text is not None:
        others = sum(wide[name] + _GAP for name in columns if name != text)
        wide[text] = min(wide[text], max(room - others, least))
    table = Table(
        box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False, show_header=headers
    )
    for name in columns:
        wraps = name == text and name != columns[-1]
        is_number = any(isinstance(row[name], int | float | Figure) for row in rows)
        table.add_column(
            plain(heads[name]),
            justify="right" if is_number else "left",
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
            width=wide[name],
        )
    for line in zip(*(cells[name] for name in columns), strict=True):
        table.add_row(*map(plain, line))
    show(table, width=max(room, sum(wide[name] + _GAP for name in columns)))


def _fitting(
    columns: Sequence[str], wide: Mapping[str, int], text: str | None, least: int, room: int
) -> Sequence[str]:
    """Return the columns that fit: a text at the end stays, others go from the right."""
    kept, ends_with_text = [*columns], text == columns[-1]
    needed = {name: min(wide[name], least) if name == text else wide[name] for name in kept}
    while len(kept) > 2 and sum(needed[name] + _GAP for name in kept) - _GAP > room:
        kept.pop(-2 if ends_with_text else -1)
    left_out = [one_line(name) for name in columns if name and name not in kept]
    if left_out and not ends_with_text:
        told = f"no room for {', '.join(left_out)}: --json shows them"
        hint(drawn(plain(told), width=room).rstrip())
    return kept


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
