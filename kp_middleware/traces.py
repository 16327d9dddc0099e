"""The ReasoningTrace document: one agent run, as agents share it.

It follows the protocol's schema: strict types, unknown keys dropped (except in ``input`` and
``input_schema``), optional fields absent rather than null.
"""

import math
import operator
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
)

from kp_middleware.core.evaluation import default_confidence
from kp_middleware.core.formula import Shape
from kp_middleware.instants import instant

__all__ = ["CONTEXT", "DocumentPart", "Entity", "KnowledgeGraphDelta", "Limits", "Metadata",
           "NonEmpty", "Outcome", "PrivacyLevel", "ReasoningTrace", "Relationship", "Step",
           "StepType", "Task", "Tool", "Visibility", "fresh_id", "texts_in"]  # fmt: skip

StepType: TypeAlias = Literal["thought", "tool_call", "observation", "error_recovery"]
Visibility: TypeAlias = Literal["private", "org", "network"]
PrivacyLevel: TypeAlias = Literal["aggregated", "federated", "private"]

CONTEXT: Final = "https://openknowledgepulse.org/schema/v1"


@dataclass(frozen=True)
class Limits:
    """Limits that keep a run from exhausting memory; the defaults of their settings."""

    field_bytes: int = 64 * 1024  # of a text or an input
    steps: int = 1000
    trace_bytes: int = 1024 * 1024


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?Z",
    re.ASCII,
)


def _utc_instant(text: str) -> str:
    if not _INSTANT.fullmatch(text):
        raise ValueError("timestamp must be UTC, like 2026-11-01T09:14:03.120Z")
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        raise ValueError(f"no such date: {text[:10]}") from None
    return text


def _replace_surrogates(text: str) -> str:
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _to_int(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _to_json(value: Any, depth: int = 1) -> Any:
    """Return a copy that JSON can represent; redaction rejects values nested too deeply."""
    if depth > 100:
        return value
    match value:
        case str():
            return _replace_surrogates(value)
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [_to_json(item, depth + 1) for item in value]
        case dict():
            return {_replace_surrogates(str(key)): _to_json(value[key], depth + 1) for key in value}
        case _:
            return value


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value, as text.

    >>> [*texts_in({"command": ["make", "-j", 4], "env": None})]
    ['make', '-j', '4']
    """
    match value:
        case dict() | list():
            for part in value.values() if isinstance(value, dict) else value:
                yield from texts_in(part)
        case str() | int() | float():
            yield str(value)


Unit: TypeAlias = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1, inclusive."""

Text: TypeAlias = Annotated[str, AfterValidator(_replace_surrogates)]
"""A text that UTF-8 can encode: a lone surrogate becomes U+FFFD."""

NonEmpty: TypeAlias = Annotated[Text, Field(min_length=1)]
_JsonObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_to_json)]
"""A JSON copy: NaN and infinity become null, tuples lists, keys strings."""

_Instant: TypeAlias = Annotated[str, AfterValidator(_utc_instant)]
"""ISO 8601 in UTC with ``Z``, as a text: a datetime would lose nanoseconds."""

_Context: TypeAlias = Annotated[
    Literal["https://openknowledgepulse.org/schema/v1", "https://knowledgepulse.dev/schema/v1"],
    AfterValidator(lambda _: CONTEXT),
]
_Absent = (
    Field(exclude_if=partial(operator.is_, None)),
    GetPydanticSchema(lambda source, handler: handler(source)["schema"]),  # null is none
)
_AnySequence = Field(strict=False)  # strict Python input would refuse a list for a tuple


