"""Runs from spans in files: OpenTelemetry's, LangSmith's runs and Langfuse's observations.

The rows of a trace are gathered in an unnamed file of this process alone: they are not redacted.
"""

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.imports._source import Book, SourceRun, mean_verdict, written
from kp_middleware.spans.dialects import (
    Event,
    Kind,
    Reading,
    ToldError,
    kind_of,
    model_reading,
    read,
)
from kp_middleware.spans.held_span import ROOTS, HeldSpan, Scope, roots_in
from kp_middleware.spans.messages import (
    Fields,
    arguments,
    fields,
    first_text,
    last_text,
    listed,
    messages_in,
    name,
    objects,
    parsed,
    said_in,
    text,
    time_s,
)

_DEEPEST: Final = 100  # a span that is deeper is taken for its parent's sibling
_DEEPEST_VALUE: Final = 16
_MOST_SPANS: Final = 20_000
_MOST_CHARACTERS: Final = 32 << 20

Names: TypeAlias = tuple[str, ...]


class _Format(NamedTuple):
    """The names of a span's fields, for `_field`, and what reads the rest of a row."""

    read: Callable[[Fields], Reading]
    trace: Names
    parent: Names
    order: Names
    start: Names = ("start_time",)
    end: Names = ("end_time",)
    id: Names = ("id",)


def _field(row: Fields, names: Names, read: Callable[[object], Any] = lambda value: value) -> Any:
    """Return the first of these fields that tells something; a dot leads into an object."""
    for one in names:
        outer, _, inner = one.partition(".")
        value = read(fields(row.get(outer)).get(inner) if inner else row.get(outer))
        if value is not None and value != "":
            return value
    return None


def _named(row: Fields) -> str:
    return name(row.get("name")) or "(unnamed)"


def _gathered(
    values: Iterable[object], format_: _Format, book: Book
) -> Iterator[tuple[str, list[Fields]]]:
    """Yield each trace with its rows in order; rows beyond 20,000, or 32 MB, of one are skipped."""
    with closing(sqlite3.connect("")) as file:  # SQLite removes it at the end, however that comes
        file.execute("CREATE TABLE rows (trace TEXT, place TEXT, body TEXT)")
        for value in values:
            row = fields(value)
            key, place = _field(row, format_.trace, name), _field(row, format_.order, _place)
            if key is None:
                book.skip("unknown_type")
                continue
            file.execute("INSERT INTO rows VALUES (?, ?, ?)", (key, place, written(row)))
        file.execute("CREATE INDEX by_trace ON rows (trace, place)")
        of_trace = "SELECT body FROM rows WHERE trace = ? ORDER BY place, rowid"
        traces = file.execute("SELECT trace FROM rows GROUP BY trace ORDER BY min(rowid)")
        for (key,) in traces:
            rows, characters = list[Fields](), 0
            for (body,) in file.execute(of_trace, (key,)):
                characters += len(body)
                if len(rows) < _MOST_SPANS and characters <= _MOST_CHARACTERS:
                    rows.append(json.loads(body))
                else:
                    book.skip("too_long")
            yield key, rows


def _place(value: object) -> str | None:
    """Return what the spans of a trace are sorted by: a text, or a time in nanoseconds as one."""
    place = str(value) if type(value) is int else text(value)
    return name(place.zfill(20) if place.isdecimal() else place)


def _trees(rows: list[Fields], format_: _Format, book: Book) -> list[HeldSpan]:
    """Return the outermost spans; of spans with the same id the last one counts."""
    starts = [_at_s(_field(row, format_.start)) for row in rows]
    first_s = next((at_s for at_s in starts if at_s is not None), book.at_s or 0.0)
    held: dict[int | str, HeldSpan] = {}
    parents: dict[int | str, str | None] = {}
    for count, (row, start_s) in enumerate(zip(rows, starts, strict=True)):
        key, end_s = _field(row, format_.id, name) or f"#{count}", _at_s(_field(row, format_.end))
        at_s = first_s if start_s is None else start_s
        end_s = at_s if end_s is None and start_s is None else end_s
        told, scope = format_.read(row), Scope(text(row.get("scope")))
        held[key] = HeldSpan(
            key, None, count, scope, _named(row), told.kind, at_s, end_s, told=told
        )
        parents[key] = _field(row, format_.parent, name)
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
            outer = held[around].parent if depths[around] == _DEEPEST else held[around]
            for inner in children[around]:
                if inner not in depths and outer is not None:
                    found.append(inner)
                    depths[inner] = min(depths[around] + 1, _DEEPEST)
                    held[inner].parent, outer.inside[inner] = outer, held[inner]
    return tops


