"""Several runs on one page: a list, two compared step by step, and all of one conversation."""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from markupsafe import Markup

from kp_middleware.instants import instant
from kp_middleware.storage import SORTS, STATES, Filters, History, Run, RunSummary
from kp_middleware.views.explanation import Fact, Pair, Part, compared
from kp_middleware.views.prices import Prices
from kp_middleware.views.steps import StepView, view_step
from kp_middleware.views.wording import (
    OUTCOMES,
    counted,
    duration,
    minute,
    outcome,
    shortened,
    signed,
)
from kp_middleware.web.databases import Addresses
from kp_middleware.web.marks import Links, Table, TableRow, render

A_PAGE: Final = 50
COUNTED: Final = 1_000
_TITLE: Final = 140
_DAY_S: Final = 86_400
_AGES: Final[dict[str, str]] = {"1d": "day", "7d": "7 days", "30d": "30 days", "90d": "90 days"}
_TEXTS: Final = {
    "domain": "{}",
    "outcome": "{}",
    "state": "state {}",
    "tool": "tool {}",
    "failing": "{} failed in it",
    "error": "ended by {}",
    "model": "model {}",
    "agent": "agent {}",
    "thread": "one conversation",
}
_SAID: Final = {
    **_TEXTS,
    "min_score": "score {} or more",
    "max_score": "score below {}",
    "since": "since {}",
    "until": "before {}",
    "cleared": "forwarded by the gate",
    "queued": "in the outbox",
    "q": "with “{}”",
}
_COLUMNS: Final = (
    *("score", "novelty", "took", "tokens", "steps", "started", "domain", "outcome", "state"),
)
_ORDERS: Final = {  # from the highest, and from the lowest
    "started": ("the newest first", "the oldest first"),
    "duration": ("the slowest first", "the fastest first"),
    "domain": ("domains from Z to A", "domains from A to Z"),
    "outcome": ("by outcome, the succeeded first", "by outcome, the failed first"),
    "state": ("states from Z to A", "states from A to Z"),
}


@dataclass(frozen=True, slots=True)
class Query:
    """The filters and the order in an address; ``sort`` is empty for the best match first."""

    given: Mapping[str, str]
    filters: Filters
    sort: str
    descending: bool
    after: str | None

    @classmethod
    def of(cls, args: Mapping[str, str]) -> Self:
        """Read the parameters of an address; those that make no sense are ignored."""
        given = {name: args[name].strip() for name in args}
        known = {name: given[name] for name in _TEXTS if given.get(name)}
        if known.get("outcome") not in OUTCOMES:
            known.pop("outcome", None)
        if known.get("state") not in STATES:
            known.pop("state", None)
        scores = {name: _fraction(given.get(name)) for name in ("min_score", "max_score")}
        times = {name: _instant(given.get(name, "")) for name in ("since", "until")}
        flags = {name: True for name in ("cleared", "queued") if given.get(name)}
        text = given.get("q") or None
        filters = Filters(**known, **scores, **times, **flags, text=text)  # type: ignore[arg-type]
        sort = given.get("sort", "")
        if sort not in SORTS:
            sort = "" if text else "started"
        said = {name for name, value in (scores | times).items() if value is not None}
        kept = {*known, *said, *flags, *(["q"] if text else []), "asc"}
        left = {name: value for name, value in given.items() if value and name in kept}
        if given.get("sort") == sort:
            left["sort"] = sort
        return cls(left, filters, sort, not given.get("asc"), given.get("after") or None)

    def changed(self, **changes: str) -> dict[str, str]:
        """Return the parameters with some of them changed; an empty one is left out."""
        return {name: value for name, value in {**self.given, **changes}.items() if value}

    def in_words(self) -> Iterator[str]:
        """Yield each filter in words."""
        for name, words in _SAID.items():
            if value := self.given.get(name):
                is_age = name == "since" and value in _AGES
                yield f"of the last {_AGES[value]}" if is_age else words.format(value)


class Head(NamedTuple):
    """How a column sorts; ``arrow`` says which way it does now, empty if it does not."""

    href: str
    arrow: str


class RunRow(NamedTuple):
    """A run as a row of a table, in words; what is not known is empty."""

    seq: int
    title: str
    href: str | None
    outcome: str
    score: str
    novelty: str
    took: str
    tokens: str
    cost: str
    steps: str
    started: str
    domain: str
    state: str
    snippet: tuple[tuple[str, bool], ...]


