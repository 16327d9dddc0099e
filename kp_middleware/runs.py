"""One finished run: its document, and facts that the document has no field for."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from pydantic import BaseModel

from kp_middleware.core.formula import Shape
from kp_middleware.outbox_items import OutboxItem
from kp_middleware.traces import ReasoningTrace

Awaited: TypeAlias = Literal["human", "turn"]
"""The event that a run waits for: a person's decision, or the next turn of its thread."""

Source: TypeAlias = Literal["said", "extracted", "feedback", "verdict", "estimated", "assumed"]
"""The source of a run's outcome: the program, its result, feedback after its end, the file that it
was imported from, the estimate (of confidence alone), or nobody."""


class StepFacts(NamedTuple):
    """Facts about a step that the document has no field for.

    Attributes:
        started_at_s: Seconds since the epoch, or None where nobody measured it.
        agent: The agent inside the run's own that took it, or None.
        call_id: Fingerprint of the tool call that it makes or answers, or None.
        parent: What it happened inside of: the ``call_id`` of a tool call, else the name of an
            inner agent, else None.
        model, input_tokens, output_tokens, model_latency_ms: Of the model call that it came from;
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

    Ids and names are fingerprints, so that they may be written whatever they hold.

    Attributes:
        awaits: What must come before it can go on; None: it has ended.
        was_asked: Whether its input said what it is for: in a later part, that is a turn.
        questions: Ids of what it asks a person.
        answers: Ids of the questions that its input answers; none: of whatever was asked last.
        owed: Ids of the tool calls that have no result yet.
        calls: By the position of a step, the id of the call that it makes or answers, or of the
            question that it asks, where an earlier part may have the same.
    """

    thread: str
    follows: bool = False
    awaits: Awaited | None = None
    was_asked: bool = False
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    agent: str | None = None
    tools: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()
    calls: dict[int, str] = {}


class RecordedRun(BaseModel, frozen=True):
    """A recorded run, as recording hands it to the pipeline.

    Attributes:
        trace: The document, as it was recorded; ``metadata.quality_score`` is 0.
        shape: The true counts of its steps, also where the document holds only a part of them.
        complete: False where the run was cancelled, timed out or abandoned: it is kept, not scored.
        facts: Of each step of the document, in order; empty where nobody noted them.
        redactions: What was taken out of it before it was written: counts by label.
        owner: Fingerprint of whose it is, such as a customer's, or None.
        recalled: Ids of the traces that it was told of.
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
    facts: tuple[StepFacts, ...] = ()
    confidence_source: Source = "said"
    success_source: Source = "said"
    part: ThreadPart | None = None
    redactions: dict[str, int] = {}
    owner: str | None = None
    recalled: tuple[str, ...] = ()


def fingerprint(name: str) -> str:
    """Return a hash to store in place of an id.

    >>> fingerprint("thread 1") == fingerprint("thread 1") != fingerprint("thread 2")
    True
    """
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun(OutboxItem):
    """A run for an exporter of `KnowledgePulse.add_exporter`: ``body`` has what was said.

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
