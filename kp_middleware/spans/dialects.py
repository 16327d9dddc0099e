"""Parse spans in the dialects of OpenTelemetry, identified by the keys of each span.

The GenAI conventions have messages as attributes, and before 1.37 as events; OpenLLMetry had flat
keys before 0.6; OpenInference flattens messages into attributes whose indexes may have gaps.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.recording import Turn
from kp_middleware.spans.errors import SpanError, span_error
from kp_middleware.spans.messages import (
    ANSWER_KEYS,
    TASK_KEYS,
    ChatMessage,
    Json,
    Result,
    after_last_answer,
    as_dict,
    as_dicts,
    as_text,
    first_text,
    first_value,
    last_text,
    latest_request,
    parse_arguments,
    parse_json,
    parse_message,
    parse_messages,
    sum_tokens,
    take_served,
    text_by_key,
)

Kind: TypeAlias = Literal["agent", "model", "tool", "retriever", "chain", "guardrail"]
"""The kind of a span; a ``chain`` or a ``guardrail`` is not a step."""

Attributes: TypeAlias = Mapping[str, Any]

CANCELLED: Final = frozenset({"CancelledError", "GeneratorExit"})

_LLM_KEY: Final = "llm.request.type"
_OPENINFERENCE_KEY: Final = "openinference.span.kind"
_GROUPS: Final = ("invoke_graph", "invoke_swarm")  # of agents, by Strands
_SAME_NAMES: Final[tuple[Kind, ...]] = ("agent", "tool", "retriever", "chain", "guardrail")
_KINDS: Final[dict[str, dict[str, Kind]]] = {
    "gen_ai.operation.name": {
        "invoke_agent": "agent",
        "invoke_workflow": "agent",
        **dict.fromkeys(_GROUPS, "agent"),
        "chat": "model",
        "generate_content": "model",
        "text_completion": "model",
        "execute_tool": "tool",
        "retrieval": "retriever",
        "search_memory": "retriever",
        "execute_task": "chain",
        "execute_event_loop_cycle": "chain",
    },
    _OPENINFERENCE_KEY: {
        **dict.fromkeys(("llm", "generation"), "model"),  # the latter by Langfuse
        **{str(kind): kind for kind in _SAME_NAMES},
    },
    "traceloop.span.kind": {"workflow": "agent", "agent": "agent", "task": "chain", "tool": "tool"},
}
_CONVERSATION_PROPERTIES: Final = ("session_id", "thread_id", "conversation_id", "chat_id")
_PROPERTIES: Final = "traceloop.association.properties."
_CONVERSATION_KEYS: Final = (
    "gen_ai.conversation.id",
    *(f"{_PROPERTIES}{key}" for key in _CONVERSATION_PROPERTIES),
)
_MAX_CHARACTERS: Final = 1 << 20
_KEPT_PREFIXES: Final = (
    *("gen_ai.", "openinference.", "traceloop.", "llm.", "input.", "output.", "tool", "agent."),
    *("graph.node.id", "session.id", "final_result", "error.type", "strands.", "retrieval."),
    *("pydantic_ai.all_messages", "task_description", "metadata"),
)
_DROPPED_PREFIXES: Final = (
    *("gen_ai.tool.definitions", "gen_ai.system_instructions", "gen_ai.tool.description"),
    *("llm.tools", "llm.invocation_parameters", "tool.description", "traceloop.entity.path"),
)
_INPUT_PREFIXES: Final = (
    "gen_ai.input.messages",
    "gen_ai.prompt.",
    "llm.input_messages.",
    "input.value",
)
_INPUT_TOKENS: Final = ("input_tokens", "prompt_tokens")  # the latter until 1.27
_OUTPUT_TOKENS: Final = ("output_tokens", "completion_tokens")
_DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
_MESSAGE_EVENTS: Final = {"gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant"}
_ARGUMENT_KEYS: Final = ("gen_ai.tool.call.arguments", "tool_arguments", "traceloop.entity.input")
_RESULT_KEYS: Final = ("gen_ai.tool.call.result", "tool_response", "traceloop.entity.output")
_OPENINFERENCE_ARGUMENT_KEYS: Final = (
    "input.value",
    "tool.parameters.value",
    "tool_call.function.arguments",
)
_MERGED_TOOLS: Final = "(merged tools)"
_METHOD: Final = re.compile(r"\.(__call__|acall)$")  # DSPy's names of tools end in it
_HANDOFF_PREFIX: Final = "handoff to "


class Scope(NamedTuple):
    """The instrumentation that made a span."""

    name: str
    framework: str = ""
    content_setting: str = ""  # makes it record message texts
    is_of_agents: bool = False  # all its spans belong to agents, even without an attribute for it
    leaves_open: bool = False  # it never ends the span of an agent whose model failed
    turns_fail: bool = False  # it may report an agent's error by its last turn alone


class Event(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Attributes


class SpanContent(NamedTuple):
    """The content of a span."""

    kind: Kind | None
    name: str = ""  # of the agent, the model or the tool; empty if unknown
    turn: Turn | None = None
    request: str = ""  # the user's texts since the model's last turn
    results: tuple[Result, ...] = ()  # the tools' results since then
    call_id: str | None = None
    arguments: Mapping[str, object] | None = None  # of a tool; None if the span has none
    result: object = None
    failed: bool = False  # the result of a tool reports a failure
    answer: object = None
    output: object = None  # of an agent, raw: used if no model answered
    task: str = ""  # the user's, for an agent; for a model, the last one in its input
    conversation: str | None = None
    error: SpanError | None = None
    complete: bool | None = None  # whether an agent finished; None if unknown


def model_content(
    inputs: list[ChatMessage],
    outputs: list[ChatMessage],
    model: str | None,
    tokens: tuple[object, object],
) -> SpanContent:
    """Return the content of a model's span; its messages may have the model and the ``tokens``."""
    counts = [sum_tokens(count) for count in tokens]
    if counts == [None, None]:
        read = sum_tokens(*(message.input_tokens for message in outputs))
        counts = [read, sum_tokens(*(message.output_tokens for message in outputs))]
    calls = [call for message in outputs for call in message.calls]
    served = [step for message in outputs for step in message.served]
    served += take_served(calls, [result for message in outputs for result in message.results])
    turn = Turn(
        text=last_text(outputs),
        calls=tuple(calls),
        served=tuple(served),
        model=model or next((message.model for message in outputs if message.model), None),
        tokens=None if counts == [None, None] else (counts[0] or 0, counts[1] or 0),
        thoughts=tuple(thought for message in outputs for thought in message.thoughts),
    )
    results = tuple(result for message in after_last_answer(inputs) for result in message.results)
    requests = [text for message in inputs if message.role == "user" for text in message.texts]
    content = SpanContent("model", turn.model or "", turn, latest_request(inputs), results)
    return content._replace(task=requests[-1] if requests else "")


