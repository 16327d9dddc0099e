"""The commands ``list``, ``tail``, ``show``, ``similar``, ``diff`` and ``sql``."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli import console, options
from kp_middleware.cli.console import Figure, Output, Progress, print_json, print_rich
from kp_middleware.cli.run_text import render_diff, render_explanation, render_run
from kp_middleware.core.formula import PROFILES, Weights
from kp_middleware.storage import Filters, FreeQuery, History, RunSummary
from kp_middleware.views import trace
from kp_middleware.views.explanation import compared, explain_score
from kp_middleware.views.prices import read_prices
from kp_middleware.views.wording import short_id

_COLUMNS: Final = (  # a narrow terminal drops columns, but never the objective
    *("id", "score", "success", "state", "started_at", "duration_ms", "tokens", "domain"),
    "objective",
)
_TAIL_WIDTHS: Final = {"id": 8, "score": 5, "success": 9, "state": 10}
_SORTABLE: Final = {  # with its column
    "started": "started_at",
    "score": "score",
    "novelty": "novelty",
    "duration": "duration_ms",
    "tokens": "tokens",
    "steps": "step_count",
}


@click.command("list")
@options.limit()
@options.filters
@click.option("--near", is_flag=True, help="Sort by distance to the threshold, nearest first.")
@click.option("--sort", type=click.Choice([*_SORTABLE]), help="Sort by this, highest first.")
@options.output_options()
@options.pass_db
def list_(
    db: Path, *, limit: int, filters: Filters, near: bool, sort: str | None, output: Output
) -> None:
    """List runs, newest first, or best match first with -q.

    -q searches objectives, results and steps for all words, in any form: "orders" finds "order".
    FTS5 syntax works too: "memory leak" as a phrase, leak*, leak OR crash, objective:leak.
    Emoji, and scripts without spaces such as Chinese, match anywhere in a text.

    \b
    kp-middleware list --below --near -d code         near misses
    kp-middleware list --sort novelty                 most unusual first
    kp-middleware list --sort duration --since 7d     slowest first
    kp-middleware list -q "leak* NOT worker"          full-text search
    kp-middleware list --failed --since 2d --nl       one JSON object per line
    """
    with History.open(db) as history:
        if sort is None:
            runs = history.runs(filters, limit=limit, near=near)
        else:
            runs = history.page(filters, limit=limit, sort=sort).runs
        count = history.count_runs(filters) if len(runs) == limit else limit
        prices = read_prices()
        costs = prices.costs(history, [run.seq for run in runs])
    sort_key = "margin" if near else _SORTABLE.get(sort or "", "score")
    text = "objective" if filters.text is None or near or sort else "snippet"
    pod = ["pod"] if any(run.pod for run in runs) else []
    columns = [*dict.fromkeys(("id", "score", sort_key, *_COLUMNS[:-1], *pod, text))]
    listed = (console.run_row(run) | prices.as_json(costs.get(run.seq)) for run in runs)
    output.print(listed, columns, humanize=console.humanize_run)
    if prices.problem:
        console.warn(prices.problem)
    console.hint_at_limit(count, limit, len(runs))
    for problem in options.settings_problems():
        console.warn(f"nothing is sent: {problem}")


@click.command()
@options.limit(10, minimum=0, help_text="Number of past runs to print first.")
@click.option("--follow/--no-follow", "follows", default=True, help="Wait for new runs, or exit.")
@options.output_options(json_help="One JSON object per line, like --nl.")
@options.pass_db
def tail(db: Path, *, limit: int, follows: bool, output: Output) -> None:
    """Print runs as they end. Ctrl-C stops.

    \b
    kp-middleware tail
    kp-middleware tail -n 0 --json | jq .score
    """
    if output.format == "json":
        output = output._replace(format="nl")
    ended = map(console.run_row, _followed(db, first=limit, follows=follows))
    columns = (*_TAIL_WIDTHS, "objective") if output.format == "table" else _COLUMNS
    output.print(ended, columns, humanize=console.humanize_run, widths=_TAIL_WIDTHS)


def _weights(db: Path, profile: str) -> Weights:
    profiles = {**PROFILES, **options.read_settings(db).profiles}
    if profile not in profiles:
        raise click.UsageError(f"no such profile: {profile} (choose from {', '.join(profiles)})")
    return profiles[profile]


def _step_limit(typed: str) -> int | None:
    if not (typed == "all" or typed.isdecimal()):
        raise click.BadParameter(f"{typed!r} is neither a number nor all")
    return None if typed == "all" else int(typed)


@click.command("show")
@options.trace_id()
@click.option("--steps", metavar="NUMBER|all", default="20", type=_step_limit, help="Default: 20.")
@click.option("--why", is_flag=True, help="Explain the score and what would change the decision.")
@click.option("--threshold", type=options.UNIT, help="With --why: use this threshold, 0 to 1.")
@click.option("--weights", help="With --why: use the weights of this domain, such as code.")
@click.option("--json", "form", flag_value="json", help="Print JSON with all steps.")
@click.option("--md", "form", flag_value="md", help="Print Markdown, to paste into a chat.")
@click.option("--payload", "form", flag_value="payload", help="Print the ReasoningTrace.")
@options.pass_db
def show_(
    db: Path,
    *,
    trace_id: str,
    steps: int | None,
    why: bool,
    threshold: float | None,
    weights: str | None,
    form: str | None,
) -> None:
    """Show a run: its score, delivery and steps.

    ID is an id prefix, @last or @best. --why explains the score; with it, --threshold and --weights
    try other values without changing the stored score.

    \b
    kp-middleware show 1339c0
    kp-middleware show @last --why --threshold 0.7
    kp-middleware show @last --steps all --md
    """
    if not why and (threshold is not None or weights is not None):
        raise click.UsageError("--threshold and --weights need --why")
    if why and form in {"md", "payload"}:
        raise click.UsageError(f"--why cannot be combined with --{form}")
    profile = None if weights is None else _weights(db, weights)
    with History.open(db) as history:
        seq = history.find(trace_id)
        if form == "payload":
            body = history.document(seq)
            if body is None:
                raise click.ClickException("the document of this run is missing from the file")
            click.echo(console.escaped(body) if sys.stdout.isatty() else body)
            return
        run = history.run(seq)
        prices = read_prices()
        cost = prices.costs(history, [seq]).get(seq)
    if why:
        explanation = explain_score(run, threshold=threshold, weights=profile)
        if form == "json":
            print_json(explanation.as_json())
        else:
            print_rich(*render_explanation(explanation, console.screen_width()))
    elif form == "json":
        lines = [line._asdict() for line in trace.arithmetic(run)]
        more = {"state": trace.listed_state(run), "delivery_status": trace.delivery_status(run)}
        print_json({**trace.run_as_json(run), "arithmetic": lines, **more, **prices.as_json(cost)})
    elif form == "md":
        click.echo("\n".join(trace.markdown(run, steps=steps)))
    else:
        width, paid = console.screen_width(), prices.in_words(cost)
        print_rich(*render_run(run, steps=steps, width=width, cost=paid))
    if prices.problem:
        console.warn(prices.problem)


@click.command()
@options.trace_id()
@options.limit(10)
@options.output_options()
@options.pass_db
def similar(db: Path, *, trace_id: str, limit: int, output: Output) -> None:
    """List the runs most similar to one, by embedding.

    ID is an id prefix, @last or @best. Similarity is the cosine of the embeddings: 1 for
    identical texts, about 0 for unrelated ones.

    \b
    kp-middleware similar @last -n 5
    """
    with History.open(db) as history, Progress("runs compared") as bar:
        seq = history.find(trace_id)
        matches = history.similar(seq, limit=limit, reach=bar.update)
        if matches is None:
            run = history.run(seq)
            why = "scored without a model" if run.state == "scored" else f"its state is {run.state}"
            raise click.ClickException(f"run {short_id(run.id)} has no embedding: {why}")
    output.print(
        (
            {"similarity": round(similarity, 6), "seq": other.seq, **console.run_row(other)}
            for similarity, other in matches
        ),
        ("id", "similarity", "score", "success", "domain", "objective"),
        humanize=console.humanize_run,
    )


@click.command()
@options.trace_id("left", metavar="A")
@options.trace_id("right", metavar="B")
@options.json_option
@options.pass_db
def diff(db: Path, *, left: str, right: str) -> None:
    """Compare two runs: facts, scores and steps.

    A and B are id prefixes, @last or @best. Aligns steps by type and tool, and shows the texts that
    differ.

    \b
    kp-middleware diff 1339c0 @last
    """
    with History.open(db) as history:
        first, second = (history.run(history.find(name)) for name in (left, right))
    sides = render_diff(first, second, console.screen_width())
    console.print_result(compared(first, second).as_json(), sides)


def _followed(db: Path, *, first: int, follows: bool) -> Iterator[RunSummary]:
    with History.open(db) as history:
        for ended in history.tail(first=first):
            yield from ended
            if not follows:
                return
            time.sleep(0.5)


_MAX_BLOB_BYTES: Final = 16


@click.command()
@click.argument("query")
@options.output_options(in_pipe="json")
@options.pass_db
def sql(db: Path, *, query: str, output: Output) -> None:
    """Run a read-only SQL query, for at most 5 s.

    QUERY is one statement; - reads it from standard input. Useful views: history, score_parts,
    daily, tool_usage, funnel, near_misses.

    \b
    kp-middleware sql "select domain, avg(score) from traces group by 1"
    kp-middleware sql "select * from near_misses where domain = 'code'" --csv
    kp-middleware sql - < question.sql
    """
    if query == "-":
        query = sys.stdin.read()
    if not query.strip():
        raise click.UsageError("missing QUERY: pass one SQL statement, or - for standard input")
    with closing(FreeQuery(db)) as free_query:
        answer = free_query.ask(query)
        readable = (
            {name: _display_value(value, output.format) for name, value in row.items()}
            for row in answer.rows
        )
        output.print(readable, answer.columns, all_columns=True)


def _display_value(value: object, format_: str) -> object:
    """Return a value as its format can print it. Tables print integers ungrouped."""
    match value:
        case bytes() if format_ == "table" and len(value) > _MAX_BLOB_BYTES:
            return f"x'{value[:_MAX_BLOB_BYTES].hex()}…' ({len(value):,} bytes)"
        case bytes():
            return f"x'{value.hex()}'"
        case float() if not math.isfinite(value):
            return str(value)
        case float() if format_ == "table":
            return Figure(f"{value:,.3f}" if abs(value) >= 1 else f"{value:.3g}")
        case int() if format_ == "table":
            return Figure(value)
        case _:
            return value
