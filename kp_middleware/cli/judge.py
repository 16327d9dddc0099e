"""The commands that judge runs: review and feedback by a person, rescore by new settings."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli import console, options
from kp_middleware.cli.console import cell, drawn, hint, indented, plain, screen_width
from kp_middleware.cli.run_text import run_parts
from kp_middleware.errors import EmbedderUnavailableError
from kp_middleware.storage import (
    Database,
    Filters,
    History,
    PastRuns,
    ReviewItem,
    Run,
    SharedRuns,
    SqliteStore,
)
from kp_middleware.views.gate import p_in_words
from kp_middleware.views.trace import delivery_status, listed_state
from kp_middleware.views.wording import cut, minute, one_line, outcome, short_id

if TYPE_CHECKING:
    from kp_middleware.pipeline import Reevaluation
    from kp_middleware.settings import Settings

_KEYS: Final = "did it succeed?  y yes  n no  s skip  o open  q quit "
_NEEDS_KEYS: Final = (
    "review needs a terminal: use --json here, and answer with"
    " kp-middleware feedback ID --success or --failure"
)
_ANSWERS: Final = {"y": True, "n": False}
_QUIT: Final = frozenset("q\x04\x1b")
_COUNTS: Final = {
    "changed": "changed",
    "unchanged": "unchanged",
    "cleared": "clear now",
    "queued": "queued",
    "withdrawn": "no longer clear",
    "cancelled": "cancelled in the outbox",
    "left": "left in the outbox: sent, being sent or rejected",
    "overtaken": "removed or recorded again meanwhile",
    "unscored": "cannot be scored",
    "embedded": "embedded",
}


@click.command()
@options.limit(10)
@options.filters
@options.json_option
@options.pass_db
def review(db: Path, *, limit: int, filters: Filters) -> None:
    """Judge runs, one key each: did it succeed?

    Asks about recent runs whose outcome nobody knows: first those that were or would be sent, then
    those whose estimate is least certain, which get at least half of the places.

    An answer is feedback, as by kp-middleware feedback: the run is rescored at once. y: succeeded;
    n: failed; s: skip; o: show all of it; q or Ctrl-C: stop, and keep the answers. In Python:
    kp.review_queue().

    \b
    kp-middleware review
    kp-middleware review -n 20 -d code --since 7d
    kp-middleware review --json
    """
    with History.open(db) as history:
        items = history.to_review(filters, limit=limit)
    if not items or console.has_flag("as_json"):
        nothing = "nothing to review: the outcome of every recent scored run is known"
        console.answer([asdict(item) for item in items], nothing)
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(_NEEDS_KEYS)
    else:
        answered: Counter[bool] = Counter()
        try:
            _ask_all(db, items, answered)
        finally:
            told = f"{answered.total()} answered: {answered[True]} yes, {answered[False]} no"
            click.echo(f"\n{told if answered else 'nothing answered'}")


def _ask_all(db: Path, items: Sequence[ReviewItem], answered: Counter[bool]) -> None:
    from kp_middleware.pipeline import Feedback

    with _learning(db) as (history, reevaluation):
        for number, item in enumerate(items, 1):
            seq = history.find(item.trace_id)
            state = listed_state(history.run(seq))
            click.echo(_question(item, f"{number} of {len(items)}", state), nl=False)
            key = _key(history, seq)
            if key in _QUIT:
                return
            if key in _ANSWERS:
                reevaluation.apply(Feedback(item.trace_id, _ANSWERS[key], None, time.time()))
                answered[_ANSWERS[key]] += 1
                click.echo(f"→ {one_line(delivery_status(history.run(seq)))}")


@contextmanager
def _learning(db: Path) -> Iterator[tuple[History, "Reevaluation"]]:
    from kp_middleware.pipeline import Reevaluation

    settings = options.read_settings(db)
    with closing(options.open_to_write(db)) as file:
        history = History(file)
        _hint_at_another_gate(history, settings)
        yield history, Reevaluation.from_settings(SqliteStore(file), settings)


def _hint_at_another_gate(history: History, settings: "Settings") -> None:
    """Say so if the program that recorded had another gate: its keywords are unknown here."""
    theirs, ours = history.last_decisions().gate, settings.gate.name
    if theirs and theirs != ours:
        hint(f"uses {ours}, but the last run was decided by {theirs}: set KP_THRESHOLD to match")


def _question(item: ReviewItem, place: str, state: str) -> str:
    width = screen_width()
    score = "" if item.score is None else f"  score {item.score:.3f}"
    why = "its outcome is not known" if item.why == "uncertain" else f"it passed the gate ({state})"
    if item.p_success is not None:
        why += f"; P(success) {p_in_words(item.p_success, item.p_reasons)}"
    facts = (place, short_id(item.trace_id), item.domain, f"{minute(item.started_at)} UTC{score}")
    return drawn(
        "",
        plain(cut("  ".join(map(one_line, facts)), width)),
        indented(why, "why     "),
        indented(cut(one_line(item.objective), 3 * width), "asked   "),
        *(indented(cut(one_line(line), width - 4), "    ") for line in item.way),
        indented(cut(one_line(item.result), 4 * width) or "(nothing)", "result  "),
    )


def _key(history: History, seq: int) -> str:
    while True:
        click.echo(_KEYS, nl=False)
        try:
            key = click.getchar().lower()
        except EOFError:
            key = "q"
        click.echo(key if key.isprintable() else "")
        if key == "s" or key in _ANSWERS or key in _QUIT:
            return key
        if key == "o":
            console.show(*run_parts(history.run(seq), steps=None, width=screen_width()))


@click.command()
@options.domain
@options.since
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@options.json_option
@options.pass_db
def rescore(db: Path, *, domain: str | None, since: str | None, dry_run: bool) -> None:
    """Rescore stored runs after changing settings.

    Uses the model, weights, cache and threshold of the command line's settings. Each run is
    compared with those recorded before it. Sent runs keep their score. Queued runs that no longer
    clear are cancelled; runs that clear now are queued. Sends nothing.

    Runs that several hosts share keep their decisions: only --dry-run works on them.

    Programs may keep recording. After Ctrl-C, run the same command to start again; no text is
    embedded twice. Run one at a time.

    \b
    kp-middleware rescore --dry-run
    kp-middleware rescore --since 30d --domain code
    """
    counts, scored, unread, took_s = Counter[str](), 0, list[str](), 0.0
    with closing(Database(db, read_only=True) if dry_run else options.open_to_write(db)) as file:
        if not dry_run and SharedRuns(file).appended(0, 1):
            raise click.ClickException("runs here are in the shared log: use --dry-run")
        if PastRuns(file, domain=domain, since=since).count(after=0):  # which needs no settings
            from kp_middleware.embedding import shared_embedder
            from kp_middleware.pipeline import Rescoring

            settings = options.read_settings(db)
            _hint_at_another_gate(History(file), settings)
            embedder = shared_embedder(settings.embedder)
            try:
                options.wait_for_model(embedder)
                store = SqliteStore(file)
                rescoring = Rescoring(
                    store, settings, embedder, domain=domain, since=since, dry_run=dry_run
                )
            except EmbedderUnavailableError as error:
                raise click.ClickException(f"nothing was changed: {error}") from error
            began_s, total = time.monotonic(), rescoring.remaining()
            steps = console.progress(rescoring.steps(), total=total, what="runs rescored", size=int)
            try:
                scored = sum(steps)
            except KeyboardInterrupt:
                hint("stopped: the same command starts again")
                raise
            took_s = time.monotonic() - began_s
            counts, unread = Counter(rescoring.counts), rescoring.unread
    named = ", ".join(f"{counts[one]:,} {words}" for one, words in _COUNTS.items() if counts[one])
    pace = f"in {took_s:.1f} s, {scored / max(took_s, 1e-3):,.0f} a second"
    words = f"{scored:,} {'would be ' if dry_run else ''}rescored {pace}: {named}"
    told = {name: counts[name] for name in _COUNTS} | {"took_s": round(took_s, 3)}
    found = {"dry_run": dry_run, "scored": scored, **told}
    console.answer(found, words if scored else "nothing to rescore")
    if unread:
        left = f"{len(unread):,} runs cannot be read and are left alone"
        console.warn(f"{left}: the first is {short_id(unread[0])}")


@click.command()
@options.trace_id()
@click.option("--success/--failure", default=None, help="Whether the task succeeded.")
@click.option("--confidence", type=options.UNIT, help="Your confidence in that, 0 to 1.")
@options.json_option
@options.pass_db
def feedback(db: Path, *, trace_id: str, success: bool | None, confidence: float | None) -> None:
    """Report a run's actual outcome, and rescore it.

    Uses the command line's settings, not a gate passed in your program. A run that now clears is
    sent by the next program that records; a queued run stays queued. Sent runs are not resent.

    ID is an id prefix, @last or @best. In Python: kp.feedback.

    \b
    kp-middleware feedback 1339c0 --success --confidence 0.9
    kp-middleware feedback @last --failure
    """
    if success is None and confidence is None:
        raise click.UsageError("give --success or --failure, --confidence, or both")
    from kp_middleware.pipeline import Feedback

    with _learning(db) as (history, reevaluation):
        before = history.run(seq := history.find(trace_id))
        is_news = reevaluation.apply(Feedback(before.id, success, confidence, time.time()))
        after = history.run(seq)
    facts = {"before": _facts(before), "after": _facts(after)}
    status = delivery_status(after)
    old, new = (_facts(run) | {"success": outcome(run.known_success)} for run in (before, after))
    words = [after.id]
    for name in ("success", "confidence", "score", "decision"):
        was, is_now = (cell(one[name], name) or "none" for one in (old, new))
        words.append(f"{name:<12}{is_now if was == is_now else f'{was} → {is_now}'}")
    words.append(f"→ {one_line(status)}")
    found = {"id": after.id, "changed": is_news, **facts, "delivery_status": status}
    console.answer(found, "\n".join(words))
    if not is_news:
        hint("nothing changed: this was known")
    elif after.outbox and after.outbox.state == "pending":
        hint("the next program that records sends it")


def _facts(run: Run) -> dict[str, Any]:
    return {
        "success": run.success,
        "confidence": run.confidence,
        "score": run.score,
        "decision": run.scoring and run.scoring.decision,
        "outbox": run.outbox and run.outbox.state,
    }
