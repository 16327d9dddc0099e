"""The commands ``stats``, ``status``, ``report`` and ``ui``."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli import console, options
from kp_middleware.cli.console import Output, Row, hint, indented
from kp_middleware.core.gates import exact
from kp_middleware.errors import MissingExtraError
from kp_middleware.storage import GroupCounts, History
from kp_middleware.views.delivery import find_obstacles, shared_log_as_row
from kp_middleware.views.gate import review_backlog_in_words, success_warning, successes_as_json
from kp_middleware.views.wording import counted, minute, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

_COUNTS: Final = ("recorded", "cleared", "queued", "sent", "blocked", "rejected")
_GROUPINGS: Final = ("domain", "tool", "day", "week", "model", "state", "gate", "recalled")
_MAX_TOOLS: Final = 10
_MIN_KNOWN: Final = 30  # known outcomes, to compare
_TOOL_KEYS: Final = ("tool", "calls", "failures", "traces", "mean_ms", "max_ms")


@click.command()
@click.option("--by", type=click.Choice(_GROUPINGS), help="Group by this. Weeks begin on Monday.")
@options.domain
@options.limit(None, help_text="With --by: maximum number of rows. Default: all.")
@options.output_options(in_pipe="table")
@options.pass_db
def stats(
    db: Path, *, by: str | None, domain: str | None, limit: int | None, output: Output
) -> None:
    """Count runs by stage and group, and plot their scores.

    Scores and novelty range from 0 to 1. --by tool counts calls, the failures that runs recovered
    from (an error that ends a run counts for the run: list --failed), and runs; -d limits it to a
    domain. --by recalled compares runs that were given past runs with later runs that were not.

    \b
    kp-middleware stats
    kp-middleware stats --by week
    kp-middleware stats --by tool -d code
    """
    if domain is not None and by != "tool":
        raise click.UsageError("-d needs --by tool")
    if by is None and (limit or output.columns or output.format in {"csv", "tsv", "nl"}):
        raise click.UsageError(f"rows and columns need --by: {', '.join(_GROUPINGS)}")
    with History.open(db) as history:
        if by:
            _print_groups(_grouped(history, by, domain)[:limit], by, output)
            return
        funnel, tools = history.funnel(), history.tools(counts_runs=False)
        bins, threshold = history.score_bins(5), history.threshold()
        totals = {
            **{name: getattr(funnel, name) for name in (*_COUNTS, "private", "if_not_private")},
            "domains": _grouped(history, "domain"),
            "scores": [
                {"at_least": least, "traces": count + then}
                for (least, count), (_, then) in zip(bins[::2], bins[1::2], strict=True)
                if count + then
            ],
            "states": _grouped(history, "state"),
            "gates": _grouped(history, "gate"),
            "tools": [
                {name: getattr(tool, name) for name in _TOOL_KEYS if name != "traces"}
                for tool in tools[:_MAX_TOOLS]
            ],
        }
    if output.format == "json":
        console.print_json(totals)
    else:
        _print_totals(totals, bins, threshold)
        if len(tools) > _MAX_TOOLS:
            hint(f"the {_MAX_TOOLS} most used of {len(tools):,} tools: --by tool shows all")
    output.fail_if_empty(not totals["recorded"])


def _grouped(history: History, by: str, domain: str | None = None) -> list[dict[str, Any]]:
    match by:
        case "state":
            return [{"state": state, "traces": runs} for state, runs in history.states().items()]
        case "gate":
            return [
                {"gate": row.gate, "traces": row.traces, "cleared": row.cleared, **row.withheld}
                for row in history.gates()
            ]
        case "recalled":
            return [row._asdict() for row in history.recall_table().effects()]
        case "tool":
            tools = history.tools(domain=domain)
            return [{name: getattr(tool, name) for name in _TOOL_KEYS} for tool in tools]
        case _:
            names = (by, *GroupCounts._fields[1:])
            return [dict(zip(names, row, strict=True)) for row in history.groups(by)]


def _print_groups(rows: list[dict[str, Any]], by: str, output: Output) -> None:
    columns = [*_TOOL_KEYS[1:], "tool"] if by == "tool" else [*rows[0]] if rows else [by]
    if by == "gate" and rows and output.format == "table":
        columns = _nonempty_columns(rows)
    if by == "recalled" and (len(rows) < 2 or min(row["known"] for row in rows) < _MIN_KNOWN):
        needed = f"{_MIN_KNOWN} known outcomes with recall, and {_MIN_KNOWN} without"
        hint(f"too few to compare: needs {needed}")
    elif not rows:
        hint("nothing matches")
    if rows or by != "recalled" or output.format != "table":
        output.print(rows, columns)


def _print_totals(totals: Row, bins: Sequence[tuple[float, int]], threshold: float | None) -> None:
    for name in _COUNTS:
        click.echo(f"{name:<10}{totals[name]:>8,}")
    if totals["private"]:
        cleared = f"scored, never sent; {totals['if_not_private']:,} of them cleared"
        click.echo(f"{'private':<10}{totals['private']:>8,}  {cleared}")
    if totals["scores"]:
        lines = _histogram(bins, threshold, console.screen_width())
        click.echo("\n".join(["\nruns by score", *lines]))
    for title in ("domains", "states", "gates", "tools"):
        if rows := totals[title]:
            click.echo()
            console.print_table(rows, _nonempty_columns(rows) if title == "gates" else [*rows[0]])


def _nonempty_columns(rows: list[dict[str, Any]]) -> list[str]:
    return [name for name in rows[0] if any(row[name] for row in rows)]


def _histogram(
    bins: Sequence[tuple[float, int]], threshold: float | None, width: int
) -> Iterator[str]:
    """Yield a line for each bin, lowest score first, and mark the threshold's."""
    label = "" if threshold is None else f"  ← threshold {exact(threshold)}"
    bar_width = max(min(width - 18 - len(label), 50), 1)
    largest = max(runs for _, runs in bins)
    threshold_bin = max(least for least, _ in bins if least <= (threshold or 0.0))
    for least, runs in bins:
        mark = label if least == threshold_bin else ""
        yield f"{least:.2f} {runs:>10,}  {console.bar(runs / largest, bar_width)}".rstrip() + mark


