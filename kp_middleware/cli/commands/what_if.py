"""The command that says what other thresholds would do."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.input.limit import limit_option
from kp_middleware.cli.input.names import domain_option
from kp_middleware.cli.input.number_range import UNIT
from kp_middleware.cli.input.since import since_option
from kp_middleware.cli.input.weights import profile_weights, weights_option
from kp_middleware.cli.lines.thresholds import (
    one_threshold_lines,
    threshold_lines,
)
from kp_middleware.cli.output.exit_codes import EMPTY
from kp_middleware.cli.output.manners import hint
from kp_middleware.cli.output.rows import Output, output_options, print_json
from kp_middleware.cli.output.screen import screen_width
from kp_middleware.database import connect
from kp_middleware.storage import Distribution, Row
from kp_middleware.views.thresholds import (
    LONG_COLUMNS,
    ONE_COLUMNS,
    effect_row,
    in_long_form,
    never_leave,
    rows_of,
)

_NONE: Final = "nothing matches: no such trace has a score"
_HUNDREDTHS: Final = {"0.01": 1, "0.05": 5, "0.1": 10}


@click.command("what-if")
@click.option("--threshold", type=UNIT, help="Only this one, and what changes.")
@click.option(
    "--step",
    type=click.Choice([*_HUNDREDTHS]),
    help="From one threshold to the next. Default: 0.1 in a table, 0.01 elsewhere.",
)
@domain_option
@since_option
@limit_option(10, least=0, told="With --threshold: how many of the traces that change.")
@weights_option
@output_options(columns=tuple(dict.fromkeys((*LONG_COLUMNS, *ONE_COLUMNS))))
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

    Nothing is scored by a model: the stored parts say it. What is private is not counted, since it
    never leaves. CSV and TSV have a row for each threshold and domain, "all" first. With
    --threshold, it names the traces that would newly go or stay, those nearest to it first.

    \b
    kp-middleware what-if
    kp-middleware what-if --threshold 0.7 -d code
    """
    weights = None if profile is None else profile_weights(db, profile)
    with closing(connect(db, read_only=True)) as connection:
        spread = Distribution(connection, domain=domain, since=since, weights=weights)
        if threshold is not None:
            effect = effect_row(spread, threshold, limit)
            traces = effect["traces"]
            _tell_if_none(traces, spread)
            _print_one(effect, output)
        else:
            size = _HUNDREDTHS[step or ("0.1" if output.format == "table" else "0.01")]
            rows = rows_of(spread, size)
            traces = rows[0]["traces"] if rows else 0
            _tell_if_none(traces, spread)
            _print_all(rows, spread.threshold(), output)
    if output.fail_empty and not traces:
        sys.exit(EMPTY)


def _tell_if_none(traces: int, spread: Distribution) -> None:
    """Rows of noughts would look like an answer."""
    if traces:
        return
    private = sum(one.traces for one in spread.hundredths(private=True))
    hint(f"nothing matches. {never_leave(private)}" if private else _NONE)


def _print_all(rows: list[Row], current: float | None, output: Output) -> None:
    match output.format:
        case "json" | "nl":
            output.print(rows, ())
        case "table" if not output.columns:
            for line in threshold_lines(rows, current, screen_width()) if rows else ():
                click.echo(line)
        case _:
            output.print(in_long_form(rows), LONG_COLUMNS)


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
