"""The GenAI conventions of OpenTelemetry: messages as attributes, and as events before 1.37."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kp_middleware.recording import ToolCall
from kp_middleware.spans._fields import arguments, first_text, objects, parsed, text
from kp_middleware.spans._reading import Attributes, Event, Kind, Reading
from kp_middleware.spans._said import (
    Said,
    asked_in,
    last_text,
    messages_in,
    results_in,
    said_in,
    turn_of,
)

_KINDS: Final[dict[object, Kind]] = {
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
}
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_SAID: Final = {"gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant"}
_MERGED: Final = "(merged tools)"


def kind_of(attributes: Attributes) -> Kind | None:
    """Return the kind of a span, or None if this dialect does not say it."""
    operation = attributes.get("gen_ai.operation.name")
    kind = _KINDS.get(operation) if isinstance(operation, str) else None
    return None if kind == "tool" and attributes.get("gen_ai.tool.name") == _MERGED else kind


def read(
    kind: Kind, name: str, attributes: Attributes, events: Sequence[Event], *, with_input: bool
) -> Reading:
    """Return the reading of a span."""
    talk = first_text(attributes, "gen_ai.conversation.id") or None
    if kind == "model":
        model = first_text(attributes, "gen_ai.response.model", "gen_ai.request.model")
        given = _messages(attributes, events, "input") if with_input else []
        turn = turn_of(
            _messages(attributes, events, "output"),
            model or None,
            attributes.get("gen_ai.usage.input_tokens"),
            attributes.get("gen_ai.usage.output_tokens"),
        )
        return Reading(
            kind, model, turn, asked_in(given), results=results_in(given), conversation=talk
        )
    if kind in {"tool", "retriever"}:
        return Reading(
            kind,
            first_text(attributes, "gen_ai.tool.name", "traceloop.entity.name") or name,
            call_id=first_text(attributes, "gen_ai.tool.call.id") or None,
            given=_given(attributes, events),
            result=_result(attributes, events),
        )
    answer = text(attributes.get("final_result")) and parsed(attributes["final_result"])
    return Reading(
        kind,
        first_text(attributes, "gen_ai.agent.name"),
        answer=answer or last_text(_messages(attributes, events, "output")) or None,
        asked=asked_in(_messages(attributes, events, "input")),
        conversation=talk,
        complete=_came_to_its_result(attributes),
    )


def _came_to_its_result(attributes: Attributes) -> bool | None:
    """Return whether an agent of Pydantic AI, which alone tells it, has a result."""
    if "final_result" in attributes:
        return True
    return False if "gen_ai.agent.call.id" in attributes else None


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
        return old or [*_flat(attributes, "prompt" if way == "input" else "completion")]
    if way == "input" and isinstance(found, str):  # cut in the middle
        return []
    return messages_in(found, "assistant")


def _event_said(role: str, content: object) -> Said:
    """Return the message of an event: a text, OpenAI's message, or a list of Bedrock's blocks."""
    found = parsed(content)
    if isinstance(found, dict):
        found = {"role": role, **found, "content": parsed(found.get("content"))}
    return said_in(found if isinstance(found, dict) else {"role": role, "content": found}) or Said(
        role
    )


def _flat(attributes: Attributes, way: str) -> Iterator[Said]:
    """Yield the messages of OpenLLMetry before 0.6: ``gen_ai.prompt.0.content``."""
    for number in range(1000):
        start = f"gen_ai.{way}.{number}."
        role = attributes.get(f"{start}role")
        content = attributes.get(f"{start}content")
        called = f"{start}tool_calls.0.name" in attributes
        if role is None and content is None and not called:
            return
        calls = []
        for at in range(100):
            call = f"{start}tool_calls.{at}."
            if not (tool := text(attributes.get(f"{call}name"))):
                break
            given = arguments(attributes.get(f"{call}arguments"))
            calls.append(ToolCall(tool, given, text(attributes.get(f"{call}id")) or None))
        said = _event_said(text(role) or "assistant", content)
        yield said._replace(calls=said.calls + tuple(calls))


def _given(attributes: Attributes, events: Iterable[Event]) -> dict[str, Any] | None:
    for key in ("gen_ai.tool.call.arguments", "tool_arguments", "traceloop.entity.input"):
        if key in attributes:
            return arguments(attributes[key])
    for event in events:
        if event.name == "gen_ai.tool.message" and "content" in event.attributes:
            return arguments(event.attributes["content"])
    return None


def _result(attributes: Attributes, events: Iterable[Event]) -> object:
    for key in ("gen_ai.tool.call.result", "tool_response", "traceloop.entity.output"):
        if key in attributes:
            return parsed(attributes[key])
    said = None
    for event in events:
        if event.name == _DETAILS and "gen_ai.output.messages" in event.attributes:
            said = _tool_answer(parsed(event.attributes["gen_ai.output.messages"]))
        elif event.name == "gen_ai.choice" and "message" in event.attributes:
            said = parsed(event.attributes["message"])
    return said


def _tool_answer(messages: object) -> object:
    """Return the last result in messages; Strands reports a tool as it reports a model."""
    found = None
    for message in objects(messages):
        for part in objects(message.get("parts")):
            if part.get("type") == "tool_call_response":
                found = part.get("response", part.get("result"))
    return found
