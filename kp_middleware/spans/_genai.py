"""The GenAI conventions of OpenTelemetry: messages as attributes, and as events before 1.37."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kp_middleware.recording import ToolCall
from kp_middleware.spans._reading import (
    Attributes,
    Event,
    Kind,
    Reading,
    Said,
    arguments,
    asked_in,
    fields,
    first_text,
    kept,
    last_text,
    objects,
    parsed,
    text,
    tokens,
    turn_of,
)

KINDS: Final[dict[object, Kind]] = {
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
_REASONS: Final = frozenset({"reasoning", "thinking", "reasoningContent"})


def kind_of(attributes: Attributes) -> Kind | None:
    """Return the kind of a span, or None if this dialect does not say it."""
    operation = attributes.get("gen_ai.operation.name")
    kind = KINDS.get(operation) if isinstance(operation, str) else None
    return None if kind == "tool" and attributes.get("gen_ai.tool.name") == _MERGED else kind


def read(
    kind: Kind, name: str, attributes: Attributes, events: Sequence[Event], *, with_input: bool
) -> Reading:
    """Return the reading of a span.

    Args:
        kind: The kind of the span.
        name: The name of the span.
        attributes: The attributes of the span.
        events: The events of the span.
        with_input: True if the messages that a model was given are to be read.
    """
    talk = first_text(attributes, "gen_ai.conversation.id") or None
    if kind == "model":
        model = first_text(attributes, "gen_ai.response.model", "gen_ai.request.model")
        used = tokens(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
        asked = asked_in(_messages(attributes, events, "input")) if with_input else ""
        turn = turn_of(_messages(attributes, events, "output"), model or None, used)
        return Reading(kind, model, turn, asked, conversation=talk)
    if kind in {"tool", "retriever"}:
        return Reading(
            kind,
            first_text(attributes, "gen_ai.tool.name", "traceloop.entity.name") or name,
            call_id=first_text(attributes, "gen_ai.tool.call.id") or None,
            given=_given(attributes, events),
            result=_result(attributes, events),
        )
    answer = text(attributes.get("final_result")) and kept(attributes["final_result"])
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
    if isinstance(found, str):  # cut in the middle
        return [Said("assistant", (text(found),), (text(found),))] if way == "output" else []
    return [_said(message) for message in objects(found)]


def _said(message: dict[str, Any]) -> Said:
    parts = message.get("parts")
    if not isinstance(parts, list):
        parts = message.get("content")
    if isinstance(parts, str):
        parts = [{"type": "text", "content": parts}]
    return _of_parts(text(message.get("role")) or "assistant", objects(parts))


def _of_parts(role: str, parts: Iterable[dict[str, Any]]) -> Said:
    thoughts, texts, calls = [], [], []
    for part in parts:
        sort, said = part.get("type"), _words(part.get("content", part.get("text")))
        if sort == "tool_call":
            named = text(part.get("name")) or "(unnamed)"
            given = arguments(part.get("arguments"))
            calls.append(ToolCall(named, given, text(part.get("id")) or None))
        elif sort == "text" and said:
            thoughts.append(said)
            texts.append(said)
        elif sort in _REASONS and said:
            thoughts.append(said)
    return Said(role, tuple(thoughts), tuple(texts), tuple(calls))


def _words(content: object) -> str:
    """Return the text of a part; Bedrock has its own block inside."""
    if isinstance(content, dict):
        content = fields(content.get("reasoningText") or content).get("text")
    return text(content)


def _event_said(role: str, content: object) -> Said:
    """Return the message of an event: a text, OpenAI's message, or a list of Bedrock's blocks."""
    found = parsed(content)
    if isinstance(found, dict):
        calls = tuple(_openai_calls(found.get("tool_calls")))
        inner = _event_said(role, found.get("content"))
        return inner._replace(calls=inner.calls + calls)
    if isinstance(found, list):
        return _of_parts(role, map(_block, objects(found)))
    said = text(content)
    return Said(role, (said,), (said,)) if said else Said(role)


def _openai_calls(calls: object) -> Iterator[ToolCall]:
    for call in objects(calls):
        asked = fields(call.get("function"))
        given = arguments(asked.get("arguments"))
        yield ToolCall(text(asked.get("name")) or "(unnamed)", given, text(call.get("id")) or None)


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if "reasoningContent" in block:
        return {"type": "reasoning", "content": block["reasoningContent"]}
    if use := fields(block.get("toolUse")):
        return {
            "type": "tool_call",
            "id": use.get("toolUseId"),
            "name": use.get("name"),
            "arguments": use.get("input"),
        }
    return block if "type" in block else {"type": "text", "content": block.get("text")}


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


def _given(attributes: Attributes, events: Iterable[Event]) -> dict[str, object] | None:
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
            return kept(attributes[key])
    said = None
    for event in events:
        if event.name == _DETAILS and "gen_ai.output.messages" in event.attributes:
            said = _tool_answer(parsed(event.attributes["gen_ai.output.messages"]))
        elif event.name == "gen_ai.choice" and "message" in event.attributes:
            said = kept(event.attributes["message"])
    return said


def _tool_answer(messages: object) -> object:
    """Return the last result in messages; Strands reports a tool as it reports a model."""
    found = None
    for message in objects(messages):
        for part in objects(message.get("parts")):
            if part.get("type") == "tool_call_response":
                found = part.get("response", part.get("result"))
    return found
