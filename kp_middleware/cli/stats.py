"""The ``stats`` command."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.bars import histogram, sparkline
from kp_middleware.cli.console import print_table, screen_width
from kp_middleware.cli.options import domain_option, limit_option
from kp_middleware.cli.rows import Output, output_options, print_json, tell_how_many
from kp_middleware.database import connect
from kp_middleware.storage import (
    Distribution,
    History,
    Hundredth,
    Row,
    read_groups,
    read_tool_usage,
)

_COUNTS: Final = ("recorded", "cleared", "queued", "sent", "blocked", "rejected")
_BY: Final = ("domain", "tool", "day", "week", "model", "state", "gate")
_TOOL_COLUMNS: Final = ("calls", "failures", "traces", "mean_ms", "max_ms", "tool")
_BIN: Final = 5  # hundredths
_WEEKS: Final = 52


@click.command()
@click.option("--by", type=click.Choice(_BY), help="One row for each. Weeks begin on Monday.")
@domain_option
@limit_option(None, told="With --by: how many rows. Default: all.")
@output_options(in_pipe="json")
@click.pass_obj
def stats(
    db: Path, *, by: str | None, domain: str | None, limit: int | None, output: Output
) -> None:
    """Count what was recorded, cleared and sent, and show how the scores are spread.

    Scores and novelty go from 0 to 1, times are in milliseconds. --by tool counts calls, failures
    and runs, and may be limited to a domain.

    \b
    kp-middleware stats
    kp-middleware stats --by week
    kp-middleware stats --by tool -d code
    """
    if domain is not None and by != "tool":
        raise click.UsageError("-d needs --by tool")
    if by is None and (
        limit is not None or output.columns or output.format in {"csv", "tsv", "nl"}
    ):
        wanted = "-n" if limit is not None else "-c" if output.columns else f"--{output.format}"
        raise click.UsageError(f"{wanted} needs --by: {', '.join(_BY)}")
    with closing(connect(db, read_only=True)) as connection:
        if by == "tool":
            rows = read_tool_usage(connection, domain=domain, limit=limit)
        elif by:
            rows = read_groups(connection, by)[:limit]
        else:
            numbers, spread = History(connection).stats(), Distribution(connection)
            threshold, hundredths = spread.threshold(), spread.hundredths()
    if by:
        _print_groups(rows, by, output)
        return
    if output.format == "json":
        print_json(numbers)
    else:
        _print_stats(numbers, threshold, hundredths)
    output.fail_if_empty(not numbers["recorded"])


def _print_groups(rows: list[Row], by: str, output: Output) -> None:
    columns = [*_TOOL_COLUMNS] if by == "tool" else [*rows[0]] if rows else [by]
    if by == "gate" and output.format == "table":
        columns = _used(rows)
    tell_how_many(0, 0, len(rows))
    output.print(rows, columns)
    if by == "week" and output.format == "table":
        shown = [row["mean_novelty"] for row in rows[-_WEEKS:]]
        click.echo(f"\nnovelty by week, from 0 ▁ to 1 █: {sparkline(shown)}")


def _print_stats(numbers: Row, threshold: float | None, hundredths: list[Hundredth]) -> None:
    for name in _COUNTS:
        click.echo(f"{name:<10}{numbers[name]:>8,}")
    if hundredths:
        click.echo("\nscore at least, and how many runs")
        click.echo("\n".join(histogram([*_bins(hundredths)], threshold, screen_width())))
    for title in ("domains", "states", "gates", "tools"):
        rows = numbers[title]
        if rows:
            click.echo()
            print_table(rows, _used(rows) if title == "gates" else [*rows[0]])


def _used(rows: list[Row]) -> list[str]:
    """Return the columns that are not empty: no gate has every reason."""
    return [name for name in (rows[0] if rows else ["gate"]) if any(row[name] for row in rows)]


def _bins(hundredths: list[Hundredth]) -> Iterator[tuple[float, int]]:
    """Yield twenty bins; a score of 1 is in the last."""
    for start in range(0, 100, _BIN):
        end = start + _BIN if start + _BIN < 100 else 101
        yield start / 100, sum(one.traces for one in hundredths if start <= one.hundredth < end)
