"""Assembly of the frozen document of a finished run, on the worker's thread."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kp_middleware.instants import instant
from kp_middleware.recording._limits import NAME_BYTES, bounded_text
from kp_middleware.recording._place import Place
from kp_middleware.recording._recorder import OWN_CALL_IDS, Recorder
from kp_middleware.recording._step_log import BESIDE, ModelCall, StepFields
from kp_middleware.runs import RecordedRun, Source, StepFacts, ThreadPart, fingerprint
from kp_middleware.traces import (
    CONTEXT,
    Metadata,
    Outcome,
    PrivacyLevel,
    ReasoningTrace,
    Step,
    Task,
    Visibility,
    default_confidence,
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
    return RecordedRun(
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
        facts=tuple(map(_facts, logged)),
        confidence_source=_confidence_source(recorder),
        success_source="assumed" if recorder.is_success_assumed else "said",
        part=_part(recorder, logged),
    )


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


def _facts(step: StepFields) -> StepFacts:
    place, call = step.get("place") or Place(), step.get("model_call") or ModelCall()
    agent, call_id = _name(place.agent) or None, step.get("call_id")
    at, took_ms = step.get("at"), call.latency_ms or step.get("latency_ms") or 0.0
    return StepFacts(
        started_at_s=None if at is None else at - took_ms / 1000,
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
