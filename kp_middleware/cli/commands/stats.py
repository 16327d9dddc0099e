"""The command that counts."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.lines.bars import Bin, histogram, sparkline
from kp_middleware.cli.output.exit_codes import EMPTY
from kp_middleware.cli.output.rows import Output, output_options, print_json
from kp_middleware.cli.output.screen import screen_width
from kp_middleware.cli.output.table import print_table
from kp_middleware.database import connect
from kp_middleware.storage import Distribution, History, Hundredth, Row, read_groups

_COUNTS: Final = ("recorded", "cleared", "queued", "sent", "blocked", "rejected")
_BY: Final = ("domain", "tool", "day", "week", "model", "state", "gate")
_BIN: Final = 5  # hundredths
_WEEKS: Final = 52


@click.command()
@click.option("--by", type=click.Choice(_BY), help="One row for each. Weeks begin on Monday.")
@output_options(in_pipe="json")
@click.pass_obj
def stats(db: Path, *, by: str | None, output: Output) -> None:
    """Count what was recorded, cleared and sent, and show how the scores are spread.

    Scores and novelty go from 0 to 1, times are in milliseconds.

    \b
    kp-middleware stats
    kp-middleware stats --by week
    """
    with closing(connect(db, read_only=True)) as connection:
        if by:
            _print_groups(read_groups(connection, by), by, output)
            return
        if output.columns or output.format not in {"json", "table"}:
            wanted = "-c" if output.columns else f"--{output.format}"
            raise click.UsageError(f"{wanted} needs --by: {', '.join(_BY)}")
        numbers, spread = History(connection).stats(), Distribution(connection)
        if output.format == "json":
            print_json(numbers)
        else:
            _print_stats(numbers, spread.threshold(), spread.hundredths())
    if output.fail_empty and not numbers["recorded"]:
        sys.exit(EMPTY)


def _print_groups(rows: list[Row], by: str, output: Output) -> None:
    columns = [*rows[0]] if rows else [by]
    if by == "gate" and output.format == "table" and rows:
        columns = _columns(rows)
    output.print(rows, columns)
    if by == "week" and output.format == "table":
        shown = [row["mean_novelty"] for row in rows[-_WEEKS:]]
        click.echo(f"\nnovelty by week, from 0 ▁ to 1 █: {sparkline(shown)}")


def _print_stats(numbers: Row, threshold: float | None, hundredths: list[Hundredth]) -> None:
    for name in _COUNTS:
        click.echo(f"{name:<10}{numbers[name]:>8,}")
    if hundredths:
        click.echo("\nscore at least, and how many traces")
        click.echo("\n".join(histogram([*_bins(hundredths)], threshold, screen_width())))
    for title in ("domains", "states", "gates", "tools"):
        rows = numbers[title]
        if rows:
            click.echo()
            print_table(rows, _columns(rows) if title == "gates" else [*rows[0]])


def _columns(rows: list[Row]) -> list[str]:
    """Without the reasons that no gate had."""
    return [name for name in rows[0] if any(row[name] for row in rows)]


def _bins(hundredths: list[Hundredth]) -> Iterator[Bin]:
    """Twenty; 1 is in the last."""
    for start in range(0, 100, _BIN):
        end = start + _BIN if start + _BIN < 100 else 101
        traces = sum(one.traces for one in hundredths if start <= one.hundredth < end)
        yield Bin(start / 100, traces)
