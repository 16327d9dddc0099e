"""Read runs from files of spans: OpenTelemetry's, LangSmith's runs and Langfuse's observations.

Rows are grouped in an unnamed temporary file, because they are not redacted yet.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.imports._source import ImportContext, SourceRun, mean_verdict, to_json
from kp_middleware.spans.dialects import (
    Event,
    Kind,
    Scope,
    SpanContent,
    model_content,
    read_span,
    span_kind,
    tool_content,
)
from kp_middleware.spans.errors import parse_repr
from kp_middleware.spans.messages import (
    ANSWER_KEYS,
    TASK_KEYS,
    Json,
    as_dict,
    as_dicts,
    as_list,
    as_name,
    as_text,
    as_time_s,
    first_text,
    first_value,
    last_text,
    parse_json,
    parse_messages,
    text_by_key,
)
from kp_middleware.spans.replay import ROOT_KINDS, BufferedSpan, find_roots, has_work

_MAX_DEPTH: Final = 100  # deeper spans become siblings of their parents
_MAX_VALUE_DEPTH: Final = 16
_MAX_SPANS: Final = 20_000
_MAX_CHARACTERS: Final = 32 << 20

Keys: TypeAlias = tuple[str, ...]


class _Format(NamedTuple):
    read: Callable[[Json], SpanContent]
    trace: Keys
    parent: Keys
    start: Keys = ("start_time",)
    end: Keys = ("end_time",)
    id: Keys = ("id",)


def _field(row: Json, keys: Keys, convert: Callable[[object], Any] = lambda value: value) -> Any:
    """Return the first non-empty value under these keys; a dot leads into an object."""
    for key in keys:
        outer, _, inner = key.partition(".")
        value = convert(as_dict(row, outer).get(inner) if inner else row.get(outer))
        if value is not None and value != "":
            return value
    return None


def _row_name(row: Json) -> str:
    return as_name(row.get("name")) or "(unnamed)"


def _group_by_trace(
    values: Iterable[object], format_: _Format, context: ImportContext
) -> Iterator[tuple[str, list[Json]]]:
    """Yield each trace with its rows in order; skip rows beyond 20,000 or 32 MB per trace."""
    with closing(sqlite3.connect("")) as file:  # SQLite removes it even after a crash
        file.execute("CREATE TABLE rows (trace TEXT, start REAL, body TEXT)")
        for value in values:
            row = as_dict(value)
            if (key := _field(row, format_.trace, as_name)) is None:
                context.skip("unknown_type")
                continue
            start_s = _field(row, format_.start, as_time_s)
            file.execute("INSERT INTO rows VALUES (?, ?, ?)", (key, start_s, to_json(row)))
        file.execute("CREATE INDEX by_trace ON rows (trace, start)")
        of_trace = "SELECT body FROM rows WHERE trace = ? ORDER BY start, rowid"
        traces = file.execute("SELECT trace FROM rows GROUP BY trace ORDER BY min(rowid)")
        for (key,) in traces:
            rows, characters = list[Json](), 0
            for (body,) in file.execute(of_trace, (key,)):
                characters += len(body)
                if len(rows) < _MAX_SPANS and characters <= _MAX_CHARACTERS:
                    rows.append(json.loads(body))
                else:
                    context.skip("too_long")
            yield key, rows


def _build_trees(rows: list[Json], format_: _Format, context: ImportContext) -> list[BufferedSpan]:
    """Build the span trees and return their outermost spans; the last span of an id wins."""
    starts = [_field(row, format_.start, as_time_s) for row in rows]
    first_s = next((at_s for at_s in starts if at_s is not None), context.at_s or 0.0)
    spans: dict[int | str, BufferedSpan] = {}
    parents: dict[int | str, str | None] = {}
    for count, (row, start_s) in enumerate(zip(rows, starts, strict=True)):
        key = _field(row, format_.id, as_name) or f"#{count}"
        end_s = _field(row, format_.end, as_time_s)
        at_s = first_s if start_s is None else start_s
        end_s = at_s if end_s is None and start_s is None else end_s
        content, scope = format_.read(row), Scope(as_text(row.get("scope")))
        spans[key] = BufferedSpan(
            key, None, count, scope, _row_name(row), content.kind, at_s, end_s, loaded=content
        )
        parents[key] = _field(row, format_.parent, as_name)
    return _link_parents(spans, parents)


def _link_parents(
    spans: dict[int | str, BufferedSpan], parents: dict[int | str, str | None]
) -> list[BufferedSpan]:
    """Link spans to their parents and return the outermost; ignore cycles."""
    children: defaultdict[str | int | None, list[int | str]] = defaultdict(list)
    for id, parent in parents.items():
        children[parent if parent in spans else None].append(id)
    tops: list[BufferedSpan] = []
    depths: dict[int | str, int] = {}
    for top in (*children[None], *spans):
        if top in depths:
            continue
        tops.append(spans[top])
        depths[top], visited = 0, [top]
        for id in visited:
            parent_span = spans[id].parent if depths[id] == _MAX_DEPTH else spans[id]
            for child in children[id]:
                if child not in depths and parent_span is not None:
                    visited.append(child)
                    depths[child] = min(depths[id] + 1, _MAX_DEPTH)
                    spans[child].parent, parent_span.children[child] = parent_span, spans[child]
    return tops


_RESOURCE_KEYS: Final = ("resourceSpans", "resource_spans", "batches")
_SCOPE_KEYS: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_ERROR_CODES: Final = (2, "2", "ERROR", "STATUS_CODE_ERROR")


def is_otlp(line: Json) -> bool:
    return any(key in line for key in _RESOURCE_KEYS) or "trace_id" in as_dict(line, "context")


def read_otlp(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    """Yield a run for each outermost agent of a trace; its spans can be anywhere in the file."""
    spans = (span for value in values for span in _unpack_spans(as_dict(value)))
    for trace, rows in _group_by_trace(spans, _OTLP, context):
        roots = [root for top in _build_trees(rows, _OTLP, context) for root in find_roots(top)]
        if not roots:
            context.skip("no_agent")
        for root in roots:
            yield from SourceRun(context, f"{trace}:{root.id}").replay_spans(root)


def _unpack_spans(value: Json) -> Iterator[Json]:
    """Yield the spans of a line, each with the name of its scope."""
    resources = [resource for key in _RESOURCE_KEYS for resource in as_dicts(value.get(key))]
    if not resources:
        yield value  # of Phoenix
    groups = (as_dicts(resource.get(key)) for resource in resources for key in _SCOPE_KEYS)
    for group in chain.from_iterable(groups):
        scope = as_dict(group.get("scope", group.get("instrumentationLibrary"))).get("name")
        yield from ({**span, "scope": scope} for span in as_dicts(group.get("spans")))


def _read_otlp_span(row: Json) -> SpanContent:
    attributes, status = _attributes(row.get("attributes")), {**row, **as_dict(row, "status")}
    if "span_kind" in row:  # Phoenix
        attributes = {"openinference.span.kind": row["span_kind"], **attributes}
    events = tuple(
        Event(as_text(event.get("name")), _attributes(event.get("attributes")))
        for event in as_dicts(row.get("events"))
    )
    failed = first_value(status, "code", "status_code") in _ERROR_CODES
    message = first_value(status, "message", "status_message", "description")
    return read_span(_row_name(row), attributes, events, failed=failed, description=message)


def _attributes(value: object, depth: int = 0) -> Json:
    """Return attributes by name, from a list of pairs or an object that may be nested."""
    if isinstance(value, dict):
        return {**value, **dict(_flatten(value, "", 0))}
    pairs = as_dicts(value)
    return {as_text(pair.get("key")): _any_value(pair.get("value"), depth) for pair in pairs}


def _flatten(tree: Json, start: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(inner, dict) and inner and depth < _MAX_VALUE_DEPTH:
            yield from _flatten(inner, f"{start}{key}.", depth + 1)
        else:
            yield f"{start}{key}", value


def _any_value(value: object, depth: int = 0) -> Any:
    for key, inner in as_dict(value).items():
        items = as_list(as_dict(inner).get("values"))
        match key.replace("_v", "V"):
            case "intValue":
                with suppress(TypeError, ValueError, OverflowError):
                    return int(inner)
            case "arrayValue" if depth < _MAX_VALUE_DEPTH:
                return [_any_value(item, depth + 1) for item in items]
            case "kvlistValue" if depth < _MAX_VALUE_DEPTH:
                return _attributes(items, depth + 1)
            case "stringValue" | "doubleValue" | "boolValue" | "bytesValue":
                return inner
    return None


# The collector's file exporter, also in the protocol's own names, and Phoenix's spans.
_OTLP: Final = _Format(
    _read_otlp_span,
    trace=("trace_id", "traceId", "context.trace_id"),
    parent=("parent_span_id", "parentSpanId", "parent_id"),
    start=("start_time_unix_nano", "startTimeUnixNano", "start_time"),
    end=("end_time_unix_nano", "endTimeUnixNano", "end_time"),
    id=("span_id", "spanId", "context.span_id"),
)


def _single_run(
    trace: str, rows: list[Json], format_: _Format, context: ImportContext, *, success: bool | None
) -> Iterator[SourceRun]:
    """Yield one run for a trace, however many outermost spans it has."""
    tops = _build_trees(rows, format_, context)
    if not tops:
        return
    inner = {
        _field(row, format_.id, as_name) for row in rows if _field(row, format_.parent, as_name)
    }
    roots = [top for top in tops if top.id not in inner and top.kind in ROOT_KINDS]
    roots = roots or [top for top in tops if top.children]
    if len(roots) == 1 and roots[0].kind in ROOT_KINDS:
        root = roots[0]
    else:
        first, content = tops[0], SpanContent("agent")
        spans = (span for top in tops for span in top.subtree())
        ends = (span.ended_s for span in spans if span.ended_s is not None)
        times = first.started_s, max(ends, default=first.started_s)
        root = BufferedSpan("", None, 0, first.scope, first.name, "agent", *times, loaded=content)
    for top in tops:
        if top is not root:
            top.parent, root.children[top.id] = root, top
    root.kind = "agent"
    if not has_work(root):
        context.skip("no_agent")
        return
    yield from SourceRun(context, trace).replay_spans(root, success=success)


def _kind_of(type_: object) -> Kind:
    return span_kind({"openinference.span.kind": type_}) or "chain"


def read_langsmith(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    """Yield the run of each trace, as written by ``list_runs`` or LangSmith's command line."""
    texts = ("inputs", "outputs", "extra", "feedback_stats")  # JSON in the bulk export
    nested = (run for value in values for run in _with_children(as_dict(value)))
    objects = (run | {key: parse_json(run.get(key)) for key in texts} for run in nested)
    runs = (row if "run_type" in row or as_name(row.get("trace_id")) else {} for row in objects)
    for key, rows in _group_by_trace(runs, _LANGSMITH, context):
        feedback = (stats for row in rows for stats in as_dict(row, "feedback_stats").values())
        success = mean_verdict(as_dict(stats).get("avg") for stats in feedback)
        yield from _single_run(key, rows, _LANGSMITH, context, success=success)