class DocumentPart(BaseModel):
    """The base class of all parts of a document."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class Tool(DocumentPart):
    """The tool of a step."""

    name: Text
    mcp_server: Annotated[Text | None, *_Absent] = None


class Step(DocumentPart):
    """A step of a run: ``content`` is embedded, long results go to ``output_summary``."""

    step_id: Annotated[int, Field(ge=0), BeforeValidator(_to_int)]
    type: StepType
    content: Annotated[Text | None, *_Absent] = None
    tool: Annotated[Tool | None, *_Absent] = None
    input: Annotated[_JsonObject | None, *_Absent] = None
    output_summary: Annotated[Text | None, *_Absent] = None
    latency_ms: Annotated[Annotated[float, Field(ge=0)] | None, *_Absent] = None


class Metadata(DocumentPart):
    """The place, time and quality of a run. ``quality_score`` is 0 until scored.

    The protocol requires ``success``; if nothing reported it, ``success_source`` is ``assumed``.
    """

    created_at: _Instant
    agent_id: Annotated[Text | None, *_Absent] = None
    framework: Annotated[Text | None, *_Absent] = None
    task_domain: NonEmpty
    success: bool
    success_source: Annotated[Literal["assumed"] | None, *_Absent] = None
    quality_score: Unit
    visibility: Visibility
    privacy_level: PrivacyLevel
    validated_by: Annotated[Annotated[tuple[Text, ...], _AnySequence] | None, *_Absent] = None


class Task(DocumentPart):
    """The task: the question or instruction that the run was given."""

    objective: NonEmpty
    input_schema: Annotated[_JsonObject | None, *_Absent] = None


class Outcome(DocumentPart):
    """The outcome, and the agent's confidence in it."""

    result_summary: Text
    confidence: Unit


class Entity(DocumentPart):
    """An entity that the run learned about."""

    name: Text
    type: Text


class Relationship(DocumentPart):
    """A fact that the run learned."""

    fact: Text
    valid_from: Text


class KnowledgeGraphDelta(DocumentPart):
    """The entities and relationships that the run adds to a knowledge graph."""

    entities: Annotated[tuple[Entity, ...], _AnySequence]
    relationships: Annotated[tuple[Relationship, ...], _AnySequence]


class ReasoningTrace(DocumentPart):
    """One agent run as a JSON-LD document.

    ``model_validate(document)`` reads one, ``model_dump_json()`` writes one, ``of`` makes one.

    Raises:
        pydantic.ValidationError: With the path of each invalid value.
    """

    context: Annotated[_Context, Field(alias="@context")]
    kind: Annotated[Literal["ReasoningTrace"], Field(alias="@type")]
    id: Annotated[Text, Field(pattern=r"\Akp:trace:")]
    source_skill: Annotated[Text | None, *_Absent] = None
    metadata: Metadata
    task: Task
    # counted after the items, so that a bad first step is one issue, not two
    steps: Annotated[tuple[Step, ...], _AnySequence, AfterValidator(tuple), Field(min_length=1)]
    outcome: Outcome
    knowledge_graph_delta: Annotated[KnowledgeGraphDelta | None, *_Absent] = None

    @classmethod
    def of(
        cls,
        objective: str,
        steps: Iterable[Step],
        *,
        result_summary: str = "",
        domain: str = "general",
        success: bool = True,
        confidence: float | None = None,
    ) -> Self:
        """Make a new trace with a fresh id, created now.

        Args:
            objective: What was asked; not empty.
            steps: What happened, at least one step.
            result_summary: The final answer; may be empty.
            domain: Selects the weights of the score.
            success: Whether the task was completed.
            confidence: The agent's confidence, 0 to 1; None means 0.8 on success, 0.2 on failure.

        >>> trace = ReasoningTrace.of("add 1 and 2", [Step(step_id=0, type="thought", content="3")])
        >>> trace.metadata.success, trace.outcome.confidence
        (True, 0.8)
        """
        if confidence is None:
            confidence = default_confidence(success=success)
        return cls(
            context=CONTEXT,
            kind="ReasoningTrace",
            id=fresh_id(),
            metadata=Metadata(
                created_at=instant(time.time()),
                task_domain=domain,
                success=success,
                quality_score=0,
                visibility="network",
                privacy_level="aggregated",
            ),
            task=Task(objective=objective),
            steps=tuple(steps),
            outcome=Outcome(result_summary=result_summary, confidence=confidence),
        )

    @property
    def shape(self) -> Shape:
        """The counts of this document's steps, for the formula."""
        types = [step.type for step in self.steps]
        return Shape(
            steps=len(types),
            types=frozenset(types),
            tools=len({step.tool.name for step in self.steps if step.tool is not None}),
            recoveries=types.count("error_recovery"),
        )

    def ended(self, *, success: bool, confidence: float) -> Self:
        """Return the same run with another outcome; ``confidence`` is from 0 to 1."""
        metadata = self.metadata.model_copy(update={"success": success})
        outcome = self.outcome.model_copy(update={"confidence": confidence})
        return self.model_copy(update={"metadata": metadata, "outcome": outcome})


def fresh_id() -> str:
    """Return a new trace id, without ``uuid4``, which programs patch and count."""
    return f"kp:trace:{uuid.UUID(bytes=os.urandom(16), version=4)}"
