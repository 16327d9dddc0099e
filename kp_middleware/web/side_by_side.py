"""Several runs on one page: two compared step by step, and all of one conversation."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

from markupsafe import Markup

from kp_middleware.storage import Filters, History, Run
from kp_middleware.views.comparison import Fact, Pair, Part, compared
from kp_middleware.views.trace import StepView, view_step
from kp_middleware.views.wording import duration, minute, outcome, shortened, signed
from kp_middleware.web.databases import Addresses
from kp_middleware.web.marks import Table, TableRow, render

_ELSEWHERE: Final = {"id", "objective", "domain", "started_at", "success", "threshold"}
"""In the headings, or in words in the gate."""
_TITLE: Final = 140
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
        return _marked(left), _marked(right)
    pieces: tuple[list[tuple[str, bool]], ...] = ([], [])
    for tag, a, b, c, d in matcher.get_opcodes():
        for side, words in zip(pieces, (ours[a:b], theirs[c:d]), strict=True):
            if words:
                side.append(("".join(words), tag != "equal"))
    mine, yours = (((*side, ("\n", False)) if side else ()) for side in pieces)
    return mine, yours


def _marked(line: str) -> Pieces:
    return ((f"{line}\n", True),) if line else ()
