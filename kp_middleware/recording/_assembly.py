"""Build the frozen document of a finished run, on the worker's thread."""

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

_NO_STEP: Final[StepFields] = {"type": "observation"}  # a document has at least one


def assemble(
    recorder: Recorder,
    *,
    domain: str,
    visibility: Visibility,
    privacy_level: PrivacyLevel,
    agent_id: str | None,
) -> RecordedRun | None:
    """The run that a recorder took notes of, or None if it has no step and goes on with no other.

    Where it has none and goes on, ``shape.steps`` is 0, and the document's one step stands in.

    Args:
        recorder: Of a run that has finished.
        domain: Where the recorder names none.
        visibility: Who may see the document.
        privacy_level: How much is removed before it leaves.
        agent_id: Of the agent at the registry, or None.
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
    """The steps of a document."""
    return tuple(
        Step.model_validate({**step, "step_id": number}) for number, step in enumerate(steps)
    )


def _document_fields(step: StepFields) -> StepFields:
    """Return a copy with the document's fields alone, its time to the microsecond."""
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
    """The ids of calls by the steps' positions; not those that we made up."""
    return {
        at: fingerprint(step["call_id"])
        for at, step in enumerate(logged)
        if "call_id" in step and not step["call_id"].startswith(OWN_CALL_IDS)
    }


def _name(given: object) -> str | None:
    """What a user or a framework calls something: it may be of any type."""
    return None if given is None else bounded_text(str(given), NAME_BYTES)


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