def _with_children(run: Json) -> Iterator[Json]:
    runs = [run]
    for one in runs:
        runs += as_dicts(one.get("child_runs"))
        yield one | {"child_runs": None}


def _read_langsmith_run(row: Json) -> SpanContent:
    extra = as_dict(row, "extra")
    metadata, params = as_dict(extra, "metadata"), as_dict(extra, "invocation_params")
    kind = _kind_of(row.get("run_type"))
    if kind == "chain" and as_name(row.get("parent_run_id")) is None:
        kind = "agent"
    usage = as_dict(row, "outputs", "usage_metadata") or as_dict(metadata, "usage_metadata")
    return _span_content(
        kind,
        as_text(metadata.get("lc_agent_name")) if kind in ROOT_KINDS else _row_name(row),
        row.get("inputs"),
        row.get("outputs"),
        first_text({**params, **metadata}, "ls_model_name", "model", "model_name") or None,
        (
            usage.get("input_tokens", row.get("prompt_tokens")),
            usage.get("output_tokens", row.get("completion_tokens")),
        ),
    )._replace(
        error=parse_repr(row.get("error")),
        conversation=first_text(metadata, "thread_id", "session_id", "conversation_id") or None,
    )


_LANGSMITH: Final = _Format(_read_langsmith_run, ("trace_id", "id"), ("parent_run_id",))

