"""The command that says in words why a trace scored as it did."""

from contextlib import closing
from pathlib import Path

import click

from kp_middleware.cli.input.names import trace_id_argument
from kp_middleware.cli.input.number_range import UNIT
from kp_middleware.cli.input.weights import profile_weights, weights_option
from kp_middleware.cli.lines.account import account_lines
from kp_middleware.cli.output.rows import json_option, print_json
from kp_middleware.cli.output.screen import screen_width
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.explanation import explain_score


@click.command()
@trace_id_argument()
@click.option("--threshold", type=UNIT, help="Hold it against this, 0 to 1.")
@weights_option
@json_option
@click.pass_obj
def explain(
    db: Path, *, trace_id: str, threshold: float | None, profile: str | None, as_json: bool
) -> None:
    """Say in words why a trace scored as it did, and what would have changed the verdict.

    ID is the beginning of its id, @last or @best. The stored score stays, whatever is asked.

    \b
    kp-middleware explain @last --threshold 0.7
    kp-middleware explain 1339c0 --weights code
    """
    weights = None if profile is None else profile_weights(db, profile)
    with closing(connect(db, read_only=True)) as connection:
        history = History(connection)
        trace = history.trace(history.find(trace_id))
    account = explain_score(trace, threshold=threshold, weights=weights)
    if as_json:
        print_json(account.as_row())
    else:
        click.echo("\n".join(account_lines(account, trace["objective"], screen_width())))