_SHOWN_COUNTS: Final = (
    *("recorded", "dropped", "scored", "incomplete"),
    *("failed", "sent", "rejected", "blocked"),
)
_PROBLEMS: Final = {
    "dropped": "lost because the queue was full: raise max_queue_bytes",
    "failed": "could not be scored: kp-middleware show ID says why",
    "rejected": "rejected by the registry: kp-middleware outbox --failed says why",
    "blocked": "blocked by redaction or out of retries: kp-middleware outbox --blocked says why,"
    " kp-middleware outbox retry --failed tries again",
}
_WAITING: Final = {
    "unscored": "waiting to be scored by the next program that records",
    "paused": "waiting for a person or the next turn: resume them, or call kp.end_thread(…)",
    "pending": "waiting to be sent by the next program that records with your key, or by"
    " kp-middleware outbox send",
}
_COPIED: Final = "waiting to be sent by the hosts of the shared log, not from this copy"
_LABELS: Final = {"failed": "unscorable"}  # not a failed task


@click.command()
@options.json_option
@options.pass_db
def status(db: Path) -> None:
    """Show stored runs, backlog and errors, with remedies.

    For the counters of a running program, call kp.stats().

    \b
    kp-middleware status
    """
    with History.open(db) as history:
        file_status, last = history.file_status(db), history.last_decisions()
        backlog, record = history.review_backlog(), history.success_record()
        shared, paces = shared_log_as_row(options.shared_url(), history.shared_backlog())
        exporters = [row._asdict() for row in history.exporters()]
        counts, obstacles = history.counts()._asdict(), find_obstacles(history.backlog(), db, paces)
        not_queued = history.not_queued()
    counts["dropped"] = file_status.dropped
    problems = [f"nothing is sent: {words}" for words in options.settings_problems()]
    problems += [f"{counts[kind]:,} {words}" for kind, words in _PROBLEMS.items() if counts[kind]]
    problems += obstacles.in_words()
    problems += [f"{path} is damaged: delete it if not needed" for path in file_status.set_aside]
    dry = last.in_words() if last.is_dry else None
    problems += filter(None, (options.write_problem(db), success_warning(record, backlog), dry))
    report = {
        "path": str(db),
        **file_status._asdict(),
        **counts,
        "not_queued": not_queued,
        "last_decisions": last._asdict(),
        "pauses": [pause.as_row() for pause in obstacles.pauses],
        "sending": [sending.as_row() for sending in obstacles.sending],
        "exporters": exporters,
        "shared": shared,
        "review": {
            "unjudged": backlog.unreviewed,
            "forwarded": backlog.forwarded,
            "in_words": review_backlog_in_words(backlog),
        },
        "successes": successes_as_json(record, backlog),
        "troubles": problems,
    }
    console.print_result(report, _render_status(report))


