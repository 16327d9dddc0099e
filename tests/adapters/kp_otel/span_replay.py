"""Recorded spans of real frameworks, sent to a processor again, or written to a file."""

import json
from concurrent.futures import ThreadPoolExecutor

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from kp_middleware.imports import ImportContext, RunDefaults, read_runs

START_NS = 1_763_800_000 * 10**9


def replay(document, processor):
    """Send a processor what it received when it was recorded, in the same threads."""
    spans = {span["span"]: span for span in document["spans"]}
    never = {name.partition(" ")[0]: name for name in document["never_ended"]}
    threads = {}
    for number, event in enumerate(document["events"]):
        name = event["span"]
        span = spans.get(name)
        if event["event"] == "start":
            started = ReadableSpan(
                name=event["name"],
                context=context(name),
                parent=context(span["parent"]) if span and span["parent"] else None,
                attributes=event["attributes"],
                instrumentation_scope=scope_of(document, span),
                start_time=at(span["start_ms"]) if span else START_NS + number,
            )
            call, given = processor.on_start, started
        elif name in never:
            continue
        else:
            call, given = processor.on_end, ended_span(span)
        pool = threads.setdefault(event["thread"], ThreadPoolExecutor(1))
        pool.submit(call, given).result()
    for pool in threads.values():
        pool.shutdown()


def runs_of_an_otlp_file(document, path):
    """The runs that are read from a file in which the collector kept the spans."""
    lines = [json.dumps(as_otlp(span)) for span in reversed(document["spans"])]
    path.write_text("\n".join(lines))
    found = [run.to_recorded(RunDefaults()) for run in read_runs(path, ImportContext("otlp"))]
    runs = [run for run in found if run is not None]
    return sorted(runs, key=lambda run: run.trace.metadata.created_at)


def at(ms):
    return START_NS + round(ms * 1e6)


def context(name):
    number = int(name.removeprefix("s"))
    return SpanContext(7, number, is_remote=False, trace_flags=TraceFlags(1))


def scope_of(document, span):
    scope = span["scope"]["name"] if span else document["spans"][0]["scope"]["name"]
    return InstrumentationScope(scope)


def ended_span(span):
    return ReadableSpan(
        name=span["name"],
        context=context(span["span"]),
        parent=context(span["parent"]) if span["parent"] else None,
        attributes=span["attributes"],
        events=[Event(event["name"], event["attributes"]) for event in span["events"]],
        status=Status(StatusCode[span["status"]["code"]], span["status"]["description"]),
        instrumentation_scope=InstrumentationScope(span["scope"]["name"]),
        start_time=at(span["start_ms"]),
        end_time=at(span["end_ms"]),
    )


def as_otlp(span):
    def pairs(attributes):
        return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]

    codes = {"UNSET": 0, "OK": 1, "ERROR": 2}
    status = {"code": codes[span["status"]["code"]], "message": span["status"]["description"]}
    one = {
        "traceId": "07",
        "spanId": span["span"],
        "parentSpanId": span["parent"] or "",
        "name": span["name"],
        "startTimeUnixNano": str(START_NS + round(span["start_ms"] * 1e6)),
        "endTimeUnixNano": str(START_NS + round(span["end_ms"] * 1e6)),
        "attributes": pairs(span["attributes"]),
        "events": [
            {"name": event["name"], "attributes": pairs(event["attributes"])}
            for event in span["events"]
        ],
        "status": status,
    }
    scopes = [{"scope": {"name": span["scope"]["name"]}, "spans": [one]}]
    return {"resourceSpans": [{"scopeSpans": scopes}]}


def any_value(value):
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(one) for one in value]}}
    return {}
