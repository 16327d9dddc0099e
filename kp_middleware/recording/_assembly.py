"""Build the frozen document of a finished run, on the worker's thread."""

from datetime import UTC, datetime

from kp_middleware.recording._limits import NAME_BYTES, bounded_text
from kp_middleware.recording._recorder import Recorder
from kp_middleware.runs import RecordedRun
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


def assemble(
    recorder: Recorder,
    *,
    domain: str,
    visibility: Visibility,
    privacy_level: PrivacyLevel,
    agent_id: str | None,
) -> RecordedRun | None:
    """The run that a recorder took notes of, or None if it has no step.

    Args:
        recorder: Of a run that has finished.
        domain: Where the recorder names none.
        visibility: Who may see the document.
        privacy_level: How much is removed before it leaves.
        agent_id: Of the agent at the registry, or None.
    """
    if recorder.log.count == 0:
        return None
    success = bool(recorder.success)
    stated = recorder.confidence
    trace = ReasoningTrace(
        context=CONTEXT,
        kind="ReasoningTrace",
        id=recorder.trace_id,
        metadata=Metadata.model_validate(
            _present(
                created_at=_instant(recorder.started_at_s),
                agent_id=agent_id,
                framework=_name(recorder.framework),
                task_domain=_name(recorder.domain) or domain,
                success=success,
                quality_score=0,
                visibility=visibility,
                privacy_level=privacy_level,
            )
        ),
        task=Task(objective=recorder.objective or _name(recorder.agent_name) or "(not said)"),
        steps=_steps(recorder),
        outcome=Outcome(
            result_summary=recorder.result_summary,
            confidence=default_confidence(success=success) if stated is None else stated,
        ),
    )
    return RecordedRun(
        trace=trace,
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
    )


def _steps(recorder: Recorder) -> tuple[Step, ...]:
    return tuple(
        Step.model_validate({"step_id": number, **step})
        for number, step in enumerate(recorder.log.steps())
    )


def _name(given: object) -> str | None:
    """What a user or a framework calls something: it may be of any type."""
    return None if given is None else bounded_text(str(given), NAME_BYTES)


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _instant(epoch_s: float) -> str:
    instant = datetime.fromtimestamp(epoch_s, UTC)
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
