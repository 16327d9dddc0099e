"""Assembly of the frozen document of a run, recorded here or elsewhere, within its limits."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kp_middleware.core.endings import default_confidence
from kp_middleware.instants import instant
from kp_middleware.recording._context import Place
from kp_middleware.recording._limits import (
    NAME_BYTES,
    BoundedCopy,
    Limits,
    bounded_name,
    bounded_text,
    size_bytes,
)
from kp_middleware.recording._recorder import OWN_CALL_IDS, Recorder
from kp_middleware.recording._steps import BESIDE, ModelCall, StepFields, StepLog
from kp_middleware.runs import RecordedRun, Source, StepFacts, ThreadPart, fingerprint
from kp_middleware.traces import (
    CONTEXT,
    Entity,
    KnowledgeGraphDelta,
    Metadata,
    Outcome,
    Part,
    PrivacyLevel,
    ReasoningTrace,
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
    """Assemble the run of a finished recorder, or return None if it has no step and follows none.

    A run without steps that resumes another has ``shape.steps`` 0 and one placeholder step.
    ``domain`` counts if the recorder has none.
    """
    if recorder.write is not None:
        write, recorder.write, recorder.later_bytes = recorder.write, None, 0
        write()
    if recorder.log.count == 0 and not recorder.thread_notes.follows:
        return None
    logged = recorder.log.steps()
    steps = [_document_fields(step) for step in logged]
    metadata = {
        "created_at": instant(recorder.started_at_s),
        "framework": bounded_name(recorder.framework),
        "task_domain": _name(recorder.domain) or domain,
        "success": bool(recorder.success),
        "quality_score": 0,
        "visibility": visibility,
        "privacy_level": privacy_level,
    }
    if agent_id is not None:
        metadata["agent_id"] = agent_id
    source: Source = "extracted" if recorder.is_extracted else "said"
    run = RecordedRun(
        trace=_document(recorder, metadata, steps),
        shape=recorder.log.shape(),
        duration_ms=recorder.duration_ms,
        complete=recorder.complete,
        error_type=_name(recorder.error_type),
        agent_name=_name(recorder.agent_name),
        model=_name(recorder.model),
        thread_id=_name(recorder.thread_id),
        tags=tuple(map(bounded_name, recorder.tags)),
        input_tokens=recorder.input_tokens,
        output_tokens=recorder.output_tokens,
        facts=tuple(_facts(step, recorder) for step in logged),
        confidence_source=source if recorder.confidence is not None else "assumed",
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
    """Return the document's fields alone, the latency to the microsecond."""
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
    return None if given is None else bounded_name(given)


P = TypeVar("P", bound=Part)

_MOST_VALIDATORS: Final = 100


def bounded(trace: ReasoningTrace, limits: Limits) -> RecordedRun:
    """Cut a document to the limits of a captured run, and return it with its true counts.

    Parts within the limits are unchanged.
    """
    log, most = StepLog(limits), limits.field_bytes
    for step in trace.steps:
        tool = None if step.tool is None else _cut(step.tool, NAME_BYTES)
        kept = _cut(step, most).model_copy(update={"tool": tool})
        fields = kept.model_dump(exclude={"step_id"})
        log.append(fields, _size_bytes(fields))
    steps = numbered(log.steps())
    as_it_was = tuple(
        step.model_copy(update={"step_id": at}) for at, step in enumerate(trace.steps)
    )
    said = trace.metadata.validated_by
    said = None if said is None else tuple(map(bounded_name, said[:_MOST_VALIDATORS]))
    changes = {
        "metadata": _cut(trace.metadata, NAME_BYTES).model_copy(update={"validated_by": said}),
        "task": _cut(trace.task, most),
        "steps": trace.steps if steps == as_it_was else steps,
        "outcome": _cut(trace.outcome, most),
        "knowledge_graph_delta": _delta(trace.knowledge_graph_delta, most),
    }
    assumed = default_confidence(success=trace.metadata.success)
    return RecordedRun(
        trace=_cut(trace, most).model_copy(update=changes),
        shape=log.shape(),
        confidence_source="assumed" if trace.outcome.confidence == assumed else "said",
        success_source=trace.metadata.success_source or "said",
    )


def _cut(part: P, limit_bytes: int) -> P:
    """Return a part of a document with its own texts and objects cut to a size."""
    changes: dict[str, object] = {}
    for name, value in part:
        if isinstance(value, str):
            changes[name] = bounded_text(value, limit_bytes)
        elif isinstance(value, dict) and _json_bytes(value) > limit_bytes:
            changes[name] = BoundedCopy(limit_bytes).of_mapping(value)
    return part.model_copy(update=changes)


def _size_bytes(step: StepFields) -> int:
    texts = size_bytes(step.get("content", "")) + size_bytes(step.get("output_summary", ""))
    return texts + (_json_bytes(step["input"]) if "input" in step else 0)


def _json_bytes(value: object) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace"))
    except (ValueError, RecursionError):
        return 0  # so deep that redaction refuses it


def _delta(delta: KnowledgeGraphDelta | None, limit_bytes: int) -> KnowledgeGraphDelta | None:
    """Return a delta, or the number of its parts if it is too large."""
    if delta is None:
        return None
    entities = tuple(_cut(entity, NAME_BYTES) for entity in delta.entities)
    facts = tuple(_cut(fact, limit_bytes) for fact in delta.relationships)
    kept = KnowledgeGraphDelta(entities=entities, relationships=facts)
    if len(kept.model_dump_json()) <= limit_bytes:
        return kept
    cut = Entity(name=f"… [cut: {len(entities) + len(facts)} in all]", type="cut")
    return KnowledgeGraphDelta(entities=(cut,), relationships=())
