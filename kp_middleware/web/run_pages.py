"""Pages of several runs: the list, a comparison step by step, a conversation."""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from kp_middleware.instants import instant
from kp_middleware.storage import SORTS, STATES, Filters, Run, RunSummary
from kp_middleware.views.explanation import Pair, compared
from kp_middleware.views.prices import read_prices
from kp_middleware.views.trace import view_step
from kp_middleware.views.wording import (
    OUTCOMES,
    cell,
    counted,
    duration,
    minute,
    one_line,
    outcome,
    shortened,
    signed,
)
from kp_middleware.web.marks import Links, Table, TableRow, render

if TYPE_CHECKING:
    from kp_middleware.web.plugin import PageRequest

_PAGE_SIZE: Final = 50
_MAX_COUNTED: Final = 1_000
_TITLE: Final = 140
_AGES: Final[dict[str, str]] = {"1d": "day", "7d": "7 days", "30d": "30 days", "90d": "90 days"}
_FILTER_TEXTS: Final = {
    "domain": "{}",
    "outcome": "{}",
    "state": "state {}",
    "tool": "tool {}",
    "failing": "{} failed in it",
    "error": "ended by {}",
    "model": "model {}",
    "agent": "agent {}",
    "thread": "one conversation",
    "min_score": "score {} or more",
    "max_score": "score below {}",
    "since": "since {}",
    "until": "before {}",
    "cleared": "forwarded by the gate",
    "queued": "in the outbox",
    "text": "with “{}”",
}
"""Descriptions of the filters; the parameter of ``text`` is ``q``."""
_COLUMNS: Final = {**{name: name for name in SORTS}, "took": "duration"}  # with their orders


Values: TypeAlias = dict[str, object]
"""The values that a template reads."""

Pieces: TypeAlias = list[tuple[str, bool]]
"""A text in pieces, each with whether it differs from the other run."""


class Page(NamedTuple):
    """The contents of the frame; empty parts are not shown."""

    title: str
    content: str = ""
    heading: str = ""
    lead: str = ""
    related: Mapping[str, str | None] = MappingProxyType({})
    status: int = 200
    notice: str = ""


class Query(NamedTuple):
    """The filters and order of the runs page; ``sort`` is empty for best match first."""

    given: Mapping[str, str]
    filters: Filters
    sort: str
    descending: bool
    after: str | None

    @classmethod
    def from_args(cls, args: Mapping[str, str]) -> Self:
        """Parse query parameters; ignore invalid ones."""
        given = {name: text.strip() for name, text in args.items() if text.strip()}
        typed = given | {"text": given.get("q", "")}
        values = {name: _value(name, typed.get(name, "")) for name in _FILTER_TEXTS}
        read = {name: value for name, value in values.items() if value is not None}
        sort = given.get("sort", "")
        if sort not in SORTS:
            sort = "" if "text" in read else "started"
        kept = {*read, "q", "asc", "sort" if given.get("sort") == sort else ""}
        left = {name: text for name, text in given.items() if name in kept}
        return cls(left, Filters(**read), sort, "asc" not in given, given.get("after"))

    def changed(self, **changes: str) -> dict[str, str]:
        return {name: value for name, value in {**self.given, **changes}.items() if value}

    def in_words(self) -> Iterator[str]:
        for name, words in _FILTER_TEXTS.items():
            if value := self.given.get("q" if name == "text" else name):
                is_age = name == "since" and value in _AGES
                yield f"of the last {_AGES[value]}" if is_age else words.format(value)


def _value(name: str, text: str) -> Any:
    match name:
        case "outcome":
            return text if text in OUTCOMES else None
        case "state":
            return text if text in STATES else None
        case "min_score" | "max_score":
            with suppress(ValueError):
                return min(1.0, max(0.0, float(text)))
            return None
        case "since" | "until" if text in _AGES:
            return instant(time.time() - int(text[:-1]) * 86_400)
        case "since" | "until":
            return text if len(text) >= len("2026-11-01") and text[:4].isdecimal() else None
        case "cleared" | "queued":
            return True if text else None
        case _:
            return text or None