def run_rows(
    runs: Iterable[RunSummary], links: Links, costs: Mapping[int, str] = MappingProxyType({})
) -> tuple[RunRow, ...]:
    """Return runs as rows, with their costs in words."""
    return tuple(
        RunRow(
            seq=run.seq,
            title=shortened(run.objective, _TITLE),
            href=links.trace(run.id),
            outcome=outcome(run.known_success),
            score="" if run.score is None else f"{run.score:.3f}",
            novelty="" if run.novelty is None else f"{run.novelty:.2f}",
            took="" if run.duration_ms is None else duration(run.duration_ms),
            tokens="" if run.tokens is None else f"{run.tokens:,}",
            cost=costs.get(run.seq, ""),
            steps=f"{run.step_count:,}",
            started=minute(run.started_at),
            domain=run.domain,
            state=run.state,
            snippet=(*_marked(run.snippet or ""),),
        )
        for run in runs
    )


def runs_html(history: History, query: Query, links: Addresses, prices: Prices) -> Markup:
    """Render one page of the runs that were asked for."""
    history.marks = "\x02", "\x03"
    total = history.count_runs(query.filters, most=COUNTED)
    if query.sort:
        found = history.page(
            query.filters,
            limit=A_PAGE,
            sort=query.sort,
            descending=query.descending,
            after=query.after,
        )
        runs, after = found.runs, found.next
    else:
        skipped = int(query.after or "") if re.fullmatch("[0-9]{1,6}", query.after or "") else 0
        runs = history.runs(query.filters, limit=A_PAGE + 1, skip=skipped)
        after = f"{skipped + A_PAGE}" if len(runs) > A_PAGE else None
        runs = runs[:A_PAGE]
    known = prices.costs(history, [run.seq for run in runs])
    costs = {seq: prices.in_words(cost) for seq, cost in known.items()}
    return render(
        "runs.html",
        lead=_lead(query, total),
        rows=run_rows(runs, links, costs),
        heads={
            name: _head("duration" if name == "took" else name, query, links) for name in _COLUMNS
        },
        given=defaultdict(str, query.given),
        choices=history.choices(),
        action=links.runs(),
        is_filtered=any(True for _ in query.in_words()),
        more=None if after is None else links.runs(**query.changed(after=after)),
        first=links.runs(**query.given) if query.after else None,
        states=STATES,
        ages=_AGES,
        outcomes=OUTCOMES,
    )


