"""OpenTelemetry's spans in JSON: the collector's file exporter, and Phoenix' spans.

Keys in camel case, or in snake case where somebody wrote the protocol's messages by hand.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from kp_middleware.imports._run import Book, SourceRun
from kp_middleware.imports._spans import SourceSpan, either, gathered, named, runs_of
from kp_middleware.spans.dialects import kind_of, read
from kp_middleware.spans.fields import Fields, fields, listed, name, objects, text, time_s
from kp_middleware.spans.held_span import Event, Scope

_RESOURCES: Final = ("resourceSpans", "resource_spans", "batches")
_SCOPES: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_FAILED: Final = (2, "2", "ERROR", "STATUS_CODE_ERROR")
_DEEPEST: Final = 16


def read_otlp(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the runs of each trace; its spans may be spread over the file, children first."""
    rows = (row for value in values for row in _rows(fields(value)))
    for key, found in gathered(rows, book, trace=_trace, order=_order):
        yield from runs_of(key, [_span(row) for row in found], book)


def is_otlp(line: Fields) -> bool:
    """Return whether an object is a line of the collector, or a span of Phoenix."""
    return any(key in line for key in _RESOURCES) or "trace_id" in fields(line.get("context"))


def _rows(value: Fields) -> Iterator[object]:
    """Yield the spans of a line, each with the name of its scope."""
    resources = [one for key in _RESOURCES for one in objects(value.get(key))]
    if not resources:
        yield from objects(value.get("data")) or [value]  # Phoenix' answer, or one of its spans
    for resource in resources:
        for scope in (one for key in _SCOPES for one in objects(resource.get(key))):
            told_by = fields(scope.get("scope", scope.get("instrumentationLibrary"))).get("name")
            for span in objects(scope.get("spans")):
                yield {**span, "scope": told_by}


def _trace(row: Fields) -> str | None:
    return name(either(row, "traceId")) or name(fields(row.get("context")).get("trace_id"))


def _order(row: Fields) -> str:
    nanoseconds = either(row, "startTimeUnixNano")
    return text(row.get("start_time")) if nanoseconds is None else str(nanoseconds).zfill(20)


def _span(row: Fields) -> SourceSpan:
    told, status = _attributes(row.get("attributes")), fields(row.get("status"))
    if "span_kind" in row:  # Phoenix
        told = {"openinference.span.kind": row["span_kind"], **told}
        status = {"code": row.get("status_code"), "message": row.get("status_message")}
    events = tuple(
        Event(text(event.get("name")), _attributes(event.get("attributes")))
        for event in objects(row.get("events"))
    )
    kind = kind_of(told)
    reads = partial(
        read,
        named(row),
        told,
        events,
        kind=kind,
        failed=status.get("code") in _FAILED,
        description=status.get("message"),
    )
    return SourceSpan(
        name(either(row, "spanId")) or name(fields(row.get("context")).get("span_id")),
        name(either(row, "parentSpanId")) or name(row.get("parent_id")),
        named(row),
        kind,
        _at_s(row, "start"),
        _at_s(row, "end"),
        reads,
        Scope(text(row.get("scope"))),
    )


def _at_s(row: Fields, way: str) -> float | None:
    nanoseconds = either(row, f"{way}TimeUnixNano")
    try:
        return time_s(int(nanoseconds) / 1e9)
    except (TypeError, ValueError, OverflowError):
        return time_s(row.get(f"{way}_time"))


def _attributes(given: object) -> Fields:
    """Return attributes by their names: a list of pairs, or an object that may be nested."""
    if isinstance(given, dict):
        return {**given, **dict(_flat(given, "", 0))}
    return {text(one.get("key")): _value(one.get("value")) for one in objects(given)}


def _flat(tree: Fields, start: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(inner, dict) and inner and depth < _DEEPEST:
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
            case "arrayValue" if depth < _DEEPEST:
                return [_value(one, depth + 1) for one in listed(fields(inner).get("values"))]
            case "kvlistValue" if depth < _DEEPEST:
                pairs = objects(fields(inner).get("values"))
                return {text(one.get("key")): _value(one.get("value"), depth + 1) for one in pairs}
            case "stringValue" | "doubleValue" | "boolValue" | "bytesValue":
                return inner
    return None
