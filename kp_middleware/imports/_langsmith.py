"""LangSmith's runs, one a line, as ``list_runs`` or its command line write them."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from kp_middleware.imports._run import Book, SourceRun, mean_verdict
from kp_middleware.imports._spans import SourceSpan, gathered, named, reading_of, run_of
from kp_middleware.spans.fields import Fields, fields, first_text, name, text, time_s
from kp_middleware.spans.held_span import Kind

_KINDS: Final[dict[str, Kind]] = {"llm": "model", "tool": "tool", "retriever": "retriever"}
_THREADS: Final = ("thread_id", "session_id", "conversation_id")


def read_langsmith(values: Iterable[object], book: Book) -> Iterator[SourceRun]:
    """Yield the run of each trace; its spans may be spread over the file."""
    for key, rows in gathered(values, book, trace=_trace, order=_order):
        agents = {name(row.get("id")): _agent(row) for row in rows}
        said = (one for row in rows for one in fields(row.get("feedback_stats")).values())
        scores = (fields(one).get("avg") for one in said)
        spans = [_span(row, agents) for row in rows]
        yield from run_of(key, spans, book, success=mean_verdict(scores))


def _trace(row: Fields) -> str | None:
    return name(row.get("trace_id")) or (name(row.get("id")) if "run_type" in row else None)


def _order(row: Fields) -> str:
    return text(row.get("dotted_order")) or text(row.get("start_time"))


def _metadata(row: Fields) -> Fields:
    return fields(fields(row.get("extra")).get("metadata"))


def _agent(row: Fields) -> str | None:
    return name(_metadata(row).get("lc_agent_name"))


def _span(row: Fields, agents: dict[str | None, str | None]) -> SourceSpan:
    metadata = _metadata(row)
    parent, agent = name(row.get("parent_run_id")), _agent(row)
    kind = _KINDS.get(text(row.get("run_type")), "chain")
    if kind == "chain" and (parent is None or (agent and agents.get(parent) != agent)):
        kind = "agent"
    used, invoked = (
        fields(row.get("outputs")),
        fields(fields(row.get("extra")).get("invocation_params")),
    )
    usage = fields(used.get("usage_metadata")) or fields(metadata.get("usage_metadata"))
    read = partial(
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
    return SourceSpan(name(row.get("id")), parent, named(row), kind, start_s, end_s, read)
