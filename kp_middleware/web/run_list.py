"""Runs as rows of a table; the page of runs: its filters in words, and a table that sorts."""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from markupsafe import Markup

from kp_middleware.instants import instant
from kp_middleware.storage import SORTS, STATES, Filters, History, RunSummary
from kp_middleware.views.prices import Prices
from kp_middleware.views.wording import OUTCOMES, counted, duration, minute, outcome, shortened
from kp_middleware.web.databases import Addresses
from kp_middleware.web.marks import Links, render

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
