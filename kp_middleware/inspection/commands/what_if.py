"""The command that says what other thresholds would do."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.database import connect
from kp_middleware.inspection.explanation.thresholds import (
    ONE_COLUMNS,
    ROW_COLUMNS,
    by_threshold,
    effect_row,
)
from kp_middleware.inspection.input.names import complete_domain
from kp_middleware.inspection.input.number_range import UNIT
from kp_middleware.inspection.input.since import since_option
from kp_middleware.inspection.input.weights import profile_weights, weights_option
from kp_middleware.inspection.lines.thresholds import one_threshold_lines, threshold_lines
from kp_middleware.inspection.output.exit_codes import EMPTY
from kp_middleware.inspection.output.rows import Output, output_options, print_json
from kp_middleware.inspection.output.screen import screen_width
from kp_middleware.storage import Distribution, Row

_HUNDREDTHS: Final = {"0.01": 1, "0.05": 5, "0.1": 10}


@click.command("what-if")
@click.option("--threshold", type=UNIT, help="Only this one, and what changes.")
@click.option(
    "--step",
    type=click.Choice([*_HUNDREDTHS]),
    help="From one threshold to the next. Default: 0.1 in a table, 0.01 elsewhere.",
)
@click.option("-d", "--domain", shell_complete=complete_domain, help="Only traces of this domain.")
@since_option
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="With --threshold: how many of the traces that change.",
)
@weights_option
@output_options(columns=tuple(dict.fromkeys((*ROW_COLUMNS, *ONE_COLUMNS))))
@click.pass_obj
def what_if(
    db: Path,
    *,
    threshold: float | None,
    step: str | None,
    domain: str | None,
    since: str | None,
    limit: int,
    profile: str | None,
    output: Output,
) -> None:
    """Say how many traces would have gone at every threshold, in all and by domain.

    Nothing is scored by a model: the stored parts say it. With --threshold, it names the traces
    that would newly go or stay, those nearest to it first.

    \b
    kp-middleware what-if
    kp-middleware what-if --threshold 0.7 -d code
    """
    weights = None if profile is None else profile_weights(db, profile)
    with closing(connect(db, read_only=True)) as connection:
        spread = Distribution(connection, domain=domain, since=since, weights=weights)
        if threshold is not None:
            effect = effect_row(spread, threshold, limit)
            _print_one(effect, output)
            traces = effect["traces"]
        else:
            size = _HUNDREDTHS[step or ("0.1" if output.format == "table" else "0.01")]
            rows = [*by_threshold(spread.hundredths(), size)]
            _print_all(rows, spread.threshold(), output)
            traces = rows[0]["traces"]
    if output.fail_empty and not traces:
        sys.exit(EMPTY)


def _print_all(rows: list[Row], current: float | None, output: Output) -> None:
    if output.format == "table" and not output.columns:
        click.echo("\n".join(threshold_lines(rows, current, screen_width())))
    else:
        output.print(rows, ROW_COLUMNS)


def _print_one(effect: Row, output: Output) -> None:
    match output.format:
        case "json" if not output.columns:
            print_json(effect)
        case "table" if not output.columns:
            click.echo("\n".join(one_threshold_lines(effect, screen_width())))
        case _:
            output.print(_changes(effect), ONE_COLUMNS)


def _changes(effect: Row) -> Iterator[Row]:
    for change in ("newly_go", "newly_stay"):
        for trace in effect[change]["nearest"]:
            yield {"change": change, **trace}
