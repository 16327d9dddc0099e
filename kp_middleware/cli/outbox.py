"""The ``outbox`` commands: list queued runs, and retry, cancel or send them."""

import difflib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import click

from kp_middleware import locations
from kp_middleware.cli import console, options
from kp_middleware.cli.console import ATTENTION, BLOCKED, Output, Progress, hint
from kp_middleware.errors import KnowledgePulseError, SharedLogError
from kp_middleware.instants import instant
from kp_middleware.reasons import outbox_reason_text
from kp_middleware.shared_log import Link
from kp_middleware.storage import STILL_SENT, History, OutboxAdmin, SharedRuns, lift_stops
from kp_middleware.views.delivery import BEING_SENT, find_obstacles, shared_paces
from kp_middleware.views.wording import in_words, printable, short_id

_MAY_BE_SENT: Final = "may still be sent by another host until a program here records again"
_NO_LIMIT: Final = 1_000_000
_FAILED: Final = ("rejected", "blocked")
_WAITING: Final = ("pending", "sending")
_KINDS: Final = {
    "failed": (_FAILED, "Only rejected and blocked items."),
    "blocked": (("blocked",), "Only blocked items: redaction failed, or retries ran out."),
    "pending": (_WAITING, "Only items waiting to be sent."),
    "sent": (("sent",), "Only sent items."),
    "cancelled": (("cancelled",), "Only cancelled items."),
}
_WARNINGS: Final = {
    "left": "still blocked by other redact_… settings: use those, or --force to use only yours",
    "blocked": "see kp-middleware outbox --blocked",
    STILL_SENT: "not requeued: no longer clears the gate, or cannot be redacted",
}


@click.group(cls=options.DefaultGroup, default="list")
def outbox() -> None:
    """List and manage the runs queued for the registry.

    \b
    kp-middleware outbox --failed            rejected and blocked items, with reasons
    kp-middleware outbox show 1339 --diff    compare with the local copy
    kp-middleware outbox retry --failed      retry all failed items
    kp-middleware outbox send                send all queued runs
    kp-middleware outbox cancel 1339         do not send this run
    """


@outbox.command("list")
@options.limit()
@options.bundled(
    "states",
    _KINDS,
    lambda **typed: [state for kind in typed if typed[kind] for state in _KINDS[kind][0]],
    [click.option(f"--{kind}", is_flag=True, help=text) for kind, (_, text) in _KINDS.items()],
)
@options.output_options()
@options.pass_db
def list_(db: Path, *, limit: int, output: Output, states: list[str]) -> None:
    """List the outbox, newest first. You can combine flags.

    \b
    kp-middleware outbox list --pending
    """
    with History.open(db) as history:
        items, count = history.outbox(limit=limit, states=states), history.count_outbox(states)
        obstacles = find_obstacles(history.backlog(), db)
    now, rows = instant(time.time()), []
    for item in items:
        reason = item.reason
        if item.state == "sending" and (item.claimed_until or "") > now:
            reason = BEING_SENT.format(item.claimed_until)
        elif item.state in _WAITING:
            reason = item.last_error or obstacles.problem_at(item.registry)
        rows.append({**item._asdict(), "reason": reason})

    def humanize(row: console.Row) -> console.Row:
        return {**row, "id": short_id(row["id"]), "redactions": in_words(row["redactions"])}

    output.print(
        rows,
        ("id", "state", "attempts", "size_bytes", "redactions", "objective", "reason"),
        humanize=humanize,
    )
    for sentence in obstacles.in_words():
        console.warn(sentence)
    console.hint_at_limit(count, limit, len(rows))


@outbox.command()
@options.trace_id()
@click.option("--diff", is_flag=True, help="Show a diff with the local copy.")
@options.pass_db
def show(db: Path, *, trace_id: str, diff: bool) -> None:
    """Print the exact bytes that are or were sent.

    Escapes control characters on a terminal. ID is an id prefix, @last or @best.

    \b
    kp-middleware outbox show @last --diff
    """
    with History.open(db) as history:
        entry = history.outbox_entry(history.find(trace_id))
    if entry.body is None:
        why = outbox_reason_text(entry.reason)
        raise click.ClickException(f"nothing would be sent: {entry.state}: {why}")
    if diff:
        local, sent = (
            json.dumps(json.loads(body), ensure_ascii=False, indent=2).splitlines()
            for body in (entry.document, entry.body)
        )
        lines = difflib.unified_diff(local, sent, "local", "sent", lineterm="")
        click.echo("\n".join(map(printable, lines)))
    elif sys.stdout.isatty():
        click.echo(console.escaped(entry.body.decode()))
    else:
        sys.stdout.buffer.write(entry.body)


