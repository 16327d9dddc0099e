"""Runs from the spans of a trace, whoever kept them, by the reader that records live spans."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kp_middleware.imports._run import Book, SourceRun
from kp_middleware.spans import (
    ROOTS,
    Fields,
    HeldSpan,
    Kind,
    Problem,
    Reading,
    Scope,
    arguments,
    asked_in,
    fields,
    last_text,
    messages_in,
    name,
    parsed,
    results_in,
    roots_in,
    said_in,
    split,
    text,
    turn_of,
)

_SAYS_IT: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
_ANSWERS: Final = ("output", "answer", "result", "response", "generation", "summary", "text")
_DEEPEST: Final = 100  # a span that is deeper is taken for its parent's sibling
_NOBODY: Final = Scope("")


class SourceSpan(NamedTuple):
    """One span of a source, with what tells its contents when asked; times are epoch seconds."""

    id: str | None
    parent: str | None
    name: str
    kind: Kind | None
    start_s: float | None
    end_s: float | None
    read: Callable[[], Reading]
    scope: Scope = _NOBODY


def run_of(
    trace: str, spans: list[SourceSpan], book: Book, *, success: bool | None
) -> Iterator[SourceRun]:
    """Yield the run of a trace that is one run, whatever its outermost spans are."""
    held = _held(spans, book)
    tops = _linked(spans, held)
    if not tops:
        return
    outermost = {span.id for span in spans if span.parent is None and span.kind in ROOTS}
    roots = [top for top in tops if top.id in outermost] or [top for top in tops if top.inside]
    root = roots[0] if len(roots) == 1 and roots[0].kind in ROOTS else None
    if root is None:
        root = HeldSpan("", None, 0, _NOBODY, tops[0].name, "agent", tops[0].started_s)
        ends = [span.ended_s for span in held.values() if span.ended_s is not None]
        root.end("agent", lambda: Reading("agent"), max(ends, default=root.started_s), 0)
    for top in tops:
        if top is not root:
            top.parent, root.inside[top.id] = root, top
    root.kind = "agent"
    yield from _replayed(book.begin(trace), root, book, success=success)


def runs_of(trace: str, spans: list[SourceSpan], book: Book) -> Iterator[SourceRun]:
    """Yield the runs of a trace: one for each outermost agent in it."""
    tops = _linked(spans, _held(spans, book))
    roots = [run for top in tops for root in roots_in(top) for run in split(root)]
    runs = [root for root in roots if not root.is_bracket()]
    if not runs:
        book.skip("no_agent")
    for root in runs:
        yield from _replayed(book.begin(f"{trace}:{root.id}"), root, book)


def _replayed(
    run: SourceRun, root: HeldSpan, book: Book, *, success: bool | None = None
) -> Iterator[SourceRun]:
    run.success = success
    if run.replay(root):
        yield run
    else:
        book.skip("no_content")


def _held(spans: list[SourceSpan], book: Book) -> dict[int | str, HeldSpan]:
    """Return the spans by id; of those with the same id the last one counts."""
    starts = (span.start_s for span in spans if span.start_s is not None)
    first_s = next(starts, book.at_s or 0.0)
    held: dict[int | str, HeldSpan] = {}
    for count, span in enumerate(spans):
        start_s = first_s if span.start_s is None else span.start_s
        key = span.id or f"#{count}"
        one = held[key] = HeldSpan(key, None, count, span.scope, span.name, span.kind, start_s)
        one.read = span.read
        if span.end_s is not None or span.start_s is None:
            one.end(span.kind, span.read, start_s if span.end_s is None else span.end_s, 0)
    return held


def _linked(spans: list[SourceSpan], held: dict[int | str, HeldSpan]) -> list[HeldSpan]:
    """Put each span into that around it, and return the outermost; parents may go in a circle."""
    children: defaultdict[int | str | None, list[int | str]] = defaultdict(list)
    for span in spans:
        if span.id is not None:
            children[span.parent if span.parent in held else None].append(span.id)
    tops: list[HeldSpan] = []
    depths: dict[int | str, int] = {}
    for top in (*children[None], *held):
        if top in depths:
            continue
        tops.append(held[top])
        depths[top], found = 0, [top]
        for around in found:
            for inner in children[around]:
                if inner not in depths:
                    found.append(inner)
                    depths[inner] = min(depths[around] + 1, _DEEPEST)
                    is_deep = depths[around] == _DEEPEST
                    parent = held[around].parent if is_deep else held[around]
                    if parent is not None:
                        held[inner].parent, parent.inside[inner] = parent, held[inner]
    return tops


def reading_of(
    kind: Kind,
    named: str,
    given: Any,
    output: Any,
    *,
    model: str | None = None,
    used: tuple[object, object] = (None, None),
    error: str | None = None,
    conversation: str | None = None,
) -> Reading:
    """Return what a span tells by its input and its output, as a tracing service keeps them."""
    problem = None if error is None else _problem(error)
    if kind == "model":
        asked = messages_in(given, "user")
        turn = turn_of(messages_in(output, "assistant"), model, *used)
        return Reading(
            kind,
            turn.model or "",
            turn,
            asked_in(asked),
            results_in(asked),
            problem=problem,
            conversation=conversation,
        )
    if kind in {"tool", "retriever"}:
        asked_for, result = fields(given), parsed(fields(output).get("output", output))
        message = said_in(result, "tool")
        answers = message.results if message is not None else ()
        one = answers[0] if answers and fields(result).keys() & {"content", "lc"} else None
        return Reading(
            kind,
            named,
            call_id=None if one is None else one.call_id,
            given=arguments(asked_for["input"] if [*asked_for] == ["input"] else given),
            result=result if one is None else one.output,
            failed=one is not None and one.failed,
            problem=problem,
        )
    people = [said for said in messages_in(given, "user") if said.role == "user" and said.texts]
    return Reading(
        kind,
        named if kind == "agent" else "",
        answer=last_text(
            [said for said in messages_in(output, "assistant") if said.role == "assistant"]
        )
        or _by_key(output, _ANSWERS)
        or None,
        complete=True if output is not None else None,
        task=people[-1].texts[-1] if people else _by_key(given, _SAYS_IT),
        problem=problem,
        conversation=conversation,
    )


def _problem(error: str) -> Problem:
    """Return an error that was written as ``ValueError('…')Traceback …``."""
    said = text(error).partition("Traceback (most recent call last)")[0].strip() or "Error"
    kind, _, rest = said.partition("(")
    if rest.endswith(")") and kind.isidentifier():
        message = rest[:-1].strip("'\"")
        return Problem(kind, message, message)
    head, colon, rest = said.partition(": ")
    if colon and head.isidentifier():
        return Problem(head, rest, rest)
    return Problem("Error", said, said)


def _by_key(value: object, keys: tuple[str, ...]) -> str:
    found: Fields = fields(value)
    only = [*found.values()] if len(found) == 1 else []
    texts = (value, *(found.get(key) for key in keys), *only)
    return next((said for one in texts if (said := text(one))), "")


def named(row: Fields) -> str:
    """Return the name of a row."""
    return name(row.get("name")) or "(unnamed)"
