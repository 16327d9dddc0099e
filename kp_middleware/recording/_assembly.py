"""Build the frozen document of a finished run, on the worker's thread."""

from collections.abc import Iterable, Mapping
from typing import Final

from kp_middleware.instants import instant
from kp_middleware.recording._limits import NAME_BYTES, bounded_text
from kp_middleware.recording._recorder import Recorder
from kp_middleware.recording._step_log import Beside, StepFields
from kp_middleware.runs import RecordedRun, ThreadPart, fingerprint
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
    steps, beside = _apart(recorder.log.steps())
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
        agents={at: _name(said.agent) or "" for at, said in beside.items() if said.agent},
        part=_part(recorder, beside),
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


def _apart(logged: Iterable[StepFields]) -> tuple[list[StepFields], dict[int, Beside]]:
    """The fields of the document's steps, and what stands beside them, by position."""
    steps = [_rounded(step) for step in logged]
    beside = {at: step.pop("beside") for at, step in enumerate(steps) if "beside" in step}
    return steps, beside


def _rounded(step: StepFields) -> StepFields:
    """A copy, with its time to the microsecond."""
    if "latency_ms" not in step:
        return dict(step)
    return {**step, "latency_ms": round(step["latency_ms"], 3)}


def _part(recorder: Recorder, beside: Mapping[int, Beside]) -> ThreadPart | None:
    notes, thread_id = recorder.thread_notes, recorder.thread_id
    if thread_id is None:
        return None
    return ThreadPart(
        thread=fingerprint(str(thread_id)),
        follows=notes.follows,
        awaits=notes.awaits,
        is_sure=recorder.confidence is not None,
        was_asked=bool(recorder.objective) and not notes.overheard,
        questions=tuple(map(fingerprint, notes.questions)),
        answers=tuple(map(fingerprint, notes.answers)),
        agent=None if notes.agent is None else fingerprint(notes.agent),
        tools=tuple(sorted(map(fingerprint, recorder.log.tools()))),
        owed=tuple(map(fingerprint, notes.owed)),
        calls={
            at: fingerprint(said.call_id) for at, said in beside.items() if said.call_id is not None
        },
    )


def _name(given: object) -> str | None:
    """What a user or a framework calls something: it may be of any type."""
    return None if given is None else bounded_text(str(given), NAME_BYTES)


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