@outbox.command()
@options.trace_id(metavar="[ID]", required=False)
@click.option("--failed", is_flag=True, help="All rejected and blocked items.")
@click.option("--sent", is_flag=True, help="With --force: all sent items.")
@click.option(
    "--force",
    is_flag=True,
    help="Requeue sent items too. Redact unsent items with your settings only.",
)
@options.json_option
@options.pass_db
def retry(db: Path, *, trace_id: str | None, failed: bool, sent: bool, force: bool) -> None:
    """Requeue rejected, blocked or cancelled items.

    The next program that records sends them. Also retries a refused API key. Redacts every item
    again, with the program's settings and yours; items blocked under other redact_… settings stay
    blocked. Exits with 6 if anything is blocked.

    --force redacts with your settings only. It also requeues sent items, in case the registry lost
    them: as they were sent, redacted once more with your settings. To requeue only the lost ones,
    use outbox reconcile.

    \b
    kp-middleware outbox retry --failed
    kp-middleware outbox retry --sent --force
    """
    if (trace_id is not None) + failed + sent != 1:
        raise click.UsageError("pass one ID, --failed or --sent")
    if sent and not force:
        raise click.UsageError("--sent needs --force")
    with _editing(db, retry_keys=True) as (admin, history):
        if sum(map(lift_stops, locations.pacing_files(db))):
            console.warn("retrying the refused API key")
        states = ("sent",) if sent else _FAILED
        seqs = admin.seqs(*states) if trace_id is None else [history.find(trace_id)]
        results = _retried(db, admin, seqs, force=force)
    _report(results)


@outbox.command()
@options.trace_id("trace_ids", metavar="ID...", nargs=-1, required=True)
@options.json_option
@options.pass_db
def cancel(db: Path, *, trace_ids: tuple[str, ...]) -> None:
    """Cancel queued runs; retry requeues them.

    They stay in the file. Runs that were sent, or are being sent, cannot be cancelled.

    \b
    kp-middleware outbox cancel @last
    kp-middleware outbox cancel 1339c0 a1b2c3
    """
    with _editing(db) as (admin, history):
        states = {seq: admin.entry(seq).state for seq in map(history.find, trace_ids)}
        now = time.time()
        done = ["cancelled" if admin.cancel(seq, now) else state for seq, state in states.items()]
    _report(done)
    if {*done} != {"cancelled"}:
        raise click.ClickException("runs that were sent, or are being sent, cannot be cancelled")


@outbox.command()
@click.option("--force", is_flag=True, help="Redact with your settings only, not the program's.")
@options.json_option
@options.pass_db
def rescan(db: Path, *, force: bool) -> None:
    """Redact unsent items again with the current rules.

    Rewrites, releases or blocks each item. If an item was prepared with other redact_… settings,
    yours are applied in addition. Skips sent items. Exits with 6 if anything is blocked.

    \b
    kp-middleware config set redact_deny Bluebird && kp-middleware outbox rescan
    """
    from kp_middleware.pipeline import Rescan

    with _editing(db) as (admin, _):
        results = [*Rescan(admin, options.read_settings(db)).rescan_all(alone=force).values()]
    _report(results)


