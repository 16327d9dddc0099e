"""Limits of a run, applied to a document that was not recorded here."""

import json
from collections.abc import Callable, Iterable
from itertools import accumulate, takewhile
from typing import Any, Final, TypeVar

from kp_middleware.recording._assembly import numbered
from kp_middleware.recording._jsonable import jsonable
from kp_middleware.recording._limits import NAME_BYTES, Limits, bounded_text, size_bytes
from kp_middleware.recording._step_log import StepFields, StepLog
from kp_middleware.runs import RecordedRun
from kp_middleware.traces import (
    Entity,
    KnowledgeGraphDelta,
    Metadata,
    ReasoningTrace,
    Relationship,
    Step,
    default_confidence,
)

T = TypeVar("T")

_MOST_VALIDATORS: Final = 100


def bounded(trace: ReasoningTrace, limits: Limits) -> RecordedRun:
    """Cut a document to the limits of a captured run, and return it with its true counts.

    Parts within the limits are unchanged.
    """
    log = StepLog(limits)
    for step in trace.steps:
        fields = _step(step, limits.field_bytes)
        log.append(fields, _size_bytes(fields))
    steps = numbered(log.steps())
    as_it_was = tuple(
        step.model_copy(update={"step_id": at}) for at, step in enumerate(trace.steps)
    )
    changes = {
        "metadata": _metadata(trace.metadata),
        "task": _cut(trace.task, limits, "objective", "input_schema"),
        "steps": trace.steps if steps == as_it_was else steps,
        "outcome": _cut(trace.outcome, limits, "result_summary"),
        "source_skill": _text(trace.source_skill, limits.field_bytes),
        "knowledge_graph_delta": _delta(trace.knowledge_graph_delta, limits.field_bytes),
    }
    assumed = default_confidence(success=trace.metadata.success)
    return RecordedRun(
        trace=trace.model_copy(update=changes),
        shape=log.shape(),
        confidence_source="assumed" if trace.outcome.confidence == assumed else "said",
    )


def _step(step: Step, limit_bytes: int) -> StepFields:
    given = {
        "type": step.type,
        "content": _text(step.content, limit_bytes),
        "tool": None if step.tool is None else _names(step.tool.model_dump()),
        "input": _object(step.input, limit_bytes),
        "output_summary": _text(step.output_summary, limit_bytes),
        "latency_ms": step.latency_ms,
    }
    return {name: value for name, value in given.items() if value is not None}


def _size_bytes(step: StepFields) -> int:
    texts = size_bytes(step.get("content", "")) + size_bytes(step.get("output_summary", ""))
    return texts + (_json_bytes(step["input"]) if "input" in step else 0)


def _text(text: str | None, limit_bytes: int) -> str | None:
    return None if text is None else bounded_text(text, limit_bytes)


def _names(named: dict[str, Any]) -> dict[str, Any]:
    return {name: bounded_text(value, NAME_BYTES) for name, value in named.items()}


def _object(value: dict[str, Any] | None, limit_bytes: int) -> dict[str, Any] | None:
    """Return a small enough object unchanged, even if too deep, since redaction refuses that."""
    if value is None or _json_bytes(value) <= limit_bytes:
        return value
    copied = jsonable(value, limit_bytes)
    return copied if isinstance(copied, dict) else {"value": copied}


def _json_bytes(value: object) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace"))
    except (ValueError, RecursionError):
        return 0  # so deep that redaction refuses it


def _metadata(metadata: Metadata) -> Metadata:
    names = {"agent_id": metadata.agent_id, "framework": metadata.framework}
    names = {name: _text(value, NAME_BYTES) for name, value in names.items()}
    said = metadata.validated_by
    if said is not None:
        said = tuple(bounded_text(name, NAME_BYTES) for name in said[:_MOST_VALIDATORS])
    return metadata.model_copy(
        update={
            **names,
            "task_domain": bounded_text(metadata.task_domain, NAME_BYTES),
            "validated_by": said,
        }
    )


def _cut(part: Any, limits: Limits, text: str, schema: str | None = None) -> Any:
    changes: dict[str, object] = {text: bounded_text(getattr(part, text), limits.field_bytes)}
    if schema is not None:
        changes[schema] = _object(getattr(part, schema), limits.field_bytes)
    return part.model_copy(update=changes)


def _delta(delta: KnowledgeGraphDelta | None, limit_bytes: int) -> KnowledgeGraphDelta | None:
    if delta is None:
        return None
    entities = (Entity(**_names(entity.model_dump())) for entity in delta.entities)
    facts = (
        Relationship(
            fact=bounded_text(said.fact, limit_bytes // 2),
            valid_from=bounded_text(said.valid_from, NAME_BYTES),
        )
        for said in delta.relationships
    )
    return KnowledgeGraphDelta(
        entities=_first(entities, limit_bytes, lambda words: Entity(name=words, type="cut")),
        relationships=_first(
            facts, limit_bytes, lambda words: Relationship(fact=words, valid_from="")
        ),
    )


def _first(items: Iterable[T], limit_bytes: int, marker: Callable[[str], T]) -> tuple[T, ...]:
    """Return the first items that fit, and a marker with the total if some do not."""
    given = [*items]
    totals = accumulate(len(str(item)) for item in given)
    fitting = sum(1 for _ in takewhile(lambda total: total <= limit_bytes, totals))
    cut = [marker(f"… [cut: {len(given)} in all]")] if fitting < len(given) else []
    return (*given[:fitting], *cut)
