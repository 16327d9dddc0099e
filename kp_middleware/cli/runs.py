"""The commands on runs: list them, follow them, show one, find those like it, compare two."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from kp_middleware.cli.console import Progress, hint, print_table, screen_width, show
from kp_middleware.cli.options import (
    UNIT,
    filter_options,
    limit_option,
    trace_id_argument,
    weights_option,
)
from kp_middleware.cli.rows import (
    COLUMNS,
    Output,
    exact_json,
    format_options,
    json_option,
    output_options,
    print_json,
    run_for_people,
    run_row,
    tell_how_many,
)
from kp_middleware.cli.run_text import comparison_parts, run_parts, why_parts
from kp_middleware.cli.user_settings import profile_weights, wrong_settings
from kp_middleware.errors import DatabaseError
from kp_middleware.storage import SORTS, Filters, History, Run, RunSummary, SimilarRun
from kp_middleware.views.comparison import compared
from kp_middleware.views.explanation import explain_score
from kp_middleware.views.markdown import markdown
from kp_middleware.views.prices import read_prices
from kp_middleware.views.trace import arithmetic, delivery_status, listed_state, run_as_json
from kp_middleware.views.wording import short_id, zero_or_one

_SIMILAR: Final = ("id", "similarity", "domain", "score", "success", "objective")
_WIDE: Final = 150
_ROOMY: Final = 90
_EVERY_S: Final = 0.5
_PATIENCE: Final = 20
_WIDTHS: Final = {"id": 8, "started_at": 16, "domain": 12, "score": 5, "success": 7, "state": 10}
_FORMATS: Final = {
    "json": "Print JSON with all steps: the default in a pipe.",
    "md": "Print Markdown, to paste into a chat.",
    "payload": "Print the ReasoningTrace as recorded.",
}


_SORTED: Final = {  # the column that shows it
    "started": "started_at",
    "score": "success",
    "novelty": "novelty",
    "duration": "duration_ms",
    "tokens": "tokens",
    "steps": "step_count",
}


@click.command("list")
@limit_option()
@filter_options
@click.option("--near", is_flag=True, help="Sort by distance to the threshold, nearest first.")
@click.option("--sort", type=click.Choice([*SORTS]), help="Sort by this, the highest first.")
@output_options(columns=COLUMNS)
@click.pass_obj
def list_(
    db: Path, *, limit: int, filters: Filters, near: bool, sort: str | None, output: Output
) -> None:
    """List runs, newest first, or best match first with -q.

    -q searches objectives and results. All words must occur, in any form: "orders" finds "order".
    FTS5 syntax works too: "memory leak" as a phrase, leak*, leak OR crash, objective:leak. Emoji,
    and scripts without spaces such as Chinese, match anywhere in a text.

    \b
    kp-middleware list --below --near -d code         near misses
    kp-middleware list --sort novelty                 most unlike all earlier runs
    kp-middleware list --sort duration --since 7d     where the time went
    kp-middleware list -q "leak* NOT worker"          full-text search
    kp-middleware list --failed --since 2d --nl       one JSON object per line
    """
    searches = filters.text is not None and not near and sort is None
    with History.open(db) as history:
        if sort is None:
            runs = history.runs(filters, limit=limit, near=near)
        else:
            runs = history.page(filters, limit=limit, sort=sort).runs
        count = history.count_runs(filters) if len(runs) == limit else limit
        prices = read_prices()
        costs = prices.costs(history, [run.seq for run in runs])
    by = _SORTED.get(sort or "", "margin" if near else "success")
    columns: tuple[str, ...] = (*COLUMNS[:-1], "snippet") if searches else COLUMNS
    if by not in columns:
        columns = (*COLUMNS[:4], by, *COLUMNS[4:])
    if output.format == "table" and (width := screen_width()) < _WIDE:
        columns = _columns(width, by=by, searches=searches)
    more = {"novelty", "tokens"} & {by}
    rows = (
        run_row(run)
        | {name: getattr(run, name) for name in more}
        | prices.as_json(costs.get(run.seq))
        for run in runs
    )
    output.print(rows, columns, for_people=run_for_people)
    tell_how_many(count, limit, len(runs))
    for wrong in wrong_settings():
        click.echo(f"nothing is sent: {wrong}", err=True)
    if prices.problem:
        click.echo(prices.problem, err=True)


@click.command()
@limit_option(10, least=0, told="Number of past runs to print first.")
@click.option("--follow/--no-follow", "follows", default=True, help="Wait for new runs, or exit.")
@output_options(columns=COLUMNS)
@click.pass_obj
def tail(db: Path, *, limit: int, follows: bool, output: Output) -> None:
    """Print runs as they end. Ctrl-C stops.

    --json prints one object per line. The file need not exist yet.

    \b
    kp-middleware tail
    kp-middleware tail -n 0 --json | jq .score
    """
    rows = map(run_row, follow(db, first=limit) if follows else _last(db, limit))
    if output.format != "table":
        one_a_line = output._replace(format="nl" if output.format == "json" else output.format)
        one_a_line.print(rows, COLUMNS)
        return
    columns = output.columns or _columns(screen_width())
    row = None
    for row in rows:
        output.check(row)
        print_table([run_for_people(row)], columns, headers=output.headers, widths=_WIDTHS)
        output = output._replace(headers=False)
    output.fail_if_empty(row is None)


@click.command("show")
@trace_id_argument()
@click.option(
    "--steps",
    metavar="NUMBER|all",
    default="20",
    show_default=True,
    callback=lambda _context, _option, typed: _how_many(typed),
    help="Number of steps, or all.",
)
@click.option("--why", is_flag=True, help="Explain the score and what would change the decision.")
@click.option("--threshold", type=UNIT, help="With --why: compare with this threshold, 0 to 1.")
@weights_option
@format_options(_FORMATS)[0]
@format_options(_FORMATS)[1]
@format_options(_FORMATS)[2]
@click.pass_obj
def show_(
    db: Path,
    *,
    trace_id: str,
    steps: int | None,
    why: bool,
    threshold: float | None,
    profile: str | None,
    format_: str | None,
) -> None:
    """Show a run: its score, delivery and steps.

    ID is an id prefix, @last or @best. --why explains the score in words; with it, --threshold and
    --weights try other values without changing the score.

    \b
    kp-middleware show 1339c0
    kp-middleware show @last --why --threshold 0.7
    kp-middleware show @last --steps all --md
    """
    if not why and (threshold is not None or profile is not None):
        raise click.UsageError("--threshold and --weights need --why")
    if why and format_ in {"md", "payload"}:
        raise click.UsageError(f"--why is text or JSON: leave out --{format_}")
    weights = None if profile is None else profile_weights(db, profile)
    with History.open(db) as history:
        seq = history.find(trace_id)
        if format_ == "payload":
            _print_payload(history.document(seq))
            return
        run = history.run(seq)
        prices = read_prices()
        cost = prices.costs(history, [seq]).get(seq)
    usual = "text" if sys.stdout.isatty() or why else "json"
    width = screen_width()
    match format_ or usual:
        case "json" if why:
            print_json(explain_score(run, threshold=threshold, weights=weights).as_json())
        case "text" if why:
            account = explain_score(run, threshold=threshold, weights=weights)
            show(*why_parts(account, run.objective, width))
        case "json":
            lines = [line._asdict() for line in arithmetic(run)]
            told = {"state": listed_state(run), "delivery_status": delivery_status(run)}
            print_json({**run_as_json(run), "arithmetic": lines, **told, **prices.as_json(cost)})
        case "md":
            click.echo("\n".join(markdown(run, steps=steps)))
        case _:
            show(*run_parts(run, steps=steps, width=width))
    if prices.problem:
        click.echo(prices.problem, err=True)


@click.command()
@trace_id_argument()
@limit_option(10)
@output_options(columns=_SIMILAR)
@click.pass_obj
def similar(db: Path, *, trace_id: str, limit: int, output: Output) -> None:
    """List the runs most similar to one, by embedding.

    ID is a prefix of its id, @last or @best. Similarity is the cosine: 1 for the same words, about
    0 for nothing in common.

    \b
    kp-middleware similar @last -n 5
    """
    with History.open(db) as history, Progress("runs compared") as shown:
        seq = history.find(trace_id)
        found = history.similar(seq, limit=limit, reach=shown.reach)
        if found is None:
            raise click.ClickException(_why_no_vector(history.run(seq)))
    output.print(map(_similar_row, found), _SIMILAR, for_people=run_for_people)


@click.command()
@trace_id_argument("left", metavar="A")
@trace_id_argument("right", metavar="B")
@json_option
@click.pass_obj
def diff(db: Path, *, left: str, right: str, as_json: bool) -> None:
    """Compare two runs: facts, scores and steps.

    A and B are prefixes of ids, @last or @best. Steps are equal if their type and tool are.

    \b
    kp-middleware diff 1339c0 @last
    """
    with History.open(db) as history:
        ours, theirs = (history.run(history.find(name)) for name in (left, right))
    comparison = compared(ours, theirs)
    if as_json:
        print_json(comparison.as_json())
    else:
        show(*comparison_parts(comparison, screen_width()))


def follow(
    db: Path, *, first: int = 0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[RunSummary]:
    """Yield the runs of a file as they end, each once, for ever.

    Waits for a file that does not exist, and goes on with one that has taken its place.

    Args:
        db: The file.
        first: So many of the last that have ended come first.
        sleep: Waits for so many seconds.
    """
    while True:
        if not db.exists():
            hint(f"waiting for {db}: it is made when a program records")
            first = sys.maxsize  # of a new file, all is new
        with _opened(db, sleep) as history:
            ended, place = history.tail(first=first), _place(db)
            while _place(db) == place:
                yield from ended.new()
                sleep(_EVERY_S)
        first = 0


def _columns(width: int, *, by: str = "success", searches: bool = False) -> tuple[str, ...]:
    """Return the columns to show, fewer on a narrow terminal to fit the objective."""
    place = ("started_at", "domain") if width >= _ROOMY else ()
    objective = "snippet" if searches else "objective"
    return (*dict.fromkeys(("id", *place, "score", by, "state", objective)),)


def _how_many(value: str) -> int | None:
    if value == "all":
        return None
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is neither a number nor all")
    return int(value)


def _print_payload(body: str | None) -> None:
    if body is None:
        raise click.ClickException("its document is not in the file: it could not be rescued")
    click.echo(exact_json(body))


def _similar_row(found: SimilarRun) -> dict[str, Any]:
    names = ("seq", "id", "started_at", "domain", "score")
    told = {name: getattr(found.run, name) for name in names}
    success, objective = zero_or_one(found.run.known_success), found.run.objective
    similarity = round(found.similarity, 6)
    told |= {"success": success, "success_source": found.run.success_source}
    return {"similarity": similarity, **told, "objective": objective}


def _why_no_vector(run: Run) -> str:
    told = f"run {short_id(run.id)} has no embedding to compare"
    match run.state:
        case "recorded":
            return f"{told}: it is not scored yet; the next program that records does it"
        case "scored":
            return f"{told}: it was scored without a model; kp-middleware doctor says what to do"
        case state:
            return f"{told}: it is {state}, and only what is scored has one"


def _last(db: Path, limit: int) -> Iterator[RunSummary]:
    with History.open(db) as history:
        yield from history.tail(first=limit).new()


def _opened(db: Path, sleep: Callable[[float], None]) -> History:
    """Open the file as soon as it exists and has its tables."""
    tried = 0
    while True:
        try:
            return History.open(db)
        except DatabaseError:
            tried += db.exists()
            if tried > _PATIENCE:
                raise
        sleep(_EVERY_S)


def _place(db: Path) -> int | None:
    """Return the inode of the file, which tells a replaced file from the old one."""
    try:
        return db.stat().st_ino
    except OSError:
        return None
