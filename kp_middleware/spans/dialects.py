"""The dialects of OpenTelemetry spans, told apart by key for each span.

The GenAI conventions have messages as attributes, and before 1.37 as events; OpenLLMetry had flat
keys before 0.6; OpenInference flattens messages into attributes whose indexes may have gaps.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kp_middleware.recording import ToolCall
from kp_middleware.spans.held_span import (
    Attributes,
    Event,
    Kind,
    Reading,
    cancellation_of,
    handoff_to,
    model_reading,
    problem_of,
)
from kp_middleware.spans.messages import (
    Fields,
    Said,
    arguments,
    asked_in,
    fields,
    first_text,
    last_text,
    messages_in,
    objects,
    parsed,
    said_in,
    text,
)

_LLM: Final = "llm.request.type"
_OPENINFERENCE: Final = "openinference.span.kind"
_KINDS: Final[dict[str, dict[str, Kind]]] = {
    "gen_ai.operation.name": {
        "invoke_agent": "agent",
        "invoke_workflow": "agent",
        "chat": "model",
        "generate_content": "model",
        "text_completion": "model",
        "execute_tool": "tool",
        "retrieval": "retriever",
        "search_memory": "retriever",
        "execute_task": "chain",
        "execute_event_loop_cycle": "chain",
    },
    _OPENINFERENCE: {
        "agent": "agent",
        "llm": "model",
        "tool": "tool",
        "retriever": "retriever",
        "chain": "chain",
    },
    "traceloop.span.kind": {
        "workflow": "agent",
        "agent": "agent",
        "task": "chain",
        "tool": "tool",
    },
}
_CONVERSATION: Final = (
    "gen_ai.conversation.id",
    *(
        f"traceloop.association.properties.{key}"
        for key in ("session_id", "thread_id", "conversation_id", "chat_id")
    ),
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
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_SAID: Final = {"gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant"}
_GIVEN: Final = ("gen_ai.tool.call.arguments", "tool_arguments", "traceloop.entity.input")
_RESULT: Final = ("gen_ai.tool.call.result", "tool_response", "traceloop.entity.output")
_MERGED: Final = "(merged tools)"
_HANDOFF: Final = "handoff to "


def kind_of(attributes: Attributes) -> Kind | None:
    """Return the kind of a span by its attributes, or None if it is not an agent's."""
    return _dialect_of(attributes)[1]


def _dialect_of(attributes: Attributes) -> tuple[str | None, Kind | None]:
    """Return the key that tells the kind of a span, and the kind."""
    for key, kinds in _KINDS.items():
        said = attributes.get(key)
        kind = kinds.get(said.lower()) if isinstance(said, str) else None
        if kind == "tool" and attributes.get("gen_ai.tool.name") == _MERGED:
            return None, None
        if kind is not None:
            return key, kind
    is_model = isinstance(attributes.get(_LLM), str)
    return (_LLM, "model") if is_model else (None, None)


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
    key, told = _dialect_of(attributes)
    kind = told or kind
    if kind is None:
        return Reading(None)
    has_values = "input.value" in attributes or "output.value" in attributes
    if key == _OPENINFERENCE or (key is None and has_values):
        reading = _openinference(kind, name, attributes, with_input=with_input)
    else:
        reading = _genai(kind, name, attributes, events, with_input=with_input)
    problem = cancellation_of(attributes, events)
    if failed:
        problem = problem_of(attributes, events, description)
    return reading._replace(problem=problem)


def _genai(
    kind: Kind, name: str, attributes: Attributes, events: Sequence[Event], *, with_input: bool
) -> Reading:
    talk = first_text(attributes, *_CONVERSATION) or None
    if kind == "model":
        return model_reading(
            _messages(attributes, events, "input") if with_input else [],
            _messages(attributes, events, "output"),
            first_text(attributes, "gen_ai.response.model", "gen_ai.request.model"),
            attributes.get("gen_ai.usage.input_tokens"),
            attributes.get("gen_ai.usage.output_tokens"),
        )._replace(conversation=talk)
    if kind in {"tool", "retriever"}:
        return Reading(
            kind,
            first_text(attributes, "gen_ai.tool.name", "traceloop.entity.name") or name,
            call_id=first_text(attributes, "gen_ai.tool.call.id") or None,
            given=_given(attributes, events),
            result=_result(attributes, events),
        )
    answer = text(attributes.get("final_result")) and parsed(attributes["final_result"])
    is_complete = None  # Pydantic AI alone tells it
    if "final_result" in attributes or "gen_ai.agent.call.id" in attributes:
        is_complete = "final_result" in attributes
    return Reading(
        kind,
        first_text(attributes, "gen_ai.agent.name"),
        answer=answer or last_text(_messages(attributes, events, "output")) or None,
        asked=asked_in(_messages(attributes, events, "input")),
        conversation=talk,
        complete=is_complete,
    )


def _messages(attributes: Attributes, events: Iterable[Event], way: str) -> list[Said]:
    key = f"gen_ai.{way}.messages"
    found = parsed(attributes.get(key))
    old: list[Said] = []
    for event in events:
        if event.name == _DETAILS and key in event.attributes:
            found = parsed(event.attributes[key])
        elif way == "input" and event.name in _SAID:
            old.append(_event_said(_SAID[event.name], event.attributes.get("content")))
        elif way == "output" and event.name == "gen_ai.choice":
            old = [_event_said("assistant", event.attributes.get("message"))]
    if found is None:
        return old or [*_numbered(attributes, "prompt" if way == "input" else "completion")]
    if way == "input" and isinstance(found, str):  # cut in the middle
        return []
    return messages_in(found, "assistant")


