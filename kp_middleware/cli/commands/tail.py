"""The command that shows traces as they come to their end."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.input.limit import limit_option
from kp_middleware.cli.output.exit_codes import EMPTY
from kp_middleware.cli.output.manners import hint
from kp_middleware.cli.output.rows import Output, output_options
from kp_middleware.cli.output.screen import padded, screen_width
from kp_middleware.cli.output.table import cell
from kp_middleware.cli.output.trace_rows import COLUMNS, for_people
from kp_middleware.database import Connection, connect
from kp_middleware.errors import DatabaseError
from kp_middleware.storage import Arrivals, Row
from kp_middleware.views.wording import cut

_EVERY_S: Final = 0.5
_PATIENCE: Final = 20
_ALL: Final = sys.maxsize
_SHOWN: Final = ("id", "started_at", "domain", "score", "success", "state", "objective")
_FEWER: Final = ("id", "score", "success", "state", "objective")
_ROOM: Final = 90
_WIDTHS: Final = {"id": 8, "started_at": 16, "domain": 12, "score": 5, "success": 7, "state": 10}
_WIDTH: Final = 10


@click.command()
@limit_option(10, least=0, told="Begin with so many of the last ones.")
@click.option("--follow/--no-follow", "follows", default=True, help="Wait for more, or end.")
@output_options()
@click.pass_obj
def tail(db: Path, *, limit: int, follows: bool, output: Output) -> None:
    """Show traces as they come to their end, until you type Ctrl-C.

    With --json, too, each is an object on a line of its own. The file need not exist yet.

    \b
    kp-middleware tail
    kp-middleware tail -n 0 --json | jq .score
    """
    rows = follow(db, first=limit) if follows else _last(db, limit)
    if output.format == "table":
        _print_lines(rows, output)
    else:
        one_a_line = output._replace(format="nl" if output.format == "json" else output.format)
        one_a_line.print(rows, COLUMNS)


def _last(db: Path, limit: int) -> Iterator[Row]:
    with closing(connect(db, read_only=True)) as connection:
        yield from Arrivals(connection, first=limit).new()


def follow(
    db: Path, *, first: int = 0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Row]:
    """Traces of a file as they come to their end, each once; it never ends itself.

    Waits for a file that does not exist, and goes on with one that has taken its place.

    Args:
        db: The file.
        first: So many of the last that have ended come first.
        sleep: Waits for so many seconds.
    """
    while True:
        if not db.exists():
            hint(f"waiting for {db}: it is made when a program records")
            first = _ALL  # of a new file, all is new
        with closing(_opened(db, sleep)) as connection:
            arrivals, place = Arrivals(connection, first=first), _place(db)
            while _place(db) == place:
                yield from arrivals.new()
                sleep(_EVERY_S)
        first = 0


def _opened(db: Path, sleep: Callable[[float], None]) -> Connection:
    """As soon as it is there and has its tables."""
    tried = 0
    while True:
        try:
            return connect(db, read_only=True)
        except DatabaseError:
            tried += db.exists()
            if tried > _PATIENCE:
                raise
        sleep(_EVERY_S)


def _place(db: Path) -> int | None:
    """Another number for another file of the same name."""
    try:
        return db.stat().st_ino
    except OSError:
        return None


def _print_lines(rows: Iterable[Row], output: Output) -> None:
    """A table whose rows come one by one."""
    columns = output.columns or (_SHOWN if screen_width() >= _ROOM else _FEWER)
    if output.headers:
        click.echo(_line({name: name.replace("_", " ") for name in columns}, columns))
    row = None
    for row in rows:
        output.check(row)
        click.echo(_line(for_people(row), columns))
    if row is None and output.fail_empty:
        sys.exit(EMPTY)


def _line(row: Row, columns: Sequence[str]) -> str:
    *others, last = (cell(row[name], name) for name in columns)
    widths = (_WIDTHS.get(name, _WIDTH) for name in columns)
    line = "".join(f"{padded(text, width)}  " for text, width in zip(others, widths, strict=False))
    return cut(line + last, screen_width()).rstrip()