def tool_content(
    kind: Kind, name: str, given: object, output: object, call_id: str | None = None
) -> SpanContent:
    """Return the content of a tool's span, whose output may have its result in a message."""
    values, result = as_dict(parse_json(given)), parse_json(output)
    if {"input_str", "inputs"} <= values.keys():  # of LangChain, by OpenLLMetry
        given = values["inputs"] or values["input_str"]
    elif [*values] == ["input"]:
        given = values["input"]
    if as_dict(result).keys() == {"output"}:
        result = parse_json(result["output"])
    if updates := as_dicts(as_dict(result, "update").get("messages")):  # of LangGraph's Command
        result = updates[-1]
    arguments = None if given is None else parse_arguments(given)
    content = SpanContent(kind, name, call_id=call_id, arguments=arguments, result=result)
    kinds = [as_dict(result).get(key) for key in ("type", "role")]
    is_message = "lc" in as_dict(result) or "tool" in kinds
    message = parse_message(result, "tool") if is_message else None
    if message is None or not message.results:
        return content
    first = message.results[0]
    return content._replace(
        call_id=call_id or first.call_id, result=first.output, failed=first.failed
    )


def handoff_content(agent: str) -> SpanContent:
    """Return the content of a handoff, which is a tool call."""
    name = f"transfer_to_{agent.lower().replace(' ', '_')}"
    return SpanContent("tool", name, arguments={}, result=f"to {agent}")


def span_kind(attributes: Attributes) -> Kind | None:
    """Return the kind of a span by its attributes; None if it is not part of an agent."""
    return _detect(attributes)[1]


def _detect(attributes: Attributes) -> tuple[str | None, Kind | None]:
    """Return the attribute that has the kind of a span, and the kind."""
    for key, kinds in _KINDS.items():
        value = attributes.get(key)
        kind = kinds.get(value.lower()) if isinstance(value, str) else None
        if kind == "tool" and attributes.get("gen_ai.tool.name") == _MERGED_TOOLS:
            return None, None
        if kind is not None:
            return key, kind
    is_model = isinstance(attributes.get(_LLM_KEY), str)
    return (_LLM_KEY, "model") if is_model else (None, None)


def select_attributes(attributes: Attributes, *, with_input: bool) -> dict[str, Any]:
    """Select the attributes that `read_span` needs, to buffer them until the run ends."""
    dropped = _DROPPED_PREFIXES if with_input else _DROPPED_PREFIXES + _INPUT_PREFIXES
    return {
        key: value[:_MAX_CHARACTERS] if type(value) is str else value
        for key, value in attributes.items()
        if key.startswith(_KEPT_PREFIXES) and not key.startswith(dropped)
    }


