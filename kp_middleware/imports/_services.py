"""Runs that tracing services kept.

LangSmith's, one a line, as ``list_runs`` or its command line write them; and Langfuse's
observations: its blob export, one a line, or the JSON of a trace from its page.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from kp_middleware.imports._run import Book, SourceRun, mean_verdict
from kp_middleware.imports._spans import SourceSpan, either, gathered, named, reading_of, run_of
from kp_middleware.spans.dialects import kind_of, read
from kp_middleware.spans.fields import (
    Fields,
    fields,
    first_text,
    name,
    objects,
    parsed,
    text,
    time_s,
)
from kp_middleware.spans.held_span import Kind

_RUN_TYPES: Final[dict[str, Kind]] = {"llm": "model", "tool": "tool", "retriever": "retriever"}
_THREADS: Final = ("thread_id", "session_id", "conversation_id")


def read_langsmith(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace; its spans may be spread over the file."""
    for key, rows in gathered(values, book, trace=_langsmith_trace, order=_langsmith_order):
        agents = {name(row.get("id")): _agent(row) for row in rows}
        said = (one for row in rows for one in fields(row.get("feedback_stats")).values())
        scores = (fields(one).get("avg") for one in said)
        spans = [_langsmith_span(row, agents) for row in rows]
        yield from run_of(key, spans, book, success=mean_verdict(scores))


def _langsmith_trace(row: Fields) -> str | None:
    return name(row.get("trace_id")) or (name(row.get("id")) if "run_type" in row else None)


def _langsmith_order(row: Fields) -> str:
    return text(row.get("dotted_order")) or text(row.get("start_time"))


def _metadata(row: Fields) -> Fields:
    return fields(fields(row.get("extra")).get("metadata"))


def _agent(row: Fields) -> str | None:
    return name(_metadata(row).get("lc_agent_name"))


def _langsmith_span(row: Fields, agents: dict[str | None, str | None]) -> SourceSpan:
    metadata = _metadata(row)
    parent, agent = name(row.get("parent_run_id")), _agent(row)
    kind = _RUN_TYPES.get(text(row.get("run_type")), "chain")
    if kind == "chain" and (parent is None or (agent and agents.get(parent) != agent)):
        kind = "agent"
    used, invoked = (
        fields(row.get("outputs")),
        fields(fields(row.get("extra")).get("invocation_params")),
    )
    usage = fields(used.get("usage_metadata")) or fields(metadata.get("usage_metadata"))
    reads = partial(
        reading_of,
        kind,
        agent or "" if kind == "agent" else named(row),
        row.get("inputs"),
        row.get("outputs"),
        model=first_text({**invoked, **metadata}, "ls_model_name", "model", "model_name") or None,
        used=(
            usage.get("input_tokens", row.get("prompt_tokens")),
            usage.get("output_tokens", row.get("completion_tokens")),
        ),
        error=name(row.get("error")),
        conversation=first_text(metadata, *_THREADS) or None,
    )
    start_s, end_s = time_s(row.get("start_time")), time_s(row.get("end_time"))
    return SourceSpan(name(row.get("id")), parent, named(row), kind, start_s, end_s, reads)


_OBSERVATIONS: Final[dict[str, Kind]] = {
    "AGENT": "agent",
    "GENERATION": "model",
    "RETRIEVER": "retriever",
    "TOOL": "tool",
}
_NO_SPAN: Final = "EVENT"


def read_langfuse(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace; its observations may be spread over the file."""
    for key, rows in gathered(
        _observations(values), book, trace=_langfuse_trace, order=_langfuse_order
    ):
        scores = (one.get("value") for row in rows for one in objects(row.get("scores")))
        spans = [_langfuse_span(row) for row in rows if row.get("type") != _NO_SPAN]
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


def _langfuse_trace(row: Fields) -> str | None:
    return name(either(row, "traceId"))


def _langfuse_order(row: Fields) -> str:
    return text(either(row, "startTime")) or text(row.get("timestamp"))


def _langfuse_span(row: Fields) -> SourceSpan:
    parent = name(either(row, "parentObservationId"))
    told = fields(fields(parsed(row.get("metadata"))).get("attributes"))
    kind = kind_of(told) or _OBSERVATIONS.get(text(row.get("type")), "chain")
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