@outbox.command()
@click.option(
    "--timeout", type=options.NumberRange(0), default=300, metavar="SECONDS", help="Default: 300 s."
)
@options.json_option
@options.pass_db
def send(db: Path, *, timeout: float) -> None:
    """Send all queued runs, at the registry's rate limit.

    Needs KP_API_KEY, but no running program. Shares the rate limit with programs that are sending,
    and never sends a run twice. Stops early if sending is paused for much longer than --timeout.
    Exits with 3 and the reason if any runs remain. Runs recorded without a key are queued by the
    next program that records with one.

    \b
    kp-middleware outbox send
    kp-middleware outbox send --timeout 3600
    """
    counts, reasons = Counter[str](), list[str]()
    with closing(options.open_to_write(db)) as file:
        admin, history, runs = OutboxAdmin(file), History(file), SharedRuns(file)
        if seqs := admin.seqs(*_WAITING):
            from kp_middleware.pipeline import drain, sync_shared_outbox

            for sending in find_obstacles(history.backlog(), db).sending:
                hint(sending.in_words())
            with Progress("sent") as bar, _shared_log() as shared:

                def update_bar() -> None:
                    if shared is not None:
                        with suppress(SharedLogError):  # the sender reports it
                            sync_shared_outbox(shared, runs)
                    bar.update(max(0, len(seqs) - history.count_outbox(_WAITING)), len(seqs))

                trouble = drain(options.read_settings(db), timeout_s=timeout, on_tick=update_bar)
                update_bar()
                paces = () if shared is None else shared_paces(shared)
            counts = Counter(admin.states(seqs))
            counts["left"] = sum(counts.pop(state, 0) for state in _WAITING)
            reasons = [] if trouble is None else [trouble]
            if counts["left"]:
                obstacles = find_obstacles(history.backlog(), db, paces)
                reasons += obstacles.in_words()
                reasons = reasons or [
                    *(sending.in_words() for sending in obstacles.sending),
                    "timed out: raise --timeout, or let the next program send the rest",
                ]
    console.print_result(counts, in_words(counts) or "nothing is queued")
    for reason in reasons:
        console.warn(printable(reason))
    if counts.total() > counts["sent"]:
        sys.exit(ATTENTION)


@outbox.command("reconcile")
@click.option("--send", is_flag=True, help="Requeue missing runs.")
@options.json_option
@options.pass_db
def reconcile_(db: Path, *, send: bool) -> None:
    """Compare sent runs with your agent's runs in the registry, in one request.

    Needs KP_API_KEY and KP_AGENT_ID. Requeued runs are sent by the next program that records.

    \b
    kp-middleware outbox reconcile
    kp-middleware outbox reconcile --send
    """
    from kp_middleware.pipeline import reconcile

    with closing(options.open_to_write(db)) as file:
        admin = OutboxAdmin(file)
        report = reconcile(options.read_settings(db), admin)
        queued = _retried(db, admin, report.missing, force=True) if send else []
    parts = [f"{report.there:,} stored", f"{len(report.missing):,} missing"]
    if report.unknown:
        parts.append(f"{report.unknown:,} not sent from this file")
    if report.of_others:
        parts.append(f"{report.of_others:,} sent under another agent id, not compared")
    text = f"{report.registry}, agent {report.agent_id}: {', '.join(parts)}"
    missing = {"missing": len(report.missing), "queued": Counter(queued)}
    console.print_result(report._asdict() | missing, text)
    if queued and not console.has_flag("as_json"):
        _report(queued)
    elif report.missing and not queued:
        hint("--send requeues the missing runs")


def _retried(db: Path, admin: OutboxAdmin, seqs: Sequence[int], *, force: bool) -> list[str]:
    if not seqs:
        return []

    from kp_middleware.pipeline import Rescan

    rescan = Rescan(admin, options.read_settings(db))
    return [rescan.retry(seq, force=force) for seq in seqs]


@contextmanager
def _shared_log() -> Iterator[Link | None]:
    url = options.shared_url()
    with nullcontext() if url is None else closing(Link(url, "outbox")) as link:
        yield link


@contextmanager
def _editing(db: Path, *, retry_keys: bool = False) -> Iterator[tuple[OutboxAdmin, History]]:
    """Yield the outbox for editing, then withdraw edited items from the shared log."""
    with closing(options.open_to_write(db)) as file, _shared_log() as link:
        runs = SharedRuns(file)
        if link is not None:
            from kp_middleware.pipeline import sync_shared_outbox

            with suppress(KnowledgePulseError):  # raised again below
                sync_shared_outbox(link, runs)  # another host may have sent some
        yield OutboxAdmin(file), History(file)
        if link is not None:
            try:
                if retry_keys and link.lift_stops():
                    console.warn("retrying the refused API key on all hosts")
                sync_shared_outbox(link, runs)
            except KnowledgePulseError as error:
                raise click.ClickException(f"changed here; {_MAY_BE_SENT}: {error}") from error
        if left := len(runs.to_withdraw(_NO_LIMIT)):
            why = "being sent" if link else "KP_SHARED is not set here"
            raise click.ClickException(f"changed here; {left:,} {_MAY_BE_SENT}: {why}")


def _report(results: Sequence[str]) -> None:
    counts = Counter(results)
    console.print_result(counts, in_words(counts) or "nothing to do")
    warnings = [warning for state, warning in _WARNINGS.items() if counts[state]]
    for warning in warnings:
        console.warn(warning)
    if warnings:
        sys.exit(BLOCKED)
