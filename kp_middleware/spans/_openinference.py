"""OpenInference: messages flattened into attributes, whose indexes may have gaps."""

from typing import Any, Final

from kp_middleware.spans._fields import Fields, arguments, fields, first_text, parsed, text
from kp_middleware.spans._reading import Attributes, Kind, Reading, handoff_to
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
    "AGENT": "agent",
    "LLM": "model",
    "TOOL": "tool",
    "RETRIEVER": "retriever",
    "CHAIN": "chain",
}
_HANDOFF: Final = "handoff to "


def kind_of(attributes: Attributes) -> Kind | None:
    """Return the kind of a span, or None if this dialect does not say it."""
    said = attributes.get("openinference.span.kind")
    return _KINDS.get(said.upper()) if isinstance(said, str) else None


def read(kind: Kind, name: str, attributes: Attributes, *, with_input: bool) -> Reading:
    """Return the reading of a span."""
    if kind == "model":
        model = first_text(attributes, "llm.model_name")
        given = _messages(attributes, "input") if with_input else []
        turn = turn_of(
            _messages(attributes, "output"),
            model or None,
            attributes.get("llm.token_count.prompt"),
            attributes.get("llm.token_count.completion"),
        )
        return Reading(kind, model, turn, asked_in(given), results=results_in(given))
    if kind in {"tool", "retriever"}:
        if name.startswith(_HANDOFF):
            return handoff_to(name.removeprefix(_HANDOFF))
        return Reading(
            kind,
            first_text(attributes, "tool.name") or name,
            call_id=first_text(attributes, "tool_call.id", "tool.id") or None,
            given=_given(attributes),
            result=_result(attributes),
        )
    asked = text(attributes.get("input.value")) if kind == "agent" else ""
    task = fields(parsed(asked)).get("task") if asked.startswith("{") else ""
    return Reading(
        kind,
        first_text(attributes, "agent.name", "graph.node.id") if kind == "agent" else "",
        answer=last_text(_said(_flat(attributes, "output"))) or None,
        output=parsed(attributes["output.value"]) if "output.value" in attributes else None,
        task=text(task),
        conversation=first_text(attributes, "session.id") or None,
    )


def _messages(attributes: Attributes, way: str) -> list[Said]:
    flat = _flat(attributes, way)
    if flat and all("role" in message for message in flat):
        return _said(flat)
    # The SDK drops the oldest of more than 128 attributes: roles go first.
    role = "user" if way == "input" else "assistant"
    return messages_in(attributes.get(f"{way}.value"), role) or _said(flat)


def _said(messages: list[Fields]) -> list[Said]:
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


def _given(attributes: Attributes) -> dict[str, Any] | None:
    for key in ("input.value", "tool.parameters.value", "tool_call.function.arguments"):
        if key in attributes:
            given = arguments(attributes[key])
            inner = given.get("kwargs")
            return inner if isinstance(inner, dict) else given
    return None


def _result(attributes: Attributes) -> object:
    found = parsed(attributes.get("output.value"))
    message = fields(fields(found).get("data"))
    return message.get("content", found)  # LangChain's own message
