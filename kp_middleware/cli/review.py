"""The ``review`` command: a person judges one run after another, by one key each."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from kp_middleware.cli.console import drawn, indented, plain, screen_width, show
from kp_middleware.cli.options import filter_options, limit_option
from kp_middleware.cli.rows import json_option, print_json
from kp_middleware.cli.run_text import run_parts
from kp_middleware.cli.user_settings import (
    hint_at_another_gate,
    open_to_write,
    pass_db,
    read_settings,
)
from kp_middleware.storage import Filters, History, ReviewItem, SqliteStore
from kp_middleware.views.successes import p_in_words
from kp_middleware.views.trace import delivery_status, listed_state
from kp_middleware.views.wording import cut, minute, one_line, short_id

_KEYS: Final = "did it succeed?  y yes  n no  s skip  o open  q quit "
_NEEDS_KEYS: Final = (
    "review needs a terminal: use --json here, and answer with"
    " kp-middleware feedback ID --success or --failure"
)
_NOTHING: Final = "nothing to review: the outcome of every recent scored run is known"
_ANSWERS: Final = {"y": True, "n": False}
_QUIT: Final = frozenset("q\x04\x1b")


@click.command()
@limit_option(10)
@filter_options
@json_option
@pass_db
def review(db: Path, *, limit: int, filters: Filters, as_json: bool) -> None:
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
    if as_json:
        print_json([asdict(item) for item in items])
        return
    if not items:
        click.echo(_NOTHING)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(_NEEDS_KEYS)
    answered: Counter[bool] = Counter()
    try:
        _ask_all(db, items, answered)
    finally:
        told = f"{answered[True]} yes, {answered[False]} no"
        click.echo(f"\n{answered.total()} answered: {told}" if answered else "\nnothing answered")


def _ask_all(db: Path, items: Sequence[ReviewItem], answered: Counter[bool]) -> None:
    from kp_middleware.pipeline import Feedback, Reevaluation

    settings = read_settings(db)
    with closing(open_to_write(db)) as file:
        history = History(file)
        hint_at_another_gate(history, settings)
        reevaluation = Reevaluation.of(SqliteStore(file), settings)
        for number, item in enumerate(items, 1):
            seq = history.find(item.trace_id)
            state = listed_state(history.run(seq))
            _show(item, f"{number} of {len(items)}", state)
            key = _key(history, seq)
            if key in _QUIT:
                return
            if key in _ANSWERS:
                told = Feedback(item.trace_id, _ANSWERS[key], None, time.time())
                reevaluation.learn(told)
                answered[_ANSWERS[key]] += 1
                click.echo(f"→ {one_line(delivery_status(history.run(seq)))}")


def _show(item: ReviewItem, place: str, state: str) -> None:
    width = screen_width()
    score = "" if item.score is None else f"  score {item.score:.3f}"
    passed = f"it passed the gate ({state})"
    asked = {"forwarded": passed, "uncertain": "its outcome is not known"}[item.why]
    if item.p_success is not None:
        asked += f"; P(success) {p_in_words(item.p_success, item.p_reasons)}"
    facts = (short_id(item.trace_id), item.domain, f"{minute(item.started_at)} UTC{score}")
    way = [indented(cut(one_line(line), width - 4), "    ") for line in item.way]
    show(
        "",
        plain(cut(f"{place}  {'  '.join(map(one_line, facts))}", width)),
        indented(asked, "why     "),
        indented(cut(one_line(item.objective), 3 * width), "asked   "),
        *way,
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
        if key == "o":
            whole = run_parts(history.run(seq), steps=None, width=screen_width())
            click.echo(drawn(*whole))
        elif key == "s" or key in _ANSWERS or key in _QUIT:
            return key
