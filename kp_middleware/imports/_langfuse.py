"""Langfuse's observations: its blob export, one a line, or the JSON of a trace from its page."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from kp_middleware.imports._run import Book, SourceRun, mean_verdict
from kp_middleware.imports._spans import SourceSpan, either, gathered, named, reading_of, run_of
from kp_middleware.spans.dialects import kind_of, read
from kp_middleware.spans.fields import Fields, fields, name, objects, parsed, text, time_s
from kp_middleware.spans.held_span import Kind

_KINDS: Final[dict[str, Kind]] = {
    "AGENT": "agent",
    "GENERATION": "model",
    "RETRIEVER": "retriever",
    "TOOL": "tool",
}
_NO_SPAN: Final = "EVENT"


def read_langfuse(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace; its observations may be spread over the file."""
    for key, rows in gathered(_observations(values), book, trace=_trace, order=_order):
        scores = (one.get("value") for row in rows for one in objects(row.get("scores")))
        spans = [_span(row) for row in rows if row.get("type") != _NO_SPAN]
        yield from run_of(key, spans, book, success=mean_verdict(scores))


def _observations(values: Iterable[object]) -> Iterator[object]:
    """Yield the observations themselves; the JSON of a trace has them in a list."""
    for value in values:
        document = fields(value)
        document = {**document, **fields(document.get("trace"))}
        if "observations" not in document:
            yield value
            continue
        inside = objects(document["observations"])
        ends = (text(either(one, "endTime")) for one in inside)
        root = {"trace_id": document.get("id"), "type": "SPAN", "end_time": max(ends, default="")}
        yield {**document, "observations": None, **root}
        for one in inside:
            parent = either(one, "parentObservationId")
            yield {**one, "parent_observation_id": parent or document.get("id")}


def _trace(row: Fields) -> str | None:
    return name(either(row, "traceId"))


def _order(row: Fields) -> str:
    return text(either(row, "startTime")) or text(row.get("timestamp"))


def _span(row: Fields) -> SourceSpan:
    parent = name(either(row, "parentObservationId"))
    told = fields(fields(parsed(row.get("metadata"))).get("attributes"))
    kind = kind_of(told) or _KINDS.get(text(row.get("type")), "chain")
    message = text(either(row, "statusMessage"))
    failed, session = row.get("level") == "ERROR", name(either(row, "sessionId"))
    if "openinference.span.kind" in told:  # Langfuse takes input and output out of them
        told = {"input.value": row.get("input"), "output.value": row.get("output"), **told}
        told = {"session.id": session, **told}
        reads = partial(read, named(row), told, kind=kind, failed=failed, description=message)
    else:
        usage = fields(parsed(either(row, "usageDetails")))
        reads = partial(
            reading_of,
            kind if parent is not None or kind != "chain" else "agent",
            named(row) if kind != "chain" else "",
            parsed(row.get("input")),
            parsed(row.get("output")),
            model=name(row.get("model") or row.get("providedModelName")),
            used=(usage.get("input"), usage.get("output")),
            error=(message or "error") if failed else None,
            conversation=session,
        )
    start_s = time_s(either(row, "startTime") or row.get("timestamp"))
    end_s = time_s(either(row, "endTime"))
    return SourceSpan(name(row.get("id")), parent, named(row), kind, start_s, end_s, reads)
