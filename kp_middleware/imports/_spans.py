"""Runs from spans in files, by the reader that records live spans; and OpenTelemetry's own spans.

The rows of a trace are gathered in an unnamed file of this process alone: they are not redacted.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.imports._run import Book, SourceRun
from kp_middleware.imports._values import written
from kp_middleware.spans.dialects import kind_of, read
from kp_middleware.spans.fields import Fields, fields, listed, name, objects, text, time_s
from kp_middleware.spans.held_span import (
    ROOTS,
    Event,
    HeldSpan,
    Kind,
    Reading,
    Scope,
    roots_in,
    split,
)

_DEEPEST: Final = 100  # a span that is deeper is taken for its parent's sibling
_DEEPEST_VALUE: Final = 16
_MOST_SPANS: Final = 20_000
_MOST_CHARACTERS: Final = 32 << 20
_RESOURCES: Final = ("resourceSpans", "resource_spans", "batches")
_SCOPES: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_FAILED: Final = (2, "2", "ERROR", "STATUS_CODE_ERROR")

Names: TypeAlias = tuple[str, ...]
Told: TypeAlias = tuple[Kind | None, Callable[[], Reading]]
"""The kind of a span, and what tells its contents when asked."""


class SpanFormat(NamedTuple):
    """The names of a span's fields, for `field`, and what tells the rest of a row."""

    tell: Callable[[Fields], Told]
    trace: Names
    parent: Names
    order: Names
    start: Names = ("start_time",)
    end: Names = ("end_time",)
    id: Names = ("id",)


def field(row: Fields, names: Names, read: Callable[[object], Any] = lambda value: value) -> Any:
    """Return the first of these fields that tells something; a dot leads into an object."""
    for one in names:
        outer, _, inner = one.partition(".")
        value = read(fields(row.get(outer)).get(inner) if inner else row.get(outer))
        if value is not None and value != "":
            return value
    return None


def named(row: Fields) -> str:
    return name(row.get("name")) or "(unnamed)"


def gathered(
    values: Iterable[object], format_: SpanFormat, book: Book
) -> Iterator[tuple[str, list[Fields]]]:
    """Yield each trace with its rows in order; rows beyond 20,000, or 32 MB, of one are skipped."""
    with closing(sqlite3.connect("")) as file:  # SQLite removes it at the end, however that comes
        file.execute("CREATE TABLE rows (trace TEXT, place TEXT, body TEXT)")
        for value in values:
            row = fields(value)
            key, place = field(row, format_.trace, name), field(row, format_.order, _place)
            if key is None:
                book.skip("unknown_type")
                continue
            file.execute("INSERT INTO rows VALUES (?, ?, ?)", (key, place, written(row)))
        file.execute("CREATE INDEX by_trace ON rows (trace, place)")
        traces = file.execute("SELECT trace FROM rows GROUP BY trace ORDER BY min(rowid)")
        for (key,) in traces:
            yield key, [*_rows(file, key, book)]


def _place(value: object) -> str | None:
    """Return what the spans of a trace are sorted by: a text, or a time in nanoseconds as one."""
    place = str(value) if type(value) is int else text(value)
    return name(place.zfill(20) if place.isdecimal() else place)


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
    trace: str,
    rows: list[Fields],
    format_: SpanFormat,
    book: Book,
    *,
    success: bool | None,
) -> Iterator[SourceRun]:
    """Yield the run of a trace that is one run, whatever its outermost spans are."""
    tops = _trees(rows, format_, book)
    if not tops:
        return
    outermost = {
        field(row, format_.id, name) for row in rows if field(row, format_.parent, name) is None
    }
    roots = [top for top in tops if top.id in outermost and top.kind in ROOTS]
    roots = roots or [top for top in tops if top.inside]
    if len(roots) == 1 and roots[0].kind in ROOTS:
        root = roots[0]
    else:
        start_s = tops[0].started_s
        ends = (one.ended_s for top in tops for one in top.all() if one.ended_s is not None)
        root = HeldSpan("", None, 0, tops[0].scope, tops[0].name, "agent", start_s)
        root.ended_s, root.read = max(ends, default=start_s), partial(Reading, "agent")
    for top in tops:
        if top is not root:
            top.parent, root.inside[top.id] = root, top
    root.kind = "agent"
    yield from _replayed(book.begin(trace), root, book, success=success)


def _replayed(
    run: SourceRun, root: HeldSpan, book: Book, *, success: bool | None = None
) -> Iterator[SourceRun]:
    run.success = success
    if run.replay(root):
        yield run
    else:
        book.skip("no_content")


def _trees(rows: list[Fields], format_: SpanFormat, book: Book) -> list[HeldSpan]:
    """Return the outermost spans; of spans with the same id the last one counts."""
    starts = [_at_s(field(row, format_.start)) for row in rows]
    first_s = next((at_s for at_s in starts if at_s is not None), book.at_s or 0.0)
    held: dict[int | str, HeldSpan] = {}
    parents: dict[int | str, str | None] = {}
    for count, (row, start_s) in enumerate(zip(rows, starts, strict=True)):
        id, end_s = field(row, format_.id, name), _at_s(field(row, format_.end))
        kind, reading = format_.tell(row)
        key, at_s = id or f"#{count}", first_s if start_s is None else start_s
        end_s = at_s if end_s is None and start_s is None else end_s
        scope = Scope(text(row.get("scope")))
        held[key] = HeldSpan(key, None, count, scope, named(row), kind, at_s, end_s, read=reading)
        if id is not None:
            parents[id] = field(row, format_.parent, name)
    return _linked(held, parents)