_START_KEYS: Final = ("start_time", "startTime", "timestamp")
_END_KEYS: Final = ("end_time", "endTime")
_PARENT_KEYS: Final = ("parent_observation_id", "parentObservationId")


def read_langfuse(values: Iterable[object], context: ImportContext) -> Iterator[SourceRun]:
    """Yield the run of each trace, from the blob export or the JSON of a trace's page."""
    for key, rows in _group_by_trace(_unpack_observations(values), _LANGFUSE, context):
        scores = (score.get("value") for row in rows for score in as_dicts(row.get("scores")))
        spans = [row for row in rows if row.get("type") != "EVENT"]
        yield from _single_run(key, spans, _LANGFUSE, context, success=mean_verdict(scores))


def _unpack_observations(values: Iterable[object]) -> Iterator[object]:
    """Yield observations; the JSON of a trace has them in a list."""
    for value in values:
        document = {**as_dict(value), **as_dict(value, "trace")}
        if "observations" not in document:
            yield value
            continue
        children, root = as_dicts(document["observations"]), document.get("id")
        end = max((as_text(_field(child, _END_KEYS)) for child in children), default="")
        yield {**document, "observations": None, "trace_id": root, "type": "SPAN", "end_time": end}
        for child in children:
            parent = _field(child, _PARENT_KEYS) or root
            yield {**child, "trace_id": root, "parent_observation_id": parent}


