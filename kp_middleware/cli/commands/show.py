"""The command that shows one trace."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.input.names import trace_id_argument
from kp_middleware.cli.lines.markdown import markdown
from kp_middleware.cli.lines.trace import trace_lines
from kp_middleware.cli.output.rows import chosen_format, exact_json, print_json
from kp_middleware.cli.output.screen import screen_width
from kp_middleware.database import connect
from kp_middleware.storage import History, Row
from kp_middleware.views.trace import arithmetic, delivery_status

_FORMATS: Final = {
    "json": "Print JSON, for programs: the default in a pipe. It has all steps.",
    "md": "Print Markdown, to paste into a chat.",
    "payload": "Print the ReasoningTrace exactly as it was recorded.",
}


def _how_many(_: click.Context, __: click.Parameter, value: str) -> int | None:
    if value == "all":
        return None
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is neither a number nor all")
    return int(value)


@click.command()
@trace_id_argument()
@click.option(
    "--steps",
    metavar="NUMBER|all",
    default="20",
    show_default=True,
    callback=_how_many,
    help="How many steps, or all of them.",
)
@click.option("--json", "as_json", is_flag=True, help=_FORMATS["json"])
@click.option("--md", "as_md", is_flag=True, help=_FORMATS["md"])
@click.option("--payload", "as_payload", is_flag=True, help=_FORMATS["payload"])
@click.pass_obj
def show(db: Path, /, *, trace_id: str, steps: int | None, **typed: bool) -> None:
    """Show why one trace scored as it did, where it went, and its steps.

    ID is the beginning of its id, @last or @best.

    \b
    kp-middleware show 1339c0
    kp-middleware show @last --steps all --md
    """
    format_ = chosen_format(_FORMATS, typed)
    with closing(connect(db, read_only=True)) as connection:
        history = History(connection)
        seq = history.find(trace_id)
        if format_ == "payload":
            _print_payload(history.document(seq))
            return
        trace = history.trace(seq)
    match format_ or ("text" if sys.stdout.isatty() else "json"):
        case "json":
            print_json(_as_json(trace))
        case "md":
            click.echo("\n".join(markdown(trace, steps=steps)))
        case _:
            click.echo("\n".join(trace_lines(trace, steps=steps, width=screen_width())))


def _as_json(trace: Row) -> Row:
    lines = [line._asdict() for line in arithmetic(trace)]
    return {**trace, "arithmetic": lines, "delivery_status": delivery_status(trace)}


def _print_payload(body: str | None) -> None:
    if body is None:
        raise click.ClickException("its document is not in the file: it could not be rescued")
    click.echo(exact_json(body))
