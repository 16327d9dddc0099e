"""What a span told, read from the dialects of OpenTelemetry, told apart by key for each span.

The GenAI conventions have messages as attributes, and before 1.37 as events; OpenLLMetry had flat
keys before 0.6; OpenInference flattens messages into attributes whose indexes may have gaps.
"""

from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.recording import Turn
from kp_middleware.spans.messages import (
    Fields,
    Result,
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
    since_the_answer,
    text,
    tokens,
)

Kind: TypeAlias = Literal["agent", "model", "tool", "retriever", "chain"]
"""The kind of a span; a ``chain`` has no step of its own."""

Attributes: TypeAlias = Mapping[str, Any]

CANCELLED: Final = frozenset({"CancelledError", "GeneratorExit"})

_LLM: Final = "llm.request.type"
_OPENINFERENCE: Final = "openinference.span.kind"
_SAME: Final[tuple[Kind, ...]] = ("agent", "tool", "retriever", "chain")
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
    _OPENINFERENCE: {"llm": "model", **{str(kind): kind for kind in _SAME}},
    "traceloop.span.kind": {"workflow": "agent", "agent": "agent", "task": "chain", "tool": "tool"},
}
_TALKS: Final = ("session_id", "thread_id", "conversation_id", "chat_id")
_CONVERSATION: Final = (
    "gen_ai.conversation.id",
    *(f"traceloop.association.properties.{key}" for key in _TALKS),
)
_MOST_CHARACTERS: Final = 1 << 20
_MOST_PARSED: Final = 4096  # characters
_READ: Final = (
    *("gen_ai.", "openinference.", "traceloop.", "llm.", "input.", "output.", "tool", "agent."),
    *("graph.node.id", "session.id", "final_result", "error.type", "strands."),
)
_NOT_READ: Final = (
    *("gen_ai.tool.definitions", "gen_ai.system_instructions", "gen_ai.tool.description"),
    *("llm.tools", "llm.invocation_parameters", "tool.description", "traceloop.entity.path"),
)
_INPUT: Final = ("gen_ai.input.messages", "gen_ai.prompt.", "llm.input_messages.", "input.value")
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_SAID: Final = {"gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant"}
_GIVEN: Final = ("gen_ai.tool.call.arguments", "tool_arguments", "traceloop.entity.input")
_RESULT: Final = ("gen_ai.tool.call.result", "tool_response", "traceloop.entity.output")
_FLAT_GIVEN: Final = ("input.value", "tool.parameters.value", "tool_call.function.arguments")
_MERGED: Final = "(merged tools)"
_HANDOFF: Final = "handoff to "