def read_span(
    name: str,
    attributes: Attributes,
    events: Sequence[Event] = (),
    *,
    kind: Kind | None = None,
    failed: bool = False,
    description: object = None,
) -> SpanContent:
    """Read a span that has ended.

    ``failed`` and ``description`` are its status; ``kind`` is the default if no attribute has it.
    """
    key, own_kind = _detect(attributes)
    kind = own_kind or kind
    if kind is None:
        return SpanContent(None)
    has_values = "input.value" in attributes or "output.value" in attributes
    if key == _OPENINFERENCE_KEY or (key is None and has_values):
        content = _openinference(kind, name, attributes)
    else:
        content = _genai(kind, name, attributes, events)
    content = content._replace(failed=False)  # a span has a status for that
    if failed:
        raised = [event.attributes for event in events if event.name == "exception"]
        return content._replace(error=span_error(attributes, raised, description))
    cancelled = as_text(attributes.get("strands.cancellation.type"))
    if any(event.name == "span.cancelled" for event in events):
        cancelled = "CancelledError"
    return content._replace(error=SpanError(cancelled) if cancelled in CANCELLED else None)


def _genai(kind: Kind, name: str, attributes: Attributes, events: Sequence[Event]) -> SpanContent:
    conversation = first_text(attributes, *_CONVERSATION_KEYS) or None
    if kind == "model":
        return model_content(
            _messages(attributes, events, "input"),
            _messages(attributes, events, "output"),
            first_text(attributes, "gen_ai.response.model", "gen_ai.request.model"),
            (
                first_value(attributes, *(f"gen_ai.usage.{key}" for key in _INPUT_TOKENS)),
                first_value(attributes, *(f"gen_ai.usage.{key}" for key in _OUTPUT_TOKENS)),
            ),
        )._replace(conversation=conversation)
    if kind in {"tool", "retriever"}:
        messages = (event for event in events if event.name == "gen_ai.tool.message")
        arguments = [attributes[key] for key in _ARGUMENT_KEYS if key in attributes]
        arguments += (
            event.attributes["content"] for event in messages if "content" in event.attributes
        )
        return tool_content(
            kind,
            first_text(attributes, "gen_ai.tool.name", "traceloop.entity.name") or name,
            next(iter(arguments), None),
            _tool_result(attributes, events),
            first_text(attributes, "gen_ai.tool.call.id") or None,
        )
    final, is_final = parse_json(attributes.get("final_result", "")), "final_result" in attributes
    is_pydantic_ai = is_final or "gen_ai.agent.call.id" in attributes
    if as_dict(final).keys() >= {"calls", "approvals"}:  # it waits for a person
        is_final = False
    given = _messages(attributes, events, "input")
    request = latest_request(given) or ("" if is_pydantic_ai else last_text(given))
    own = ["gen_ai.agent.name", "gen_ai.workflow.name", f"{_PROPERTIES}lc_agent_name"]
    own += ["traceloop.entity.name"] if attributes.get("traceloop.span.kind") == "agent" else []
    return SpanContent(
        kind,
        first_text(attributes, *own),
        answer=(is_final and final) or last_text(_messages(attributes, events, "output")) or None,
        request=request,
        task=request if attributes.get("gen_ai.operation.name") in _GROUPS else "",
        conversation=conversation,
        complete=is_final if is_pydantic_ai else None,
    )


def _messages(attributes: Attributes, events: Iterable[Event], direction: str) -> list[ChatMessage]:
    key = f"gen_ai.{direction}.messages"
    whole = attributes.get("pydantic_ai.all_messages") if direction == "input" else None
    messages = parse_json(attributes.get(key, whole))
    legacy: list[ChatMessage] = []
    for event in events:
        if event.name == _DETAILS_EVENT and key in event.attributes:
            messages = parse_json(event.attributes[key])
        elif direction == "input" and event.name in _MESSAGE_EVENTS:
            role, content = _MESSAGE_EVENTS[event.name], event.attributes.get("content")
            legacy.append(_legacy_message(role, content))
        elif direction == "output" and event.name == "gen_ai.choice":
            legacy = [_legacy_message("assistant", event.attributes.get("message"))]
    if messages is None:
        start = "gen_ai.prompt." if direction == "input" else "gen_ai.completion."
        return legacy or [
            _legacy_message(as_text(row.get("role")), row.get("content"), row["tool_calls"])
            for row in _unflatten(attributes, start)
        ]
    if direction == "input" and isinstance(messages, str):  # truncated
        return []
    return parse_messages(messages, "assistant")