def _event_said(role: str, content: object) -> Said:
    """Return the message of an event: a text, OpenAI's message, or a list of Bedrock's blocks."""
    found = parsed(content)
    if isinstance(found, dict):
        message = {"role": role, **found, "content": parsed(found.get("content"))}
    else:
        message = {"role": role, "content": found}
    return said_in(message) or Said(role)


def _numbered(attributes: Attributes, way: str) -> Iterator[Said]:
    """Yield the messages of OpenLLMetry before 0.6: ``gen_ai.prompt.0.content``."""
    for number in range(1000):
        start = f"gen_ai.{way}.{number}."
        role = attributes.get(f"{start}role")
        content = attributes.get(f"{start}content")
        calls = [*_numbered_calls(attributes, start)]
        if role is None and content is None and not calls:
            return
        said = _event_said(text(role) or "assistant", content)
        yield said._replace(calls=(*said.calls, *calls))


def _numbered_calls(attributes: Attributes, start: str) -> Iterator[ToolCall]:
    for number in range(100):
        call = f"{start}tool_calls.{number}."
        tool = text(attributes.get(f"{call}name"))
        if not tool:
            return
        given = arguments(attributes.get(f"{call}arguments"))
        yield ToolCall(tool, given, text(attributes.get(f"{call}id")) or None)


def _given(attributes: Attributes, events: Iterable[Event]) -> Fields | None:
    for key in _GIVEN:
        if key in attributes:
            return arguments(attributes[key])
    for event in events:
        if event.name == "gen_ai.tool.message" and "content" in event.attributes:
            return arguments(event.attributes["content"])
    return None


def _result(attributes: Attributes, events: Iterable[Event]) -> object:
    for key in _RESULT:
        if key in attributes:
            return parsed(attributes[key])
    found = None
    for event in events:
        if event.name == "gen_ai.choice" and "message" in event.attributes:
            found = parsed(event.attributes["message"])
        elif event.name == _DETAILS and "gen_ai.output.messages" in event.attributes:
            messages = objects(parsed(event.attributes["gen_ai.output.messages"]))
            parts = [part for message in messages for part in objects(message.get("parts"))]
            for part in parts:  # Strands reports a tool as it reports a model
                if part.get("type") == "tool_call_response":
                    found = part.get("response", part.get("result"))
    return found


def _openinference(kind: Kind, name: str, attributes: Attributes, *, with_input: bool) -> Reading:
    if kind == "model":
        return model_reading(
            _flat_messages(attributes, "input", "user") if with_input else [],
            _flat_messages(attributes, "output", "assistant"),
            first_text(attributes, "llm.model_name"),
            attributes.get("llm.token_count.prompt"),
            attributes.get("llm.token_count.completion"),
        )
    if kind in {"tool", "retriever"}:
        if name.startswith(_HANDOFF):
            return handoff_to(name.removeprefix(_HANDOFF))
        result = parsed(attributes.get("output.value"))
        return Reading(
            kind,
            first_text(attributes, "tool.name") or name,
            call_id=first_text(attributes, "tool_call.id", "tool.id") or None,
            given=_flat_given(attributes),
            result=fields(fields(result).get("data")).get("content", result),  # LangChain's message
        )
    asked = text(attributes.get("input.value")) if kind == "agent" else ""
    task = fields(parsed(asked)).get("task") if asked.startswith("{") else ""
    return Reading(
        kind,
        first_text(attributes, "agent.name", "graph.node.id") if kind == "agent" else "",
        answer=last_text(_all_said(_flat(attributes, "output"))) or None,
        output=parsed(attributes["output.value"]) if "output.value" in attributes else None,
        task=text(task),
        conversation=first_text(attributes, "session.id") or None,
    )


def _flat_messages(attributes: Attributes, way: str, role: str) -> list[Said]:
    flat = _flat(attributes, way)
    if flat and all("role" in message for message in flat):
        return _all_said(flat)
    # The SDK drops the oldest of more than 128 attributes: roles go first.
    return messages_in(attributes.get(f"{way}.value"), role) or _all_said(flat)


def _all_said(messages: list[Fields]) -> list[Said]:
    return [said for one in messages if (said := said_in(one, "assistant")) is not None]


def _flat(attributes: Attributes, way: str) -> list[Fields]:
    tree: Fields = {}
    start = f"llm.{way}_messages."
    for key, value in attributes.items():
        if key.startswith(start):
            at = tree
            *path, last = key[len(start) :].split(".")
            for step in path:
                inner = at.setdefault(step, {})
                if not isinstance(inner, dict):
                    break
                at = inner
            else:
                at[last] = value
    return [
        {
            **message,
            "contents": _ordered(message.get("contents"), "message_content"),
            "tool_calls": _ordered(message.get("tool_calls"), "tool_call"),
        }
        for message in _ordered(tree, "message")
    ]


def _ordered(node: object, inside: str) -> list[Fields]:
    tree = fields(node)
    numbers = sorted((key for key in tree if key.isdecimal() and len(key) < 9), key=int)
    return [fields(fields(tree[key]).get(inside)) for key in numbers]


def _flat_given(attributes: Attributes) -> Fields | None:
    for key in ("input.value", "tool.parameters.value", "tool_call.function.arguments"):
        if key in attributes:
            given = arguments(attributes[key])
            inner = given.get("kwargs")
            return inner if isinstance(inner, dict) else given
    return None