def _at_s(value: Any) -> float | None:
    """Return a time in nanoseconds, in seconds or in ISO 8601 as epoch seconds."""
    with suppress(TypeError, ValueError, OverflowError):
        if (at_s := time_s(int(value) / 1e9)) is not None:
            return at_s
    return time_s(value)


_RESOURCES: Final = ("resourceSpans", "resource_spans", "batches")
_SCOPES: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_FAILED: Final = (2, "2", "ERROR", "STATUS_CODE_ERROR")


def is_otlp(line: Fields) -> bool:
    """Return whether an object is a line of the collector, or a span of Phoenix."""
    return any(key in line for key in _RESOURCES) or "trace_id" in fields(line.get("context"))


def read_otlp(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield a run for each outermost agent of a trace; its spans may be spread over the file."""
    rows = (row for value in values for row in _spans_in(fields(value)))
    for trace, found in _gathered(rows, _OTLP, book):
        runs = [root for top in _trees(found, _OTLP, book) for root in roots_in(top)]
        if not runs:
            book.skip("no_agent")
        for root in runs:
            yield from SourceRun(book, f"{trace}:{root.id}").replayed(root)


def _spans_in(value: Fields) -> Iterator[Fields]:
    """Yield the spans of a line, each with the name of its scope."""
    resources = [one for key in _RESOURCES for one in objects(value.get(key))]
    if not resources:
        yield from objects(value.get("data")) or [value]  # Phoenix' answer, or one of its spans
    for scope in (one for has in resources for key in _SCOPES for one in objects(has.get(key))):
        told_by = fields(scope.get("scope", scope.get("instrumentationLibrary"))).get("name")
        yield from ({**span, "scope": told_by} for span in objects(scope.get("spans")))


def _otlp_span(row: Fields) -> Reading:
    told, status = _attributes(row.get("attributes")), fields(row.get("status"))
    if "span_kind" in row:  # Phoenix
        told = {"openinference.span.kind": row["span_kind"], **told}
        status = {"code": row.get("status_code"), "message": row.get("status_message")}
    events = tuple(
        Event(text(event.get("name")), _attributes(event.get("attributes")))
        for event in objects(row.get("events"))
    )
    failed, message = status.get("code") in _FAILED, status.get("message")
    return read(_named(row), told, events, failed=failed, description=message)


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
                with suppress(TypeError, ValueError, OverflowError):
                    return int(inner)
            case "arrayValue" if depth < _DEEPEST_VALUE:
                return [_value(one, depth + 1) for one in listed(fields(inner).get("values"))]
            case "kvlistValue" if depth < _DEEPEST_VALUE:
                pairs = objects(fields(inner).get("values"))
                return {text(one.get("key")): _value(one.get("value"), depth + 1) for one in pairs}
            case "stringValue" | "doubleValue" | "boolValue" | "bytesValue":
                return inner
    return None


# The collector's file exporter, also in the protocol's own names, and Phoenix' spans.
_OTLP_STARTS: Final = ("start_time_unix_nano", "startTimeUnixNano", "start_time")
_OTLP: Final = _Format(
    _otlp_span,
    trace=("trace_id", "traceId", "context.trace_id"),
    parent=("parent_span_id", "parentSpanId", "parent_id"),
    order=_OTLP_STARTS,
    start=_OTLP_STARTS,
    end=("end_time_unix_nano", "endTimeUnixNano", "end_time"),
    id=("span_id", "spanId", "context.span_id"),
)


def _whole_trace(
    trace: str, rows: list[Fields], format_: _Format, book: Book, *, success: bool | None
) -> Iterator[SourceRun]:
    """Yield the run of a trace that is one run, whatever its outermost spans are."""
    tops = _trees(rows, format_, book)
    if not tops:
        return
    inner = {_field(row, format_.id, name) for row in rows if _field(row, format_.parent, name)}
    roots = [top for top in tops if top.id not in inner and top.kind in ROOTS]
    roots = roots or [top for top in tops if top.inside]
    if len(roots) == 1 and roots[0].kind in ROOTS:
        root = roots[0]
    else:
        first, told = tops[0], Reading("agent")
        ends = (one.ended_s for top in tops for one in top.all() if one.ended_s is not None)
        times = first.started_s, max(ends, default=first.started_s)
        root = HeldSpan("", None, 0, first.scope, first.name, "agent", *times, told=told)
    for top in tops:
        if top is not root:
            top.parent, root.inside[top.id] = root, top
    root.kind = "agent"
    yield from SourceRun(book, trace).replayed(root, success=success)


_KINDS: Final[dict[str, Kind]] = {
    "agent": "agent",
    "generation": "model",
    "llm": "model",
    "retriever": "retriever",
    "tool": "tool",
}


def read_langsmith(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace, as ``list_runs`` or the command line of LangSmith write it."""
    given = map(fields, values)
    rows = (row if "run_type" in row or name(row.get("trace_id")) else {} for row in given)
    for key, found in _gathered(rows, _LANGSMITH, book):
        agents = {name(row.get("id")): _agent(row) for row in found}
        for row in found:
            row["around"] = agents.get(name(row.get("parent_run_id")))
        said = (one for row in found for one in fields(row.get("feedback_stats")).values())
        success = mean_verdict(fields(one).get("avg") for one in said)
        yield from _whole_trace(key, found, _LANGSMITH, book, success=success)


def _agent(row: Fields) -> str | None:
    return name(fields(fields(row.get("extra")).get("metadata")).get("lc_agent_name"))


def _langsmith_run(row: Fields) -> Reading:
    """Read a run of LangSmith; a chain is an agent where it is outermost, or another agent's."""
    extra, agent, parent = fields(row.get("extra")), _agent(row), name(row.get("parent_run_id"))
    metadata, invoked = fields(extra.get("metadata")), fields(extra.get("invocation_params"))
    kind = _KINDS.get(text(row.get("run_type")), "chain")
    if kind == "chain" and (parent is None or (agent and row["around"] != agent)):
        kind = "agent"
    told = fields(fields(row.get("outputs")).get("usage_metadata"))
    usage = told or fields(metadata.get("usage_metadata"))
    return _reading(
        kind,
        agent or "" if kind == "agent" else _named(row),
        row.get("inputs"),
        row.get("outputs"),
        first_text({**invoked, **metadata}, "ls_model_name", "model", "model_name") or None,
        usage.get("input_tokens", row.get("prompt_tokens")),
        usage.get("output_tokens", row.get("completion_tokens")),
    )._replace(
        problem=_problem(row.get("error")),
        conversation=first_text(metadata, "thread_id", "session_id", "conversation_id") or None,
    )


_LANGSMITH: Final = _Format(
    _langsmith_run, ("trace_id", "id"), ("parent_run_id",), ("dotted_order", "start_time")
)

_STARTS: Final = ("start_time", "startTime", "timestamp")
_END: Final = ("end_time", "endTime")
_PARENT: Final = ("parent_observation_id", "parentObservationId")


def read_langfuse(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace, of the blob export or of the JSON of a trace from its page."""
    for key, rows in _gathered(_observations(values), _LANGFUSE, book):
        scores = (one.get("value") for row in rows for one in objects(row.get("scores")))
        spans = [row for row in rows if row.get("type") != "EVENT"]
        yield from _whole_trace(key, spans, _LANGFUSE, book, success=mean_verdict(scores))


def _observations(values: Iterable[object]) -> Iterator[object]:
    """Yield the observations themselves; the JSON of a trace has them in a list."""
    for value in values:
        document = {**fields(value), **fields(fields(value).get("trace"))}
        if "observations" not in document:
            yield value
            continue
        inside, root = objects(document["observations"]), document.get("id")
        end = max((text(_field(one, _END)) for one in inside), default="")
        yield {**document, "observations": None, "trace_id": root, "type": "SPAN", "end_time": end}
        for one in inside:
            yield {**one, "parent_observation_id": _field(one, _PARENT) or root}


def _observation(row: Fields) -> Reading:
    told = fields(fields(parsed(row.get("metadata"))).get("attributes"))
    kind = kind_of(told) or _KINDS.get(text(row.get("type")).lower(), "chain")
    message = text(_field(row, ("status_message", "statusMessage")))
    failed, session = row.get("level") == "ERROR", _field(row, ("session_id", "sessionId"), name)
    if "openinference.span.kind" in told:  # Langfuse takes input and output out of them
        values = {"input.value": row.get("input"), "output.value": row.get("output")}
        told = {"session.id": session, **values, **told}
        return read(_named(row), told, kind=kind, failed=failed, description=message)
    usage = fields(parsed(_field(row, ("usage_details", "usageDetails"))))
    return _reading(
        kind,
        _named(row),
        parsed(row.get("input")),
        parsed(row.get("output")),
        _field(row, ("model", "providedModelName"), name),
        usage.get("input"),
        usage.get("output"),
    )._replace(problem=_problem(failed and (message or "error")), conversation=session)


_LANGFUSE: Final = _Format(
    _observation, ("trace_id", "traceId"), _PARENT, order=_STARTS, start=_STARTS, end=_END
)

_SAYS_IT: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
_ANSWERS: Final = ("output", "answer", "result", "response", "generation", "summary", "text")
_ERROR: Final = re.compile(r"([^\W\d]\w*)(?:\((.*)\)|: (.*))", re.DOTALL)


def _reading(
    kind: Kind,
    named: str,
    given: Any,
    output: Any,
    model: str | None,
    read: object,
    written: object,
) -> Reading:
    """Return what a span tells by its input and its output, as a tracing service keeps them."""
    asked, said = messages_in(given, "user"), messages_in(output, "assistant")
    if kind == "model":
        return model_reading(asked, said, model, read, written)
    if kind in {"tool", "retriever"}:
        return _tool_reading(kind, named, given, output)
    people = [one.texts[-1] for one in asked if one.role == "user" and one.texts]
    answers = [one for one in said if one.role == "assistant"]
    return Reading(
        kind,
        named if kind == "agent" else "",
        answer=last_text(answers) or _by_key(output, _ANSWERS) or None,
        complete=True if output is not None else None,
        task=people[-1] if people else _by_key(given, _SAYS_IT),
    )


def _tool_reading(kind: Kind, named: str, given: Any, output: Any) -> Reading:
    given = given["input"] if [*fields(given)] == ["input"] else given
    result = parsed(fields(output).get("output", output))
    reading = Reading(kind, named, given=arguments(given), result=result)
    said = said_in(result, "tool") if fields(result).keys() & {"content", "lc"} else None
    if said is None or not said.results:
        return reading
    one = said.results[0]
    return reading._replace(call_id=one.call_id, result=one.output, failed=one.failed)


def _problem(error: object) -> ToldError | None:
    """Return an error that was written as ``ValueError('…')Traceback …``; None without any."""
    if not (told := text(name(error))):
        return None
    said = told.partition("Traceback (most recent call last)")[0].strip() or "Error"
    found = _ERROR.fullmatch(said)
    if found is None:
        return ToldError("Error", said, said)
    message = (found[2] or "").strip("'\"") or found[3] or ""
    return ToldError(found[1], message, message)


def _by_key(value: object, keys: tuple[str, ...]) -> str:
    found = fields(value)
    return text(value) or first_text(found, *keys, *(found if len(found) == 1 else ()))
