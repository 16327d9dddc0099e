"""Assembly of the frozen document of a run, recorded here or elsewhere, within its limits."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final, TypeVar

from kp_middleware.core.endings import default_confidence
from kp_middleware.instants import instant
from kp_middleware.recording._context import Place
from kp_middleware.recording._limits import NAME_BYTES, Limits, bounded_text, jsonable, size_bytes
from kp_middleware.recording._recorder import OWN_CALL_IDS, Recorder
from kp_middleware.recording._steps import BESIDE, ModelCall, StepFields, StepLog
from kp_middleware.runs import RecordedRun, Source, StepFacts, ThreadPart, fingerprint
from kp_middleware.traces import (
    CONTEXT,
    Entity,
    KnowledgeGraphDelta,
    Metadata,
    Outcome,
    PrivacyLevel,
    ReasoningTrace,
    Relationship,
    Step,
    Task,
    Visibility,
)

_NO_STEP: Final[StepFields] = {"type": "observation"}  # a document has at least one step


def assemble(
    recorder: Recorder,
    *,
    domain: str,
    visibility: Visibility,
    privacy_level: PrivacyLevel,
    agent_id: str | None,
) -> RecordedRun | None:
    """Assemble the run of a recorder, or return None if it has no step and resumes no other run.

    A run without steps that resumes another has ``shape.steps`` 0 and one placeholder step.

    Args:
        recorder: The recorder of a finished run.
        domain: The default domain, if the recorder has none.
        visibility: The visibility of the document.
        privacy_level: The level of redaction before the document is sent.
        agent_id: The agent's id at the registry, or None.
    """
    if recorder.write is not None:
        write, recorder.write, recorder.later_bytes = recorder.write, None, 0
        write()
    if recorder.log.count == 0 and not recorder.thread_notes.follows:
        return None
    logged = recorder.log.steps()
    steps = [_document_fields(step) for step in logged]
    metadata = _present(
        created_at=instant(recorder.started_at_s),
        agent_id=agent_id,
        framework=_name(recorder.framework),
        task_domain=_name(recorder.domain) or domain,
        success=bool(recorder.success),
        quality_score=0,
        visibility=visibility,
        privacy_level=privacy_level,
    )
    run = RecordedRun(
        trace=_document(recorder, metadata, steps),
        shape=recorder.log.shape(),
        duration_ms=recorder.duration_ms,
        complete=recorder.complete,
        error_type=_name(recorder.error_type),
        agent_name=_name(recorder.agent_name),
        model=_name(recorder.model),
        thread_id=_name(recorder.thread_id),
        tags=tuple(bounded_text(str(tag), NAME_BYTES) for tag in recorder.tags),
        input_tokens=recorder.input_tokens,
        output_tokens=recorder.output_tokens,
        facts=tuple(_facts(step, recorder) for step in logged),
        confidence_source=_confidence_source(recorder),
        success_source="assumed" if recorder.is_success_assumed else "said",
        part=_part(recorder, logged),
        owner=None if recorder.owner is None else fingerprint(str(recorder.owner)),
        recalled=tuple(recorder.recalled),
    )
    return recorder.confidence_estimate.told_by(run)


def _document(
    recorder: Recorder, metadata: Mapping[str, object], steps: list[StepFields]
) -> ReasoningTrace:
    stated, success = recorder.confidence, bool(recorder.success)
    return ReasoningTrace(
        context=CONTEXT,
        kind="ReasoningTrace",
        id=recorder.trace_id,
        metadata=Metadata.model_validate(metadata),
        task=Task(objective=recorder.objective or _name(recorder.agent_name) or "(not said)"),
        steps=numbered(steps or [_NO_STEP]),
        outcome=Outcome(
            result_summary=recorder.result_summary,
            confidence=default_confidence(success=success) if stated is None else stated,
        ),
    )


def numbered(steps: Iterable[StepFields]) -> tuple[Step, ...]:
    """Return the validated steps of a document, numbered from 0."""
    return tuple(
        Step.model_validate({**step, "step_id": number}) for number, step in enumerate(steps)
    )


def _document_fields(step: StepFields) -> StepFields:
    """Return a copy with only the document's fields, and the latency to the microsecond."""
    fields = {name: value for name, value in step.items() if name not in BESIDE}
    if "latency_ms" in fields:
        fields["latency_ms"] = round(fields["latency_ms"], 3)
    return fields


def _facts(step: StepFields, recorder: Recorder) -> StepFacts:
    place, call = step.get("place") or Place(), step.get("model_call") or ModelCall()
    agent, call_id = _name(place.agent) or None, step.get("call_id")
    epoch_s = recorder.started_at_s - recorder.clock_started_s
    at, took_ms = step.get("at"), call.latency_ms or step.get("latency_ms") or 0.0
    return StepFacts(
        started_at_s=None if at is None else epoch_s + at - took_ms / 1000,
        agent=agent,
        call_id=None if call_id is None else fingerprint(call_id),
        parent=agent if place.parent is None else fingerprint(place.parent),
        model=_name(call.model),
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        model_latency_ms=None if call.latency_ms is None else round(call.latency_ms, 3),
    )


def _confidence_source(recorder: Recorder) -> Source:
    if recorder.confidence is None:
        return "assumed"
    return "extracted" if recorder.is_extracted else "said"


def _part(recorder: Recorder, logged: Sequence[StepFields]) -> ThreadPart | None:
    notes, thread_id = recorder.thread_notes, recorder.thread_id
    if thread_id is None:
        return None
    return ThreadPart(
        thread=fingerprint(str(thread_id)),
        follows=notes.follows,
        awaits=notes.awaits,
        was_asked=bool(recorder.objective) and not notes.overheard,
        questions=tuple(map(fingerprint, notes.questions)),
        answers=tuple(map(fingerprint, notes.answers)),
        agent=None if notes.agent is None else fingerprint(notes.agent),
        tools=tuple(sorted(map(fingerprint, recorder.log.tools()))),
        owed=tuple(map(fingerprint, notes.owed)),
        calls=_calls(logged) if notes.repeats_calls else {},
    )


def _calls(logged: Sequence[StepFields]) -> dict[int, str]:
    """Return the fingerprints of call ids by step position, except of ids that we made."""
    return {
        at: fingerprint(step["call_id"])
        for at, step in enumerate(logged)
        if "call_id" in step and not step["call_id"].startswith(OWN_CALL_IDS)
    }


def _name(given: object) -> str | None:
    """Return a name given by a user or a framework, of any type, as bounded text."""
    return None if given is None else bounded_text(str(given), NAME_BYTES)


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


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
        success_source=trace.metadata.success_source or "said",
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