def _linked(
    held: dict[int | str, HeldSpan], parents: dict[int | str, str | None]
) -> list[HeldSpan]:
    """Put each span into that around it, and return the outermost; parents may go in a circle."""
    children: defaultdict[str | int | None, list[int | str]] = defaultdict(list)
    for id, parent in parents.items():
        children[parent if parent in held else None].append(id)
    tops: list[HeldSpan] = []
    depths: dict[int | str, int] = {}
    for top in (*children[None], *held):
        if top in depths:
            continue
        tops.append(held[top])
        depths[top], found = 0, [top]
        for around in found:
            is_deep = depths[around] == _DEEPEST
            outer = held[around].parent if is_deep else held[around]
            for inner in children[around]:
                if inner not in depths and outer is not None:
                    found.append(inner)
                    depths[inner] = min(depths[around] + 1, _DEEPEST)
                    held[inner].parent, outer.inside[inner] = outer, held[inner]
    return tops


def _at_s(value: Any) -> float | None:
    """Return a time in nanoseconds, in seconds or in ISO 8601 as epoch seconds."""
    try:
        nanoseconds = int(value)
    except (TypeError, ValueError, OverflowError):
        return time_s(value)
    at_s = time_s(nanoseconds / 1e9) if abs(nanoseconds) < 1 << 63 else None
    return time_s(value) if at_s is None else at_s


def is_otlp(line: Fields) -> bool:
    """Return whether an object is a line of the collector, or a span of Phoenix."""
    return any(key in line for key in _RESOURCES) or "trace_id" in fields(line.get("context"))


def _spans_in(value: Fields) -> Iterator[Fields]:
    """Yield the spans of a line, each with the name of its scope."""
    resources = [one for key in _RESOURCES for one in objects(value.get(key))]
    if not resources:
        yield from objects(value.get("data")) or [value]  # Phoenix' answer, or one of its spans
    for resource in resources:
        for scope in (one for key in _SCOPES for one in objects(resource.get(key))):
            told_by = fields(scope.get("scope", scope.get("instrumentationLibrary"))).get("name")
            for span in objects(scope.get("spans")):
                yield {**span, "scope": told_by}


def _told(row: Fields) -> Told:
    told, status = _attributes(row.get("attributes")), fields(row.get("status"))
    if "span_kind" in row:  # Phoenix
        told = {"openinference.span.kind": row["span_kind"], **told}
        status = {"code": row.get("status_code"), "message": row.get("status_message")}
    events = tuple(
        Event(text(event.get("name")), _attributes(event.get("attributes")))
        for event in objects(row.get("events"))
    )
    kind, failed = kind_of(told), status.get("code") in _FAILED
    message = status.get("message")
    return kind, partial(
        read, named(row), told, events, kind=kind, failed=failed, description=message
    )


def _attributes(given: object) -> Fields:
    """Return attributes by their names: a list of pairs, or an object that may be nested."""
    if isinstance(given, dict):
        return {**given, **dict(_flat(given, "", 0))}
    return {text(one.get("key")): _value(one.get("value")) for one in objects(given)}


def _flat(tree: Fields, start: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(inner, dict) and inner and depth < _DEEPEST_VALUE:
            yield from _flat(inner, f"{start}{key}.", depth + 1)
        else:
            yield f"{start}{key}", value


def _value(value: object, depth: int = 0) -> Any:
    """Return the value of an attribute, without its envelope."""
    for key, inner in fields(value).items():
        match key.replace("_v", "V"):
            case "intValue":
                try:
                    return int(inner)
                except (TypeError, ValueError, OverflowError):
                    return None
            case "arrayValue" if depth < _DEEPEST_VALUE:
                return [_value(one, depth + 1) for one in listed(fields(inner).get("values"))]
            case "kvlistValue" if depth < _DEEPEST_VALUE:
                pairs = objects(fields(inner).get("values"))
                return {text(one.get("key")): _value(one.get("value"), depth + 1) for one in pairs}
            case "stringValue" | "doubleValue" | "boolValue" | "bytesValue":
                return inner
    return None


# The collector's file exporter, also in the protocol's own names, and Phoenix' spans.
_STARTS: Final = ("start_time_unix_nano", "startTimeUnixNano", "start_time")
_OTLP: Final = SpanFormat(
    _told,
    trace=("trace_id", "traceId", "context.trace_id"),
    parent=("parent_span_id", "parentSpanId", "parent_id"),
    order=_STARTS,
    start=_STARTS,
    end=("end_time_unix_nano", "endTimeUnixNano", "end_time"),
    id=("span_id", "spanId", "context.span_id"),
)


def read_otlp(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield a run for each outermost agent of a trace; its spans may be spread over the file."""
    rows = (row for value in values for row in _spans_in(fields(value)))
    for trace, found in gathered(rows, _OTLP, book):
        tops = _trees(found, _OTLP, book)
        roots = [run for top in tops for root in roots_in(top) for run in split(root)]
        runs = [root for root in roots if not root.is_bracket()]
        if not runs:
            book.skip("no_agent")
        for root in runs:
            yield from _replayed(book.begin(f"{trace}:{root.id}"), root, book)