class Event(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Attributes


class ToldError(NamedTuple):
    """An error as words: its type, its message, and the words of its first cause."""

    type: str
    message: str = ""
    cause: str = ""


class Reading(NamedTuple):
    """What a span told.

    Attributes:
        name: The name of the agent, the model or the tool; empty if unknown.
        asked, results: The user's texts, and tools' results, since the last turn of a model.
        given: The arguments of a tool, or None if they are not told.
        failed: True if the result of a tool says that it failed.
        output: The raw output of an agent, used where no model said anything.
        task: The task of an agent, as its user gave it.
        complete: Whether an agent came to its result, or None if it does not tell.
    """

    kind: Kind | None
    name: str = ""
    turn: Turn | None = None
    asked: str = ""
    results: tuple[Result, ...] = ()
    call_id: str | None = None
    given: Mapping[str, object] | None = None
    result: object = None
    failed: bool = False
    answer: object = None
    output: object = None
    task: str = ""
    conversation: str | None = None
    problem: ToldError | None = None
    complete: bool | None = None


def model_reading(
    given: list[Said], said: list[Said], model: str | None, read: object, written: object
) -> Reading:
    """Return the reading of a model; messages tell its name and tokens where these do not."""
    counts = tokens(read), tokens(written)
    if counts == (None, None):
        counts = tokens(*(one.read for one in said)), tokens(*(one.written for one in said))
    turn = Turn(
        text=last_text(said),
        calls=tuple(call for one in said for call in one.calls),
        model=model or next((one.model for one in said if one.model), None),
        tokens=None if counts == (None, None) else (counts[0] or 0, counts[1] or 0),
        thoughts=tuple(thought for one in said for thought in one.thoughts),
    )
    results = tuple(result for one in since_the_answer(given) for result in one.results)
    return Reading("model", turn.model or "", turn, asked_in(given), results)


def handoff_to(agent: str) -> Reading:
    """Return the reading of a handoff, which is a tool call."""
    name = f"transfer_to_{agent.lower().replace(' ', '_')}"
    return Reading("tool", name, given={}, result=f"to {agent}")


def problem_of(attributes: Attributes, events: Iterable[Event], description: object) -> ToldError:
    """Return the error of a span whose status is an error.

    >>> problem_of({}, (), "Error in run: {'error': 'it is gone'}")
    ToldError(type='Error in run', message="{'error': 'it is gone'}", cause='it is gone')
    """
    raised = [event.attributes for event in events if event.name == "exception"]
    if raised:
        kind = text(raised[-1].get("exception.type")).rpartition(".")[2]
        message = text(raised[-1].get("exception.message"))
        return ToldError(kind or "Error", message, message)
    said = text(description)
    kind = text(attributes.get("error.type")).rpartition(".")[2]
    told = _literal(said)
    if "message" in told:
        return problem_in(told)
    head, colon, rest = said.partition(": ")
    if colon and len(head) <= 80 and head.isprintable() and not head.startswith(("{", "'")):
        return ToldError(head, rest, text(_literal(rest).get("error")) or rest)
    return ToldError(kind or "Error") if said == kind else ToldError(kind or "Error", said, said)


def problem_in(error: Mapping[str, object]) -> ToldError:
    """Return an error that is told as ``{"message": …, "data": {"error": …}}``."""
    message, data = text(error.get("message")), error.get("data")
    told = text(str(data)) if data else ""
    return ToldError(message or "Error", told, text(fields(data).get("error")) or told)


def _literal(words: str) -> Fields:
    """Return a dictionary that was written as Python writes it."""
    if not words.startswith("{") or len(words) > _MOST_PARSED:
        return {}
    try:
        return fields(literal_eval(words))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return {}


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
    left_out = _NOT_READ if with_input else _NOT_READ + _INPUT
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
) -> Reading:
    """Return the reading of a span that has ended.

    ``failed`` and ``description`` are its status, and ``kind`` counts if the attributes tell none.
    """
    key, told = _dialect_of(attributes)
    kind = told or kind
    if kind is None:
        return Reading(None)
    has_values = "input.value" in attributes or "output.value" in attributes
    if key == _OPENINFERENCE or (key is None and has_values):
        reading = _openinference(kind, name, attributes)
    else:
        reading = _genai(kind, name, attributes, events)
    if failed:
        return reading._replace(problem=problem_of(attributes, events, description))
    cancelled = text(attributes.get("strands.cancellation.type"))
    if any(event.name == "span.cancelled" for event in events):
        cancelled = "CancelledError"
    return reading._replace(problem=ToldError(cancelled) if cancelled in CANCELLED else None)


def _genai(kind: Kind, name: str, attributes: Attributes, events: Sequence[Event]) -> Reading:
    talk = first_text(attributes, *_CONVERSATION) or None
    if kind == "model":
        return model_reading(
            _messages(attributes, events, "input"),
            _messages(attributes, events, "output"),
            first_text(attributes, "gen_ai.response.model", "gen_ai.request.model"),
            attributes.get("gen_ai.usage.input_tokens"),
            attributes.get("gen_ai.usage.output_tokens"),
        )._replace(conversation=talk)
    if kind in {"tool", "retriever"}:
        messages = (event for event in events if event.name == "gen_ai.tool.message")
        given = [attributes[key] for key in _GIVEN if key in attributes]
        given += (
            event.attributes["content"] for event in messages if "content" in event.attributes
        )
        return Reading(
            kind,
            first_text(attributes, "gen_ai.tool.name", "traceloop.entity.name") or name,
            call_id=first_text(attributes, "gen_ai.tool.call.id") or None,
            given=arguments(given[0]) if given else None,
            result=_result(attributes, events),
        )
    answer = text(attributes.get("final_result")) and parsed(attributes["final_result"])
    is_pydantic_ai = "final_result" in attributes or "gen_ai.agent.call.id" in attributes
    return Reading(
        kind,
        first_text(attributes, "gen_ai.agent.name"),
        answer=answer or last_text(_messages(attributes, events, "output")) or None,
        asked=asked_in(_messages(attributes, events, "input")),
        conversation=talk,
        complete="final_result" in attributes if is_pydantic_ai else None,
    )


