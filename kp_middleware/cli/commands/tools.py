"""The command that says what tools were used."""

from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.input.limit import limit_option
from kp_middleware.cli.input.names import domain_option
from kp_middleware.cli.output.rows import Output, output_options
from kp_middleware.cli.output.trace_rows import tell_if_none
from kp_middleware.database import connect
from kp_middleware.storage import read_tool_usage

_COLUMNS: Final = ("calls", "failures", "traces", "mean_ms", "max_ms", "tool")


@click.command()
@limit_option(None, told="How many. Default: all.")
@domain_option
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
    output.print(rows, _COLUMNS)