def run_rows(
    runs: Iterable[RunSummary], links: Links, costs: Mapping[int, str] = MappingProxyType({})
) -> list[Values]:
    """Return the runs as formatted table rows; unknown values are empty."""
    return [
        {
            "seq": run.seq,
            "title": shortened(run.objective, _TITLE),
            "href": links.trace(run.id),
            "outcome": outcome(run.known_success),
            "score": "" if run.score is None else f"{run.score:.3f}",
            "novelty": "" if run.novelty is None else f"{run.novelty:.2f}",
            "took": "" if run.duration_ms is None else duration(run.duration_ms),
            "tokens": "" if run.tokens is None else f"{run.tokens:,}",
            "cost": costs.get(run.seq, ""),
            "steps": f"{run.step_count:,}",
            "started": minute(run.started_at),
            "domain": run.domain,
            "pod": run.pod or "",
            "state": run.state,
            # every second piece is a match
            "snippet": re.split("[\x02\x03]", run.snippet or ""),
        }
        for run in runs
    ]


def runs(request: "PageRequest") -> Page:
    history, links, prices = request.history, request.links, read_prices()
    query = Query.from_args(request.args)
    history.marks = "\x02", "\x03"
    total = history.count_runs(query.filters, most=_MAX_COUNTED)
    if query.sort:
        order: Any = {"sort": query.sort, "descending": query.descending, "after": query.after}
        runs, after = history.page(query.filters, limit=_PAGE_SIZE, **order)
    else:
        skipped = int(query.after or "") if re.fullmatch("[0-9]{1,6}", query.after or "") else 0
        runs = history.runs(query.filters, limit=_PAGE_SIZE + 1, skip=skipped)
        after = f"{skipped + _PAGE_SIZE}" if len(runs) > _PAGE_SIZE else None
        runs = runs[:_PAGE_SIZE]
    known = prices.costs(history, [run.seq for run in runs])
    costs = {seq: prices.in_words(cost) for seq, cost in known.items()}
    heads = {}
    for name, sort in _COLUMNS.items():
        is_now, down = query.sort == sort, query.descending
        swapped = query.changed(sort=sort, asc="1" if is_now and down else "")
        arrow = "↓" if is_now and down else "↑" if is_now else ""
        heads[name] = {"href": links.runs(**swapped), "arrow": arrow}
    content = render(
        "runs.html",
        lead=_lead(query, total),
        rows=run_rows(runs, links, costs),
        heads=heads,
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
    return Page("Runs", content, "Runs", notice=prices.problem)


def _lead(query: Query, total: int) -> str:
    if not total:
        words = ", ".join(query.in_words())
        return f"No run matches: {words}." if words else "No runs recorded yet."
    runs = counted(total, "run") if total <= _MAX_COUNTED else f"More than {_MAX_COUNTED:,} runs"
    order = "best match first"
    if query.sort == "started":
        order = "newest first" if query.descending else "oldest first"
    elif query.sort:
        order = f"by {query.sort}, {'descending' if query.descending else 'ascending'}"
    return f"{', '.join([runs, *query.in_words()])}; {order}."


_SHOWN_ELSEWHERE: Final = {"id", "objective", "domain", "started_at", "success", "threshold"}
"""Facts shown in the headings or in the gate's description."""
_MAX_STEPS: Final = 400
_MIN_RATIO: Final = 0.5  # below it, the whole line differs
_WORD: Final = re.compile(r"\w+\s*|\W\s*")


def compare(request: "PageRequest") -> Page:
    history, links = request.history, request.links
    names = [request.args.get(side, "") for side in ("left", "right")]
    left, right = (history.run(history.find(name)) for name in names)
    comparison = compared(left, right)
    facts = []
    for name, value in comparison.left.items():
        values = value, comparison.right[name]
        if name not in _SHOWN_ELSEWHERE and values != (None, None):
            label = name.removesuffix("_ms").replace("_", " ")
            label = label if values[0] == values[1] else f"{label} ≠"
            facts.append(TableRow((label, *(_cell_text(name, value) for value in values))))
    scores = []
    for part in comparison.scores:
        amounts = (_cell_text("score", amount) for amount in (part.left, part.right))
        difference = "" if part.difference is None else signed(part.difference)
        scores.append(TableRow((part.part.replace("_", " "), *amounts, difference)))
    titles = [
        {
            "title": shortened(run.objective, _TITLE),
            "href": links.trace(run.id),
            "facts": [run.domain, f"{minute(run.started_at)} UTC", outcome(run.known_success)],
        }
        for run in (left, right)
    ]
    content = render(
        "compare.html",
        titles=titles,
        facts=Table(("", "Left", "Right"), facts),
        scores=Table(("Part", "Left", "Right", "Difference"), scores),
        steps=[_row(pair, (left, right)) for pair in comparison.steps[:_MAX_STEPS]],
        left_out=max(0, len(comparison.steps) - _MAX_STEPS),
        swapped=links.to("/compare", left=right.id, right=left.id),
    )
    return Page("Compare", content, "Two runs")


def conversation(request: "PageRequest") -> Page:
    history, links, filters = request.history, request.links, Filters(thread=request.name)
    found = history.page(filters, limit=100, sort="started", descending=False)
    turns = []
    for run in (history.run(listed.seq) for listed in found.runs):
        facts = [] if run.duration_ms is None else [duration(run.duration_ms)]
        facts += [] if run.score is None else [f"score {run.score:.3f}"]
        href, ending = links.trace(run.id), outcome(run.known_success)
        turns.append({"run": run, "href": href, "outcome": ending, "facts": facts})
    content = render("conversation.html", turns=turns, is_cut=found.next is not None)
    return Page("Conversation", content, "Conversation", one_line(request.name))


def _cell_text(name: str, value: Any) -> str:
    return shortened(cell(value, name) or "–", _TITLE)


def _row(pair: Pair, runs: tuple[Run, Run]) -> Values:
    steps = [step and view_step(run, step) for run, step in zip(runs, pair, strict=True)]
    texts = []
    for step in steps:
        text = "\n".join(filter(None, (step.content, step.input, step.output))) if step else ""
        texts.append([line[:400] for line in text.splitlines()[:60]])
    if None in steps:
        alone = [[("\n".join(lines), False)] for lines in texts]
        return {"sides": [*zip(steps, alone, strict=True)], "is_equal": False}
    pieces = _diff(*texts)
    is_equal = not any(differs for side in pieces for _, differs in side)
    return {"sides": [*zip(steps, pieces, strict=True)], "is_equal": is_equal}


def _diff(left: Sequence[str], right: Sequence[str]) -> tuple[Pieces, Pieces]:
    sides: tuple[Pieces, Pieces] = ([], [])
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for lines in zip_longest(left[a:b], right[c:d], fillvalue=""):
            both = [[(lines[0], False)]] * 2 if tag == "equal" else _word_diff(*lines)
            for side, line, pieces in zip(sides, lines, both, strict=True):
                if line or tag == "equal":
                    side.extend([*pieces, ("\n", False)])
    return sides


def _word_diff(left: str, right: str) -> tuple[Pieces, Pieces]:
    ours, theirs = _WORD.findall(left), _WORD.findall(right)
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.quick_ratio() < _MIN_RATIO or matcher.ratio() < _MIN_RATIO:
        return [(left, True)], [(right, True)]
    codes = matcher.get_opcodes()
    return (
        [("".join(ours[a:b]), tag != "equal") for tag, a, b, _, _ in codes if a < b],
        [("".join(theirs[c:d]), tag != "equal") for tag, _, _, c, d in codes if c < d],
    )