def _read_observation(row: Json) -> SpanContent:
    metadata = as_dict(parse_json(row.get("metadata")))
    agent, thread = (parse_json(metadata.get(key)) for key in ("lc_agent_name", "thread_id"))
    attributes = as_dict(metadata, "attributes")
    kind = span_kind(attributes) or _kind_of(row.get("type"))
    message = as_text(_field(row, ("status_message", "statusMessage")))
    failed, session = row.get("level") == "ERROR", _field(row, ("session_id", "sessionId"), as_name)
    if "openinference.span.kind" in attributes:  # Langfuse moves input and output out of them
        values = {"input.value": row.get("input"), "output.value": row.get("output")}
        attributes = {"session.id": session, **values, **attributes}
        return read_span(_row_name(row), attributes, kind=kind, failed=failed, description=message)
    usage = as_dict(parse_json(_field(row, ("usage_details", "usageDetails", "usage"))))
    own = read_span(_row_name(row), attributes, kind=kind)  # what Langfuse left in them
    content = _span_content(
        kind,
        own.name or (as_text(agent) if kind == "chain" else _row_name(row)),
        parse_json(row.get("input")),
        parse_json(row.get("output")),
        _field(row, ("model", "providedModelName"), as_name),
        (usage.get("input"), usage.get("output")),
    )
    return content._replace(
        call_id=content.call_id or own.call_id,
        error=parse_repr(failed and (message or "error")),
        conversation=session or own.conversation or as_name(thread),
    )


_LANGFUSE: Final = _Format(
    _read_observation, ("trace_id", "traceId"), _PARENT_KEYS, _START_KEYS, _END_KEYS
)


def _span_content(
    kind: Kind,
    label: str,
    input_: Any,
    output: Any,
    model: str | None,
    tokens: tuple[object, object],
) -> SpanContent:
    inputs, outputs = parse_messages(input_, "user"), parse_messages(output, "assistant")
    if kind == "model":
        return model_content(inputs, outputs, model, tokens)
    if kind in {"tool", "retriever"}:
        return tool_content(kind, label, input_, output)
    requests = [message.texts[-1] for message in inputs if message.role == "user" and message.texts]
    answers = [message for message in outputs if message.role == "assistant"]
    return SpanContent(
        kind,
        label,
        answer=last_text(answers) or text_by_key(output, ANSWER_KEYS) or None,
        complete=None if output is None else not (outputs and outputs[-1].calls),
        task=requests[-1] if requests else text_by_key(input_, TASK_KEYS),
    )
