"""The command that says what tools were used."""

from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.database import connect
from kp_middleware.inspection.input.names import complete_domain
from kp_middleware.inspection.output.rows import Output, output_options
from kp_middleware.inspection.output.trace_rows import tell_if_none
from kp_middleware.storage import Row, read_tool_usage

_COLUMNS: Final = ("calls", "failures", "traces", "mean_ms", "max_ms", "tool")


@click.command()
@click.option("-n", "--limit", type=click.IntRange(min=1), help="How many. Default: all.")
@click.option("-d", "--domain", shell_complete=complete_domain, help="Only in this domain.")
@output_options()
@click.pass_obj
def tools(db: Path, *, limit: int | None, domain: str | None, output: Output) -> None:
    """List the tools, the most used first: calls, failures, traces, and how long they took.

    \b
    kp-middleware tools -d code
    """
    with closing(connect(db, read_only=True)) as connection:
        rows = read_tool_usage(connection, domain=domain, limit=limit)
    tell_if_none(rows)
    output.print(rows, _COLUMNS, for_people=_for_people)


def _for_people(row: Row) -> Row:
    return row | {name: _rounded(row[name]) for name in ("mean_ms", "max_ms")}


def _rounded(took_ms: float | None) -> float | None:
    """Whole milliseconds; what is less than ten stays, since 0 would be no time."""
    return took_ms if took_ms is None or took_ms < 10 else round(took_ms)
