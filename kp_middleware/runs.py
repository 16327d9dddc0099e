"""One finished run: its document, and the facts about it that the document has no place for."""

from pydantic import BaseModel

from kp_middleware.scores import Shape
from kp_middleware.traces import ReasoningTrace


class RecordedRun(BaseModel, frozen=True):
    """What recording gives to the pipeline.

    Attributes:
        trace: The document, as it was recorded; ``metadata.quality_score`` is 0.
        shape: The true counts of its steps, also where the document holds only a part of them.
        duration_ms: From start to end, or None where it was not measured.
        complete: False where the run was cancelled, timed out or abandoned: it is kept, not scored.
        error_type: The class of the error that ended the run, or None.
        agent_name, model, thread_id: Named by the framework, or None.
        tags: As the user gave them.
        input_tokens, output_tokens: Summed over the run, or None where the model did not say.
    """

    trace: ReasoningTrace
    shape: Shape
    duration_ms: int | None = None
    complete: bool = True
    error_type: str | None = None
    agent_name: str | None = None
    model: str | None = None
    thread_id: str | None = None
    tags: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