def _marked(snippet: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a snippet, and whether each was searched for."""
    for place, piece in enumerate(re.split("[\x02\x03]", snippet)):
        if piece:
            yield piece, place % 2 == 1


def _head(name: str, query: Query, links: Addresses) -> Head:
    is_now = query.sort == name
    turned = query.changed(sort=name, asc="1" if is_now and query.descending else "")
    arrow = ("↓" if query.descending else "↑") if is_now else ""
    return Head(links.runs(**turned), arrow)


def _lead(query: Query, total: int) -> str:
    if not total:
        words = ", ".join(query.in_words())
        return f"No run matches: {words}." if words else "Nothing is recorded yet."
    runs = counted(total, "run") if total <= COUNTED else f"More than {COUNTED:,} runs"
    highest = _ORDERS.get(query.sort, ("the highest first", "the lowest first"))
    order = highest[not query.descending] if query.sort else "the best match first"
    by = f" by {query.sort}," if query.sort in SORTS.keys() - _ORDERS.keys() else ""
    return f"{', '.join([runs, *query.in_words()])};{by} {order}."


def _fraction(text: str | None) -> float | None:
    try:
        return min(1.0, max(0.0, float(text))) if text else None
    except ValueError:
        return None


def _instant(text: str) -> str | None:
    """Return a day as an instant, and an age as that long ago."""
    if text in _AGES:
        return instant(time.time() - int(text[:-1]) * _DAY_S)
    return text if len(text) >= len("2026-11-01") and text[:4].isdecimal() else None


_ELSEWHERE: Final = {"id", "objective", "domain", "started_at", "success", "threshold"}
"""In the headings, or in words in the gate."""
_CELL: Final = 120
_LINES: Final = 60  # of one step
_LINE: Final = 400
_MOST_STEPS: Final = 400
_MOST_RUNS: Final = 100
_ALIKE: Final = 0.5  # with less in common, all of a line differs
_WORD: Final = re.compile(r"\w+\s*|\W\s*")


Pieces: TypeAlias = tuple[tuple[str, bool], ...]
"""A text in pieces, each with whether the other run has another."""


class Side(NamedTuple):
    """A step of one of the runs."""

    step: StepView
    pieces: Pieces


class StepRow(NamedTuple):
    """Two steps that belong together, or one that only one run has."""

    left: Side | None
    right: Side | None
    is_equal: bool


class Title(NamedTuple):
    """A run as a heading."""

    title: str
    href: str
    facts: tuple[str, ...]


class Turn(NamedTuple):
    """One run of a conversation."""

    asked: str
    result: str
    href: str
    outcome: str
    facts: tuple[str, ...]


def compare_html(left: Run, right: Run, links: Addresses) -> Markup:
    """Render two runs side by side, with their steps aligned."""
    comparison = compared(left, right)
    pairs = comparison.steps
    return render(
        "compare.html",
        left=_title(left, links),
        right=_title(right, links),
        facts=Table(
            ("", "Left", "Right"),
            tuple(
                _fact(fact)
                for fact in comparison.facts
                if fact.fact not in _ELSEWHERE and (fact.left, fact.right) != (None, None)
            ),
        ),
        scores=Table(("Part", "Left", "Right", "Difference"), (*map(_part, comparison.scores),)),
        steps=[_row(pair, left, right) for pair in pairs[:_MOST_STEPS]],
        left_out=max(0, len(pairs) - _MOST_STEPS),
        turned=links.compare(right.id, left.id),
    )


def conversation_html(history: History, thread: str, links: Addresses) -> Markup:
    """Render the runs of a conversation, from the first to the last."""
    filters = Filters(thread=thread)
    found = history.page(filters, limit=_MOST_RUNS, sort="started", descending=False)
    turns = [_turn(history.run(one.seq), links) for one in found.runs]
    return render("conversation.html", turns=turns, is_cut=found.next is not None)


def _title(run: Run, links: Addresses) -> Title:
    facts = [run.domain, f"{minute(run.started_at)} UTC", outcome(run.known_success)]
    return Title(shortened(run.objective, _TITLE), links.trace(run.id), tuple(facts))


def _turn(run: Run, links: Addresses) -> Turn:
    facts = [f"{minute(run.started_at)} UTC"]
    if run.duration_ms is not None:
        facts.append(duration(run.duration_ms))
    if run.score is not None:
        facts.append(f"score {run.score:.3f}")
    result = run.result_summary or ""
    return Turn(run.objective, result, links.trace(run.id), outcome(run.known_success), (*facts,))


def _fact(fact: Fact) -> TableRow:
    cells = (_cell(fact.fact, fact.left), _cell(fact.fact, fact.right))
    name = fact.fact.removesuffix("_ms").replace("_", " ")
    return TableRow((name if fact.left == fact.right else f"{name} ≠", *cells))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "duration_ms":
        return duration(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return shortened(str(value), _CELL)


def _part(part: Part) -> TableRow:
    amounts = ("–" if one is None else f"{one:.3f}" for one in (part.left, part.right))
    difference = "" if part.difference is None else signed(part.difference)
    return TableRow((part.part.replace("_", " "), *amounts, difference))


def _row(pair: Pair, left: Run, right: Run) -> StepRow:
    ours, theirs = _step(left, pair.left), _step(right, pair.right)
    if ours is None or theirs is None:
        return StepRow(_alone(ours), _alone(theirs), is_equal=False)
    lines = [*_diff(_lines(ours), _lines(theirs))]
    pieces = [tuple(piece for line in side for piece in line) for side in zip(*lines, strict=True)]
    mine, yours = pieces or ((), ())
    return StepRow(Side(ours, mine), Side(theirs, yours), not any(it for _, it in mine + yours))


def _alone(step: StepView | None) -> Side | None:
    return None if step is None else Side(step, (("\n".join(_lines(step)), False),))


def _step(run: Run, number: int | None) -> StepView | None:
    return next((view_step(run, step) for step in run.steps if step.number == number), None)


def _lines(view: StepView) -> Sequence[str]:
    text = "\n".join(part for part in (view.content, view.input, view.output) if part)
    return [line[:_LINE] for line in text.splitlines()[:_LINES]]


def _diff(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[Pieces, Pieces]]:
    """Yield the lines of both beside each other, in pieces that differ or do not."""
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for ours, theirs in zip_longest(left[a:b], right[c:d], fillvalue=""):
            if tag == "equal":
                yield ((f"{ours}\n", False),), ((f"{theirs}\n", False),)
            else:
                yield _words(ours, theirs)


def _words(left: str, right: str) -> tuple[Pieces, Pieces]:
    """Return two lines in pieces: the words in which they differ, and the others."""
    ours, theirs = _WORD.findall(left), _WORD.findall(right)
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.quick_ratio() < _ALIKE or matcher.ratio() < _ALIKE:
        return _differing(left), _differing(right)
    pieces: tuple[list[tuple[str, bool]], ...] = ([], [])
    for tag, a, b, c, d in matcher.get_opcodes():
        for side, words in zip(pieces, (ours[a:b], theirs[c:d]), strict=True):
            if words:
                side.append(("".join(words), tag != "equal"))
    mine, yours = (((*side, ("\n", False)) if side else ()) for side in pieces)
    return mine, yours


def _differing(line: str) -> Pieces:
    return ((f"{line}\n", True),) if line else ()
