"""Runs from the spans of a trace, whoever kept them, by the reader that records live spans.

The rows of a trace are gathered in an unnamed file of this process alone: they are not redacted.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

from kp_middleware.imports._run import Book, SourceRun
from kp_middleware.imports._values import written
from kp_middleware.spans.fields import Fields, arguments, fields, name, parsed, text
from kp_middleware.spans.held_span import (
    ROOTS,
    HeldSpan,
    Kind,
    Problem,
    Reading,
    Scope,
    model_reading,
    roots_in,
    split,
)
from kp_middleware.spans.messages import (
    last_text,
    messages_in,
    said_in,
)

_SAYS_IT: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
_ANSWERS: Final = ("output", "answer", "result", "response", "generation", "summary", "text")
_DEEPEST: Final = 100  # a span that is deeper is taken for its parent's sibling
_NOBODY: Final = Scope("")
_MOST_SPANS: Final = 20_000
_MOST_CHARACTERS: Final = 32 << 20


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


def gathered(
    values: Iterable[object],
    book: Book,
    *,
    trace: Callable[[Fields], str | None],
    order: Callable[[Fields], str],
) -> Iterator[tuple[str, list[Fields]]]:
    """Yield each trace with its rows in order; rows beyond 20,000, or 32 MB, of one are skipped."""
    with closing(sqlite3.connect("")) as file:  # SQLite removes it at the end, however that comes
        file.execute("CREATE TABLE rows (trace TEXT, place TEXT, body TEXT)")
        for value in values:
            row = fields(value)
            key = trace(row)
            if key is None:
                book.skip("unknown_type")
                continue
            file.execute("INSERT INTO rows VALUES (?, ?, ?)", (key, name(order(row)), written(row)))
        file.execute("CREATE INDEX by_trace ON rows (trace, place)")
        traces = file.execute("SELECT trace FROM rows GROUP BY trace ORDER BY min(rowid)")
        for (key,) in traces:
            yield key, [*_rows(file, key, book)]


def _rows(file: sqlite3.Connection, key: str, book: Book) -> Iterator[Fields]:
    found = file.execute("SELECT body FROM rows WHERE trace = ? ORDER BY place, rowid", (key,))
    characters = 0
    for count, (body,) in enumerate(found):
        characters += len(body)
        if count >= _MOST_SPANS or characters > _MOST_CHARACTERS:
            book.skip("too_long")
        else:
            yield json.loads(body)


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
    if len(roots) == 1 and roots[0].kind in ROOTS:
        root = roots[0]
    else:
        ends = [span.ended_s for span in held.values() if span.ended_s is not None]
        start_s = tops[0].started_s
        root = HeldSpan("", None, 0, _NOBODY, tops[0].name, "agent", start_s)
        root.ended_s, root.read = max(ends, default=start_s), lambda: Reading("agent")
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
        end_s = start_s if span.end_s is None and span.start_s is None else span.end_s
        held[key] = HeldSpan(
            key, None, count, span.scope, span.name, span.kind, start_s, end_s, read=span.read
        )
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
        asked, said = messages_in(given, "user"), messages_in(output, "assistant")
        reading = model_reading(asked, said, model, *used)
        return reading._replace(problem=problem, conversation=conversation)
    if kind in {"tool", "retriever"}:
        return _tool_reading(kind, named, given, output)._replace(problem=problem)
    people = [said for said in messages_in(given, "user") if said.role == "user" and said.texts]
    answers = [said for said in messages_in(output, "assistant") if said.role == "assistant"]
    return Reading(
        kind,
        named if kind == "agent" else "",
        answer=last_text(answers) or _by_key(output, _ANSWERS) or None,
        complete=True if output is not None else None,
        task=people[-1].texts[-1] if people else _by_key(given, _SAYS_IT),
        problem=problem,
        conversation=conversation,
    )


def _tool_reading(kind: Kind, named: str, given: Any, output: Any) -> Reading:
    if [*fields(given)] == ["input"]:
        given = given["input"]
    result = parsed(fields(output).get("output", output))
    reading = Reading(kind, named, given=arguments(given), result=result)
    message = said_in(result, "tool")
    if message is None or not message.results or not fields(result).keys() & {"content", "lc"}:
        return reading
    one = message.results[0]
    return reading._replace(call_id=one.call_id, result=one.output, failed=one.failed)


def _problem(error: str) -> Problem:
    """Return an error that was written as ``ValueError('…')Traceback …``."""
    said = text(error).partition("Traceback (most recent call last)")[0].strip() or "Error"
    kind, bracket, rest = said.partition("(")
    if bracket and rest.endswith(")") and kind.isidentifier():
        message = rest[:-1].strip("'\"")
        return Problem(kind, message, message)
    kind, colon, rest = said.partition(": ")
    return (
        Problem(kind, rest, rest) if colon and kind.isidentifier() else Problem("Error", said, said)
    )


def _by_key(value: object, keys: tuple[str, ...]) -> str:
    found = fields(value)
    only = found.values() if len(found) == 1 else ()
    texts = (value, *map(found.get, keys), *only)
    return next((said for one in texts if (said := text(one))), "")


def named(row: Fields) -> str:
    return name(row.get("name")) or "(unnamed)"


def either(row: Fields, key: str) -> Any:
    """Return a field by its name in camel case, or in snake case."""
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in key)
    value = row.get(snake)
    return row.get(key) if value is None else value