def _messages(attributes: Attributes, events: Iterable[Event], way: str) -> list[Said]:
    key = f"gen_ai.{way}.messages"
    found = parsed(attributes.get(key))
    old: list[Said] = []
    for event in events:
        if event.name == _DETAILS and key in event.attributes:
            found = parsed(event.attributes[key])
        elif way == "input" and event.name in _SAID:
            old.append(_old_said(_SAID[event.name], event.attributes.get("content")))
        elif way == "output" and event.name == "gen_ai.choice":
            old = [_old_said("assistant", event.attributes.get("message"))]
    if found is None:
        numbered = _flat(attributes, "gen_ai.prompt." if way == "input" else "gen_ai.completion.")
        return old or [
            _old_said(text(one.get("role")) or "assistant", one.get("content"), one["tool_calls"])
            for one in numbered
        ]
    if way == "input" and isinstance(found, str):  # cut in the middle
        return []
    return messages_in(found, "assistant")


def _old_said(role: str, content: object, calls: Sequence[Fields] = ()) -> Said:
    """Return a message that is told as a text, OpenAI's message, or a list of Bedrock's blocks."""
    found = parsed(content)
    told = found if isinstance(found, dict) else {"content": found}
    message = {"role": role, "tool_calls": calls, **told, "content": parsed(told.get("content"))}
    return said_in(message) or Said(role)


def _result(attributes: Attributes, events: Iterable[Event]) -> object:
    for key in _RESULT:
        if key in attributes:
            return parsed(attributes[key])
    found = None
    for event in events:
        if event.name == "gen_ai.choice" and "message" in event.attributes:
            found = parsed(event.attributes["message"])
        elif event.name == _DETAILS:
            messages = objects(parsed(event.attributes.get("gen_ai.output.messages")))
            parts = [part for message in messages for part in objects(message.get("parts"))]
            for part in parts:  # Strands reports a tool as it reports a model
                if part.get("type") == "tool_call_response":
                    found = part.get("response", part.get("result"))
    return found


def _openinference(kind: Kind, name: str, attributes: Attributes) -> Reading:
    if kind == "model":
        return model_reading(
            _flat_messages(attributes, "input", "user"),
            _flat_messages(attributes, "output", "assistant"),
            first_text(attributes, "llm.model_name"),
            attributes.get("llm.token_count.prompt"),
            attributes.get("llm.token_count.completion"),
        )
    if kind in {"tool", "retriever"}:
        if name.startswith(_HANDOFF):
            return handoff_to(name.removeprefix(_HANDOFF))
        given = next((arguments(attributes[key]) for key in _FLAT_GIVEN if key in attributes), None)
        keywords = fields(given).get("kwargs")
        result = parsed(attributes.get("output.value"))
        return Reading(
            kind,
            first_text(attributes, "tool.name") or name,
            call_id=first_text(attributes, "tool_call.id", "tool.id") or None,
            given=keywords if isinstance(keywords, dict) else given,
            result=fields(fields(result).get("data")).get("content", result),  # LangChain's message
        )
    asked = text(attributes.get("input.value")) if kind == "agent" else ""
    task = fields(parsed(asked)).get("task") if asked.startswith("{") else ""
    return Reading(
        kind,
        first_text(attributes, "agent.name", "graph.node.id") if kind == "agent" else "",
        answer=last_text(_said(_flat(attributes, "llm.output_messages.", "message"))) or None,
        output=parsed(attributes["output.value"]) if "output.value" in attributes else None,
        task=text(task),
        conversation=first_text(attributes, "session.id") or None,
    )


def _flat_messages(attributes: Attributes, way: str, role: str) -> list[Said]:
    flat = _flat(attributes, f"llm.{way}_messages.", "message")
    if flat and all("role" in message for message in flat):
        return _said(flat)
    # The SDK drops the oldest of more than 128 attributes: roles go first.
    return messages_in(attributes.get(f"{way}.value"), role) or _said(flat)


def _said(messages: list[Fields]) -> list[Said]:
    return [said for one in messages if (said := said_in(one, "assistant")) is not None]


def _flat(attributes: Attributes, start: str, inside: str = "") -> list[Fields]:
    """Return the messages of numbered keys; each part is ``inside`` an object of this name."""
    tree: Fields = {}
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
            "contents": _ordered(message.get("contents"), inside and "message_content"),
            "tool_calls": _ordered(message.get("tool_calls"), inside and "tool_call"),
        }
        for message in _ordered(tree, inside)
    ]


def _ordered(node: object, inside: str) -> list[Fields]:
    tree = fields(node)
    numbers = sorted((key for key in tree if key.isdecimal() and len(key) < 9), key=int)
    return [fields(fields(tree[key]).get(inside) if inside else tree[key]) for key in numbers]
