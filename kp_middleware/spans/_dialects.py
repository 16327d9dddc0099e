"""The dialects of OpenTelemetry spans, told apart by key for each span."""

from collections.abc import Sequence
from typing import Any, Final

from kp_middleware.spans import _genai, _openinference
from kp_middleware.spans._fields import first_text
from kp_middleware.spans._reading import (
    Attributes,
    Event,
    Kind,
    Reading,
    cancellation_of,
    problem_of,
)

_OPENLLMETRY: Final[dict[str, Kind]] = {
    "workflow": "agent",
    "agent": "agent",
    "task": "chain",
    "tool": "tool",
}
_TALKS: Final = tuple(
    f"traceloop.association.properties.{key}"
    for key in ("session_id", "thread_id", "conversation_id", "chat_id")
)
_MOST_CHARACTERS: Final = 1 << 20
_READ: Final = (
    *("gen_ai.", "openinference.", "traceloop.", "llm.", "input.", "output.", "tool", "agent."),
    *("graph.node.id", "session.id", "final_result", "error.type", "strands."),
)
_NOT_READ: Final = (
    *("gen_ai.tool.definitions", "gen_ai.system_instructions", "gen_ai.tool.description"),
    *("llm.tools", "llm.invocation_parameters", "tool.description", "traceloop.entity.path"),
)
_NO_INPUT: Final = (
    *_NOT_READ,
    *("gen_ai.input.messages", "gen_ai.prompt.", "llm.input_messages.", "input.value"),
)


def kind_of(attributes: Attributes) -> Kind | None:
    """Return the kind of a span by its attributes, or None if it is not an agent's."""
    return (
        _genai.kind_of(attributes)
        or _openinference.kind_of(attributes)
        or _openllmetry_kind(attributes)
    )


def _openllmetry_kind(attributes: Attributes) -> Kind | None:
    said = attributes.get("traceloop.span.kind")
    if isinstance(said, str):
        return _OPENLLMETRY.get(said.lower())
    return "model" if isinstance(attributes.get("llm.request.type"), str) else None


def kept(attributes: Attributes, *, with_input: bool) -> dict[str, Any]:
    """Return the attributes that a reading needs, to hold them until a run is over."""
    left_out = _NOT_READ if with_input else _NO_INPUT
    return {
        key: value[:_MOST_CHARACTERS] if type(value) is str else value
        for key, value in attributes.items()
        if key.startswith(_READ) and not key.startswith(left_out)
    }


def read(
    name: str,
    attributes: Attributes,
    events: Sequence[Event] = (),
    *,
    kind: Kind | None = None,
    failed: bool = False,
    description: object = None,
    with_input: bool = True,
) -> Reading:
    """Return the reading of a span that has ended.

    ``failed`` and ``description`` are its status, ``kind`` counts if the attributes tell none, and
    ``with_input`` reads the messages that a model was given.
    """
    kind = kind_of(attributes) or kind
    if kind is None:
        return Reading(None)
    if _is_openinference(attributes):
        reading = _openinference.read(kind, name, attributes, with_input=with_input)
    else:
        reading = _genai.read(kind, name, attributes, events, with_input=with_input)
        if kind == "agent" and reading.conversation is None:
            reading = reading._replace(conversation=first_text(attributes, *_TALKS) or None)
    problem = cancellation_of(attributes, events)
    if failed:
        problem = problem_of(attributes, events, description)
    return reading._replace(problem=problem)


def _is_openinference(attributes: Attributes) -> bool:
    if _genai.kind_of(attributes) is not None:
        return False
    if _openinference.kind_of(attributes) is not None:
        return True
    is_other = _openllmetry_kind(attributes) is not None
    return not is_other and ("input.value" in attributes or "output.value" in attributes)