def _render_status(report: Row) -> "Iterator[RenderableType]":
    yield indented(report["path"], "file", indent=11)
    yield f"           {report['size_bytes'] / 1e6:,.1f} MB, schema {report['schema']}"
    if report["oldest"]:
        yield f"           from {minute(report['oldest'])} to {minute(report['newest'])} UTC"
    yield ""
    for name in _SHOWN_COUNTS:
        if name == "recorded" or report[name]:
            yield f"{_LABELS.get(name, name):<11}{report[name]:>8,}"
    if count := report["not_queued"]:
        words = "passed the gate, but are private, unconfirmed, or were recorded without KP_API_KEY"
        yield indented(words, f"not queued {count:>8,}  ")
    yield from _render_backlog(report)
    summary = [report["review"]["in_words"]] if report["review"]["unjudged"] else []
    summary += filter(None, [report["successes"]["in_words"]])
    for block, mark in ((summary, None), (report["troubles"], "! ")):
        if block:
            yield ""
        for text in map(one_line, block):
            yield indented(text, mark) if mark else console.safe_text(text)


def _render_backlog(report: Row) -> "Iterator[RenderableType]":
    log = report["shared"]
    is_stopped = any(sending["stopped"] for sending in report["sending"])
    for name, words in _WAITING.items():
        asking = log["asking"] if log and name == "unscored" else 0
        facts = [f"{asking:,} passed locally and await the shared log"] if asking else []
        if asking < report[name] and not (name == "pending" and is_stopped):
            facts.append(words if name != "pending" or report["sending"] else _COPIED)
        if report[name]:
            facts.append(f"the oldest from {minute(report['waiting_since'][name])} UTC")
            yield indented("; ".join(facts), f"{name:<11}{report[name]:>8,}  ")
    for sending in report["sending"]:
        yield indented(sending["in_words"], indent=21)
    for row in report["exporters"]:
        last = f"; last error: {row['last_error']}" if row["last_error"] else ""
        words = f"{row['name']}: {row['sent']:,} sent, {row['failed']:,} failed{last}"
        yield indented(one_line(words), indent=11)
    if log:
        facts = [
            log["in_words"],
            log["to_ship"] and f"{log['to_ship']:,} waiting to be shipped",
            log["asking"] and f"{log['asking']:,} passed locally and await it",
            log["since"] and f"the oldest began {log['since'][:19].replace('T', ' ')}",
        ]
        yield ""
        yield indented("; ".join(filter(None, facts)), "shared log ")


@click.command()
@click.argument("out", type=options.FILE, default="kp-report.html")
@options.since
@click.option("--as-recorded", "--raw", "raw", is_flag=True, help="Do not redact texts.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@options.pass_db
def report(db: Path, *, out: Path, since: str | None, raw: bool, force: bool, opens: bool) -> None:
    """Write an HTML report: all charts and the notable runs.

    Redacts texts at your privacy_level, unless --as-recorded is given. OUT is readable only by you;
    default: kp-report.html.

    \b
    kp-middleware report --since 7d --open
    kp-middleware report november.html --since 2026-11-01
    """
    from kp_middleware.web.pages import Redactor, make_report

    settings = options.read_settings(db)
    redactor = Redactor(lambda value: value) if raw else Redactor.from_settings(settings)
    level = None if raw else settings.privacy_level
    progress = partial(console.progress, label="runs written")
    with options.new_file(out, db=db, force=force) as temporary, History.open(db) as history:
        html, runs, listed = make_report(history, db, since, redactor, level, progress=progress)
        temporary.write_text(html, encoding="utf-8")
    if redactor.left_out:
        left_out = counted(redactor.left_out, "text")
        console.warn(f"left out {left_out} that could not be redacted")
    hint(f"{counted(runs, 'run')} in full, {listed:,} listed, in {out}")
    if opens:
        import webbrowser

        webbrowser.open(out.expanduser().resolve().as_uri())


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port. Default: any free port."
)
@click.option("--open/--no-open", "opens", default=True, help="Open the browser.")
@options.pass_db
def ui(db: Path, *, port: int, opens: bool) -> None:
    """Open the web page: charts, runs and tables.

    Serves Datasette with our pages on 127.0.0.1. The link works once, in one browser. Programs may
    keep recording. Ctrl-C stops the server.

    To use a browser on another machine, forward the port as in the second example.

    \b
    kp-middleware ui
    ssh -t -L 8001:127.0.0.1:8001 HOST kp-middleware ui --port 8001 --no-open
    """
    History.open(db).close()  # fail here if the file is unusable
    try:
        from kp_middleware.web.server import serve
    except ModuleNotFoundError as error:
        raise MissingExtraError("ui") from error
    serve(db, port=port, opens=opens)
