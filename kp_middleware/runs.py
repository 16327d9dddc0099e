"""A finished run: its document, and facts without a field in the document."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel

from kp_middleware.core.evaluation import Ending
from kp_middleware.core.formula import Shape
from kp_middleware.outbox_items import OutboxItem
from kp_middleware.traces import ReasoningTrace

__all__ = ["Awaited", "ExportedRun", "RecordedRun", "Source", "StepFacts", "ThreadPart",
           "fingerprint"]  # fmt: skip

Awaited: TypeAlias = Literal["human", "turn"]
"""The event that a run waits for: a person's decision, or the next turn of its thread."""

Source: TypeAlias = Literal["said", "extracted", "feedback", "verdict", "estimated", "assumed"]
"""The source of a run's outcome: the program, its result, feedback after its end, the file that it
was imported from, the estimate (of confidence alone), or the default."""


class StepFacts(NamedTuple):
    """Facts about a step without a field in the document.

    Attributes:
        started_at_s: Seconds since the epoch, or None if it is unknown.
        agent: The inner agent that took the step, or None.
        call_id: Fingerprint of the tool call that it makes or answers, or None.
        parent: The ``call_id`` of the tool call around it, else the name of the inner agent, else
            None.
        model, input_tokens, output_tokens, model_latency_ms: Of its model call;
            only the first step of a call has them.
    """

    started_at_s: float | None = None
    agent: str | None = None
    call_id: str | None = None
    parent: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_latency_ms: float | None = None


class ThreadPart(BaseModel, frozen=True):
    """A run that continues one waiting in its thread, or waits there itself, or both.

    Ids and names are fingerprints, because they may contain secrets.
    """

    thread: str
    follows: bool = False
    awaits: Awaited | None = None  # the event that it waits for; None if it has ended
    was_asked: bool = False  # its input has an objective, which in a later part is a user's turn
    questions: tuple[str, ...] = ()  # ids of its questions to a person
    answers: tuple[str, ...] = ()  # the questions that its input answers; empty: the last ones
    agent: str | None = None
    tools: tuple[str, ...] = ()
    pending_calls: tuple[str, ...] = ()  # their ids
    calls: dict[int, str] = {}  # call or question ids by step, if an earlier part may have it too


class RecordedRun(BaseModel, frozen=True):
    """A recorded run, as the pipeline receives it."""

    trace: ReasoningTrace  # as it was recorded; ``metadata.quality_score`` is 0
    shape: Shape  # the counts of all its steps, including those left out of the document
    duration_ms: int | None = None
    complete: bool = True  # False: cancelled, timed out or abandoned; stored, but not scored
    error_type: str | None = None
    agent_name: str | None = None
    model: str | None = None
    thread_id: str | None = None
    tags: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    facts: tuple[StepFacts, ...] = ()  # of each step of the document, in order; empty if unknown
    confidence_source: Source = "said"
    success_source: Source = "said"
    part: ThreadPart | None = None
    redactions: dict[str, int] = {}  # counts before it was stored, by label
    owner: str | None = None  # the fingerprint of its owner, such as a customer
    recalled: tuple[str, ...] = ()  # ids of the traces recalled in it

    @property
    def ending(self) -> Ending:
        """The success and confidence, with their sources."""
        success, confidence = self.trace.metadata.success, self.trace.outcome.confidence
        return Ending(success, confidence, self.success_source, self.confidence_source)

    def ended(self, ending: Ending) -> Self:
        """Return the same run with another ending."""
        success, confidence, *sources = ending
        trace = self.trace.ended(success=success, confidence=confidence)
        changes = dict(zip(("success_source", "confidence_source"), sources, strict=True))
        return self.model_copy(update={"trace": trace, **changes})


def fingerprint(name: str) -> str:
    """Return a hash to store in place of an id."""
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun(OutboxItem):
    """A run for an exporter of `KnowledgePulse.add_exporter`: ``body`` has its texts.

    Attributes:
        trace_id: The id of its trace: ``kp:trace:…``.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        duration_ms: The duration; None if it was not measured.
        state: ``scored``, ``incomplete`` or ``failed``.
        score: From 0 to 1; None if it has none.
        signals: The four signals of the score by name, each from 0 to 1.
        decision: The gate's, ``forward`` or ``withhold``; None if there is none.
        reason_code: The reason for it.
        gate: The name and setting of the gate.
        thread_id: The conversation.
        error_type: The exception that ended it.
        input_tokens, output_tokens: The tokens that its models read and wrote.
        steps: One for each step in ``body``.
    """

    trace_id: str
    started_at: str
    duration_ms: int | None
    state: str
    score: float | None
    signals: Mapping[str, float]
    decision: str | None
    reason_code: str | None
    gate: str | None
    agent_name: str | None
    model: str | None
    thread_id: str | None
    error_type: str | None
    input_tokens: int | None
    output_tokens: int | None
    steps: tuple[StepFacts, ...]
