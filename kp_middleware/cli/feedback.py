"""The commands ``review``, ``feedback`` and ``rescore``."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware import storage
from kp_middleware.cli import console, options
from kp_middleware.cli.console import hint, indented, render, safe_text, screen_width
from kp_middleware.cli.run_text import render_run
from kp_middleware.core.gates import SettingsGate
from kp_middleware.errors import EmbedderUnavailableError
from kp_middleware.views.gate import p_in_words
from kp_middleware.views.trace import delivery_status, listed_state
from kp_middleware.views.wording import cell, cut, minute, one_line, outcome, short_id

if TYPE_CHECKING:
    from kp_middleware.pipeline import Reevaluation

_NEEDS_KEYS: Final = (
    "review needs a terminal: use --json here, and answer with"
    " kp-middleware feedback ID --success or --failure"
)
_ANSWERS: Final = {"y": True, "n": False}
_QUIT_KEYS: Final = frozenset("q\x04\x1b")
_COUNTS: Final = {
    "changed": "changed",
    "unchanged": "unchanged",
    "cleared": "clear now",
    "queued": "queued",
    "withdrawn": "no longer clear",
    "cancelled": "cancelled in the outbox",
    "left": "left in the outbox: sent, being sent or rejected",
    "overtaken": "removed or recorded again in the meantime",
    "unscored": "cannot be scored",
    "embedded": "embedded",
}


@click.command()
@options.limit(10)
@options.filters
@options.json_option
@options.pass_db
def review(db: Path, *, limit: int, filters: storage.Filters) -> None:
    """Review runs, with one key each: did it succeed?

    Asks about recent runs whose success is unknown, or only the agent's own word: first those that
    were or would be sent, then those with the least certain estimate, which are at least half of
    the list.

    Each answer counts as feedback and rescores the run at once, as kp-middleware feedback does. y:
    succeeded; n: failed; s: skip; o: show the whole run; q or Ctrl-C: stop and keep the answers. In
    Python: kp.review_queue().

    \b
    kp-middleware review
    kp-middleware review -n 20 -d code --since 7d
    kp-middleware review --json
    """
    with storage.History.open(db) as history:
        items = history.to_review(filters, limit=limit)
    if not items or console.has_flag("as_json"):
        empty = "nothing to review: the outcome of every recent scored run is known"
        console.print_result([asdict(item) for item in items], empty)
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(_NEEDS_KEYS)
    else:
        answered: Counter[bool] = Counter()
        try:
            _prompt_each(db, items, answered)
        finally:
            summary = f"{answered.total()} answered: {answered[True]} yes, {answered[False]} no"
            click.echo(f"\n{summary if answered else 'no answers'}")


def _prompt_each(db: Path, items: Sequence[storage.ReviewItem], answered: Counter[bool]) -> None:
    from kp_middleware.pipeline import Feedback

    with _reevaluation(db) as (history, reevaluation):
        for number, item in enumerate(items, 1):
            seq = history.find(item.trace_id)
            state = listed_state(history.run(seq))
            click.echo(_question(item, f"{number} of {len(items)}", state), nl=False)
            key = _read_key(history, seq)
            if key in _QUIT_KEYS:
                return
            if key in _ANSWERS:
                success = _ANSWERS[key]
                reevaluation.apply(Feedback(item.trace_id, success, None, time.time()))
                answered[success] += 1
                click.echo(f"→ {one_line(delivery_status(history.run(seq)))}")


@contextmanager
def _reevaluation(db: Path) -> Iterator[tuple[storage.History, "Reevaluation"]]:
    from kp_middleware.pipeline import Reevaluation

    settings = options.read_settings(db)
    with closing(options.open_to_write(db)) as file:
        history = storage.History(file)
        yield history, Reevaluation.from_settings(storage.SqliteStore(file), settings)


def _question(item: storage.ReviewItem, position: str, state: str) -> str:
    width = screen_width()
    score = "" if item.score is None else f"  score {item.score:.3f}"
    reason = "its outcome is unknown" if item.why == "uncertain" else f"passed the gate ({state})"
    if item.p_success is not None:
        reason += f"; P(success) {p_in_words(item.p_success, item.p_reasons)}"
    started = f"{minute(item.started_at)} UTC{score}"
    facts = (position, short_id(item.trace_id), item.domain, started)
    return render(
        "",
        safe_text(cut("  ".join(map(one_line, facts)), width)),
        indented(reason, "why     "),
        indented(cut(one_line(item.objective), 3 * width), "task    "),
        *(indented(cut(one_line(line), width - 4), "    ") for line in item.way),
        indented(cut(one_line(item.result), 4 * width) or "(nothing)", "result  "),
    )


def _read_key(history: storage.History, seq: int) -> str:
    while True:
        click.echo("did it succeed?  y yes  n no  s skip  o open  q quit ", nl=False)
        try:
            key = click.getchar().lower()
        except EOFError:
            key = "q"
        click.echo(key if key.isprintable() else "")
        if key == "s" or key in _ANSWERS or key in _QUIT_KEYS:
            return key
        if key == "o":
            console.print_rich(*render_run(history.run(seq), steps=None, width=screen_width()))


@click.command()
@options.domain
@options.since
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@options.json_option
@options.pass_db
def rescore(db: Path, *, domain: str | None, since: str | None, dry_run: bool) -> None:
    """Rescore stored runs after changing settings.

    Uses the model, weights, cache and threshold in your settings. Each run is compared with those
    recorded before it. Sent runs keep their score. Queued runs that no longer
    clear are cancelled; runs that clear now are queued. Sends nothing.

    Runs in a shared log keep their decisions: only --dry-run works on them.

    Programs may keep recording. After Ctrl-C, run the same command to start over; no text is
    embedded twice. Do not run two at once.

    \b
    kp-middleware rescore --dry-run
    kp-middleware rescore --since 30d --domain code
    """
    counts, scored, unread, took_s = Counter[str](), 0, list[str](), 0.0
    opened = storage.Database(db, read_only=True) if dry_run else options.open_to_write(db)
    with closing(opened) as file:
        if not dry_run and storage.SharedRuns(file).appended(0, 1):
            raise click.ClickException("runs here are in the shared log: use --dry-run")
        if storage.PastRuns(file, domain=domain, since=since).count(after=0):
            from kp_middleware.embedding import shared_embedder
            from kp_middleware.pipeline import Rescoring

            settings = options.read_settings(db)
            gate = storage.History(file).last_decisions().gate
            if gate not in {"", settings.gate.name}:  # by a keyword of the recording program
                remedy = ": set KP_THRESHOLD to match" if SettingsGate.named(gate) else ""
                hint(f"uses {settings.gate.name}, but the last run used {gate}{remedy}")
            embedder = shared_embedder(settings.embedder)
            try:
                options.wait_for_model(embedder)
                store = storage.SqliteStore(file)
                rescoring = Rescoring(
                    store, settings, embedder, domain=domain, since=since, dry_run=dry_run
                )
            except EmbedderUnavailableError as error:
                raise click.ClickException(f"nothing was changed: {error}") from error
            began_s, total = time.monotonic(), rescoring.remaining()
            steps = console.progress(rescoring.steps(), total, label="runs rescored", size=int)
            try:
                scored = sum(steps)
            except KeyboardInterrupt:
                hint("stopped: run the same command to start again")
                raise
            took_s = time.monotonic() - began_s
            counts, unread = Counter(rescoring.counts), rescoring.unread
    parts = [f"{counts[name]:,} {label}" for name, label in _COUNTS.items() if counts[name]]
    pace = f"in {took_s:.1f} s, {scored / max(took_s, 1e-3):,.0f} a second"
    words = f"{scored:,} {'would be ' if dry_run else ''}rescored {pace}: {', '.join(parts)}"
    totals = {name: counts[name] for name in _COUNTS} | {"took_s": round(took_s, 3)}
    result = {"dry_run": dry_run, "scored": scored, **totals}
    console.print_result(result, words if scored else "nothing to rescore")
    if unread:
        skipped = f"{len(unread):,} runs cannot be read and were skipped"
        console.warn(f"{skipped}; the first is {short_id(unread[0])}")


@click.command()
@options.trace_id()
@click.option("--success/--failure", default=None, help="Whether the task succeeded.")
@click.option("--confidence", type=options.UNIT, help="Confidence in the outcome, 0 to 1.")
@options.json_option
@options.pass_db
def feedback(db: Path, *, trace_id: str, success: bool | None, confidence: float | None) -> None:
    """Report a run's actual outcome, and rescore it.

    Applies the run's threshold, or your configured one if the program used a custom gate. The next
    program that records sends a run that now clears; a queued run that clears stays queued. Sent
    runs are not resent.

    ID is an id prefix, @last or @best. In Python: kp.feedback.

    \b
    kp-middleware feedback 1339c0 --success --confidence 0.9
    kp-middleware feedback @last --failure
    """
    if success is None and confidence is None:
        raise click.UsageError("give --success or --failure, --confidence, or both")
    from kp_middleware.pipeline import Feedback

    with _reevaluation(db) as (history, reevaluation):
        before = history.run(seq := history.find(trace_id))
        gate = before.scoring and before.scoring.gate
        if gate and SettingsGate.named(gate) is None:
            used = options.read_settings(db).gate.name
            hint(f"uses {used}, because {gate} is a custom gate of the program that recorded it")
        changed = reevaluation.apply(Feedback(before.id, success, confidence, time.time()))
        after = history.run(seq)
    sides, status = {"before": _facts(before), "after": _facts(after)}, delivery_status(after)
    shown = [_facts(run) | {"success": outcome(run.known_success)} for run in (before, after)]
    lines = [after.id]
    for name in ("success", "confidence", "score", "decision"):
        values = dict.fromkeys(cell(facts[name], name) or "none" for facts in shown)
        lines.append(f"{name:<12}{' → '.join(values)}")
    result = {"id": after.id, "changed": changed, **sides, "delivery_status": status}
    console.print_result(result, "\n".join([*lines, f"→ {one_line(status)}"]))
    if not changed:
        hint("nothing changed: this outcome was already recorded")
    elif after.outbox and after.outbox.state == "pending":
        hint("the next program that records sends it")


def _facts(run: storage.Run) -> dict[str, Any]:
    return {
        "success": run.success,
        "confidence": run.confidence,
        "score": run.score,
        "decision": run.scoring and run.scoring.decision,
        "outbox": run.outbox and run.outbox.state,
    }