def _legacy_message(role: str, content: object, calls: Sequence[Json] = ()) -> ChatMessage:
    """Parse a text, a message of OpenAI, or a list of Bedrock's blocks."""
    role, body = role or "assistant", parse_json(content)
    body = body if isinstance(body, dict) else {"content": body}
    message = {"role": role, "tool_calls": calls, **body}
    message["content"] = parse_json(body.get("content"))
    return parse_message(message) or ChatMessage(role)


def _tool_result(attributes: Attributes, events: Iterable[Event]) -> object:
    for key in _RESULT_KEYS:
        if key in attributes:
            return parse_json(attributes[key])
    result = None
    for event in events:
        if event.name == "gen_ai.choice" and "message" in event.attributes:
            result = parse_json(event.attributes["message"])
        elif event.name == _DETAILS_EVENT:
            messages = as_dicts(parse_json(event.attributes.get("gen_ai.output.messages")))
            parts = [part for message in messages for part in as_dicts(message.get("parts"))]
            for part in parts:  # Strands reports a tool as it reports a model
                if part.get("type") == "tool_call_response":
                    result = part.get("response", part.get("result"))
    return result


def _openinference(kind: Kind, name: str, attributes: Attributes) -> SpanContent:
    model, count = first_text(attributes, "llm.model_name"), "llm.token_count."
    tokens = attributes.get(f"{count}prompt"), attributes.get(f"{count}completion")
    if kind == "model":
        inputs = _openinference_messages(attributes, "input", "user")
        outputs = _openinference_messages(attributes, "output", "assistant")
        return model_content(inputs, outputs, model, tokens)
    if kind in {"tool", "retriever"}:
        if name.startswith(_HANDOFF_PREFIX):
            return handoff_content(name.removeprefix(_HANDOFF_PREFIX))
        arguments = parse_json(first_value(attributes, *_OPENINFERENCE_ARGUMENT_KEYS))
        keywords = as_dict(arguments).get("kwargs")
        documents = _unflatten(attributes, "retrieval.documents.", "document")
        texts = "\n\n".join(filter(None, (as_text(one.get("content")) for one in documents)))
        result = texts or attributes.get("output.value")
        return tool_content(
            kind,
            first_text(attributes, "tool.name") or _METHOD.sub("", name),
            keywords if isinstance(keywords, dict) else arguments,
            result,
            first_text(attributes, "tool_call.id", "tool.id") or None,
        )
    request = first_text(attributes, "task_description", "input.value")  # the first of CrewAI
    output = parse_json(attributes.get("output.value"))
    own = {
        **as_dict(parse_json(attributes.get("metadata"))),
        **(attributes if kind == "agent" else {}),
    }
    answer = last_text(_parse(_unflatten(attributes, "llm.output_messages.", "message")))
    answer = answer or text_by_key(output, ANSWER_KEYS)
    return SpanContent(
        kind,
        first_text(own, "agent.name", "graph.node.id", "lc_agent_name"),
        # Claude's SDK has no spans of models: its agent has the model and the answer
        turn=model_content([], [], model, tokens).turn if model else None,
        answer=answer or (model and as_text(attributes.get("output.value"))) or None,
        output=output,
        request="" if request.startswith(("{", "[")) else request,
        task=text_by_key(parse_json(request), TASK_KEYS),
        conversation=first_text(attributes, "session.id") or None,
    )


def _openinference_messages(attributes: Attributes, direction: str, role: str) -> list[ChatMessage]:
    flat = _unflatten(attributes, f"llm.{direction}_messages.", "message")
    if flat and all("role" in message for message in flat):
        return _parse(flat)
    # The SDK drops the oldest of more than 128 attributes: roles go first.
    return parse_messages(attributes.get(f"{direction}.value"), role) or _parse(flat)


def _parse(messages: list[Json]) -> list[ChatMessage]:
    parsed = (parse_message(message, "assistant") for message in messages)
    return [message for message in parsed if message is not None]


def _unflatten(attributes: Attributes, start: str, envelope: str = "") -> list[Json]:
    """Build messages from numbered keys; each part is in an object of the name ``envelope``."""
    tree: Json = {}
    for key, value in attributes.items():
        if key.startswith(start):
            node = tree
            *path, last = key[len(start) :].split(".")
            for part in path:
                child = node.setdefault(part, {})
                if not isinstance(child, dict):
                    break
                node = child
            else:
                node[last] = value
    return [
        {
            **message,
            "contents": _by_index(message.get("contents"), envelope and "message_content"),
            "tool_calls": _by_index(message.get("tool_calls"), envelope and "tool_call"),
        }
        for message in _by_index(tree, envelope)
    ]


def _by_index(node: object, envelope: str) -> list[Json]:
    tree = as_dict(node)
    numbers = sorted((key for key in tree if key.isdecimal() and len(key) < 9), key=int)
    return [as_dict(as_dict(tree[key]).get(envelope) if envelope else tree[key]) for key in numbers]
