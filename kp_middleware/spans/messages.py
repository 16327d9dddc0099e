"""Parse chat messages in every published form; a field of the wrong type counts as absent.

OpenAI's chat messages and Responses API items, Anthropic's and Bedrock's blocks, LangChain's
messages, and the parts of OpenTelemetry's GenAI conventions.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.recording import ServedResult, ToolCall, bounded_text, text_of

Json: TypeAlias = dict[str, Any]

TASK_KEYS: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
ANSWER_KEYS: Final = (
    *("output", "answer", "result", "response", "generation", "raw", "summary", "text"),
)
"""The keys that may hold the task of an agent's input, and its answer, in order of preference."""

_MAX_TEXT_BYTES: Final = 1_000_000
_MAX_EXACT_INT: Final = 2**53
_EARLIEST_S: Final = 631_152_000.0  # 1990: earlier and later times are invalid
_LATEST_S: Final = 4_102_444_800.0  # 2100

_ROLES: Final = {
    **{role: role for role in ("user", "assistant", "system", "tool")},
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "HumanMessage": "user",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "function": "tool",
    "developer": "system",
    "gpt": "assistant",  # and the next, of ShareGPT
    "observation": "tool",
}
_CALL_TYPES: Final = ("tool_use", "tool_call")  # also of a server's tools, with a prefix
_RESULT_TYPES: Final = ("tool_result", "tool_call_response")
_CALL_KEYS: Final = ("toolUse", "functionCall", "function_call")  # Bedrock's and Gemini's
_RESULT_KEYS: Final = ("toolResult", "functionResponse", "function_response")
_OPENING: Final = re.compile(r"<think(?:ing)?>")
_CLOSING: Final = re.compile(r"</think(?:ing)?>")
_SERVED_CALLS: Final = frozenset(  # of the Responses API, by the provider's own tools
    f"{tool}_call"
    for tool in ("web_search", "file_search", "code_interpreter", "image_generation", "mcp")
)
_CONTENT_KEYS: Final = ("parts", "contents", "content", "refusal")
_REASONING_TYPES: Final = frozenset({"reasoning", "thinking", "redacted_thinking"})
_MEDIA: Final = ("image", "audio", "video", "file", "document", "media", "blob", "uri")
_FAILED_STATUSES: Final = frozenset({"error", "failed", "incomplete"})


def as_dict(value: object, *path: str) -> Json:
    """Return an object, or the one at a path inside it; an empty one if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a list; an empty one for any other value."""
    return value if isinstance(value, list) else []


def as_dicts(value: object) -> list[Json]:
    """Return the objects in a list; ignore its other elements."""
    return [one for one in as_list(value) if isinstance(one, dict)]


def as_text(value: object) -> str:
    """Return a text, cut to 1 MB; an empty one for any other value."""
    if isinstance(value, str) and len(value) >= _MAX_TEXT_BYTES // 4:
        return bounded_text(value, _MAX_TEXT_BYTES)
    return value if isinstance(value, str) else ""


def as_name(value: object) -> str | None:
    """Return a non-empty text that UTF-8 can encode, or an integer as text; else None."""
    if type(value) is int and abs(value) < _MAX_EXACT_INT:
        return str(value)
    return value.encode(errors="replace").decode() or None if isinstance(value, str) else None


def first_text(values: Mapping[str, Any], *keys: str) -> str:
    """Return the first non-empty text under these keys, or an empty one."""
    return next((text for key in keys if (text := as_text(values.get(key)))), "")


def text_by_key(value: object, keys: Sequence[str]) -> str:
    """Return the text in an object: under one of these keys, or under its only one.

    >>> text_by_key({"input_args": {"question": "An egg?", "limit": "2"}}, TASK_KEYS)
    'An egg?'
    """
    values = as_dict(value)
    if len(values) == 1:
        [inner] = values.values()
        values = as_dict(inner) or {keys[0]: inner}
    return first_text(values, *keys)


def first_value(values: Mapping[str, Any], *keys: str) -> Any:
    """Return the first value under these keys that is not None."""
    return next((values[key] for key in keys if values.get(key) is not None), None)


def as_number(value: object) -> float | None:
    """Return a finite number, or None; booleans are not numbers.

    >>> as_number(1), as_number(True), as_number("1")
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _MAX_EXACT_INT and math.isfinite(value) else None


def sum_tokens(*values: object) -> int | None:
    """Return the sum of the valid token counts, or None without one."""
    counts = [count for value in values if (count := as_number(value)) is not None and count >= 0]
    return int(min(sum(counts), _MAX_EXACT_INT)) if counts else None


def as_time_s(value: object) -> float | None:
    """Return a time as epoch seconds, or None if it is not one between 1990 and 2100.

    Numbers may also be milliseconds, microseconds or nanoseconds.

    >>> as_time_s("2026-11-01T09:14:03Z") == as_time_s("2026-11-01 09:14:03.000") == 1793524443.0
    True
    >>> as_time_s("1793524443000000000") == as_time_s(1793524443000) == 1793524443.0
    True
    """
    number: object = value
    with suppress(ValueError, OverflowError):
        if isinstance(value, str):
            moment = None if value.isdecimal() else datetime.fromisoformat(value)
            utc = moment and (moment if moment.tzinfo else moment.replace(tzinfo=UTC))
            number = int(value) if utc is None else utc.timestamp()
        if isinstance(number, int | float) and not isinstance(number, bool):
            times_s = (number / scale for scale in (1, 1e3, 1e6, 1e9))
            return next((one for one in times_s if _EARLIEST_S <= one <= _LATEST_S), None)
    return None


def parse_json(value: object) -> Any:
    """Decode a JSON text; return any other value, such as a truncated text, unchanged.

    >>> parse_json('{"a": 1}'), parse_json('{"a": '), parse_json(2)
    ({'a': 1}, '{"a": ', 2)
    """
    if not isinstance(value, str | bytes):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def parse_arguments(value: object) -> Json:
    """Return the arguments of a call, from an object or a JSON text of one.

    >>> parse_arguments('{"a": 1}'), parse_arguments("ls -l"), parse_arguments(None)
    ({'a': 1}, {'input': 'ls -l'}, {})
    """
    value = parse_json(value)
    if isinstance(value, dict):
        return value
    return {} if value is None or value == "" else {"input": value}


class Result(NamedTuple):
    """The result of a tool call."""

    output: object
    call_id: str | None = None
    tool: str | None = None
    failed: bool = False


class ChatMessage(NamedTuple):
    """A message; ``thoughts`` are its reasoning and its texts, in order."""

    role: str
    thoughts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: tuple[Result, ...] = ()
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    served: tuple[ToolCall | ServedResult, ...] = ()  # calls and results of the provider's tools


def parse_message(value: object, role: str = "") -> ChatMessage | None:
    """Parse a message or an item; return None if it is neither.

    ``role`` is the default for messages without a role.

    >>> parse_message({"role": "user", "content": [{"type": "text", "text": "An egg?"}]}).texts
    ('An egg?',)
    """
    message = _unwrap(as_dict(value))
    kind = as_text(message.get("type"))
    if message.get("object") == "response":  # a response of the Responses API
        return _parse_parts(message, "assistant")
    if kind.endswith(("_call_output", "_search_output")):
        return ChatMessage("tool", results=(_parse_result(message),))
    if kind == "reasoning":
        parts = as_dicts(message.get("summary")) or as_dicts(message.get("content"))
        texts = (as_text(part.get("text")) for part in parts)
        return ChatMessage("assistant", tuple(filter(None, texts)))
    if kind.endswith("_call"):
        call_id = as_name(message.get("call_id")) or as_name(message.get("id"))
        arguments = first_value(message, "action", "queries", "code")
        defaults = {"name": kind.removesuffix("_call"), "arguments": arguments}
        call = _parse_call({**defaults, **message, "id": call_id})
        if kind not in _SERVED_CALLS:
            return ChatMessage("assistant", calls=(call,))
        output = first_value(message, "output", "error", "results", "outputs")
        result = ServedResult(call.name, output, failed=message.get("error") is not None)
        return ChatMessage("assistant", served=(call,) if output is None else (call, result))
    known_roles = (_ROLES.get(as_text(message.get(key))) for key in ("role", "type"))
    own_role = next(filter(None, known_roles), None) or as_text(message.get("role"))
    if not own_role and (not role or not message.keys() & {"content", "parts", "tool_calls"}):
        return None
    return _parse_parts(message, own_role or role)


def _parse_parts(message: Json, role: str) -> ChatMessage:
    content = next(filter(None, map(message.get, _CONTENT_KEYS)), None)
    blocks = [content] if isinstance(content, str) else as_list(content)
    if role == "tool" and not any(_is_result(block) for block in blocks):
        return ChatMessage("tool", results=(_parse_result(message),))
    items = as_dicts(message.get("output")) if message.get("object") == "response" else []
    nested = (parse_message({**item, "object": None}) for item in items)
    parts = [*filter(None, nested)] or [_parse_block(block, role) for block in blocks]
    if "contents" in message and not any(part.texts for part in parts):
        parts.append(_text_part(as_text(message.get("content"))))
    reasoning = first_text(message, "reasoning_content", "reasoning")
    thoughts = [thought for part in parts for thought in part.thoughts]
    calls = [_parse_call(call) for call in as_dicts(message.get("tool_calls"))]
    called = [call for part in parts for call in part.calls]  # LangChain has them twice
    if isinstance(message.get("function_call"), dict):
        calls.append(_parse_call(message["function_call"]))
    usage = as_dict(message, "usage_metadata") or as_dict(message, "usage")
    model = as_dict(message, "response_metadata").get("model_name")
    results = [result for part in parts for result in part.results]
    served = [step for part in parts for step in part.served]
    if role == "assistant":  # results in its own message are those of the provider's tools
        served += [*take_served(called, results), *take_served(calls, results)]
    return ChatMessage(
        role,
        tuple([reasoning, *thoughts] if reasoning else thoughts),
        tuple(text for part in parts for text in part.texts),
        tuple(calls or called),
        tuple(results),
        as_name(model) or as_name(message.get("model")),
        sum_tokens(usage.get("input_tokens", usage.get("prompt_tokens"))),
        sum_tokens(usage.get("output_tokens", usage.get("completion_tokens"))),
        tuple(served),
    )


def take_served(calls: list[ToolCall], results: list[Result]) -> Iterator[ToolCall | ServedResult]:
    """Remove the calls that have their results beside them, and yield both."""
    by_id: dict[str | None, Result] = {one.call_id: one for one in results if one.call_id}
    for call in [*calls]:
        result = by_id.pop(call.id, None)
        if result is None and call.name != "web_search_call":  # without a result
            continue
        calls.remove(call)
        yield call
        if result is not None:
            yield ServedResult(call.name, result.output, result.failed)
    results[:] = [one for one in results if not one.call_id or one.call_id in by_id]


def _parse_block(value: object, role: str) -> ChatMessage:
    block, kind = as_dict(value), as_text(as_dict(value).get("type"))
    if isinstance(value, str):
        return _text_part(value, role)
    if (call := _inside(block, _CALL_KEYS)) or kind.endswith(_CALL_TYPES):
        return ChatMessage(role, calls=(_parse_call(call or block),))
    if _is_result(block):
        result = _inside(block, _RESULT_KEYS) or block
        return ChatMessage(role, results=(_parse_result(result),))
    text = _block_text(block)
    if kind in _REASONING_TYPES or "reasoningContent" in block or block.get("thought") is True:
        return ChatMessage(role, (text,) if text else ())
    if not text and role == "user" and any(word in kind for word in _MEDIA):
        text = f"[{kind[:40]}]"
    return _text_part(text, role)


def _text_part(text: str, role: str = "") -> ChatMessage:
    reasoning, answer = split_thinking(text) if role == "assistant" else ("", text)
    parts = (answer,) if answer.strip() else ()
    return ChatMessage("", (reasoning, *parts) if reasoning else parts, parts)


def split_thinking(text: str) -> tuple[str, str]:
    """Return the reasoning in ``<think>`` tags, and the rest."""
    if "<think" not in text:
        return "", text
    thoughts: list[str] = []
    answers: list[str] = []
    position = 0
    while opening := _OPENING.search(text, position):
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            break
        answers.append(text[position : opening.start()].strip())
        thoughts.append(text[opening.end() : closing.start()].strip())
        position = closing.end()
    answers.append(text[position:].strip())
    return "\n\n".join(thoughts), "\n".join(filter(None, answers))


def _unwrap(message: Json) -> Json:
    """Return a message without LangChain's envelope, or in ShareGPT's names."""
    if "from" in message and "value" in message:
        if message["from"] != "function_call":
            return {"role": message["from"], "content": message["value"]}
        calls = parse_json(message["value"])
        return {"role": "assistant", "tool_calls": calls if isinstance(calls, list) else [calls]}
    kwargs = message.get("kwargs")
    if "lc" in message and isinstance(kwargs, dict):
        kind = next((part for part in reversed(as_list(message.get("id"))) if part), "")
        return {"role": kind, **kwargs}
    data = message.get("data")
    return {**message, **data} if isinstance(data, dict) and "content" in data else message


def _is_result(block: object) -> bool:
    kind = as_text(as_dict(block).get("type"))
    return kind.endswith(_RESULT_TYPES) or bool(_inside(block, _RESULT_KEYS))


def _inside(block: object, keys: Iterable[str]) -> Json:
    """Return the call or the result in a block of Bedrock or Gemini, or an empty object."""
    return next(filter(None, (as_dict(block, key) for key in keys)), {})


def _is_content(block: object) -> bool:
    """Return whether a block is a text, a picture or the like, and not data."""
    kind = as_text(as_dict(block).get("type"))
    is_text = isinstance(block, str) or "text" in as_dict(block)
    return is_text or any(word in kind for word in _MEDIA)


def _block_text(block: Json) -> str:
    """Return the text of a block or a part; Bedrock nests it."""
    for key in ("text", "content", "thinking", "reasoning", "refusal", "reasoningContent"):
        value = block.get(key)
        if isinstance(value, dict):
            value = as_dict(value.get("reasoningText") or value).get("text")
        if text := as_text(value):
            return text
    return "\n".join(as_text(one.get("text")) for one in as_dicts(block.get("summary")))


def _parse_call(call: Json) -> ToolCall:
    """Parse a tool call in OpenAI's, Anthropic's, Bedrock's, LangChain's or ATIF's form."""
    function = as_dict(call, "function") or call
    arguments = parse_arguments(first_value(function, "arguments", "args", "input"))
    ids = map(as_name, map(call.get, ("id", "toolUseId", "tool_call_id")))
    name = first_text(function, "name", "function_name") or "(unnamed)"
    if (server := as_text(call.get("namespace"))).startswith("mcp__"):  # by Codex
        name = f"{server}__{name}"
    return ToolCall(name, arguments, next(filter(None, ids), None))


def _parse_result(message: Json) -> Result:
    output = first_value(message, "content", "response", "result", "output", "tools")
    ids = ("tool_call_id", "call_id", "tool_use_id", "toolUseId", "id")
    failed = message.get("is_error") is True or as_text(message.get("status")) in _FAILED_STATUSES
    is_content = isinstance(output, list) and all(map(_is_content, output))
    return Result(
        (is_content and text_of(output)) or output,
        next((call_id for key in ids if (call_id := as_name(message.get(key)))), None),
        as_name(message.get("name")),
        failed=failed,
    )


def parse_messages(value: object, role: str) -> list[ChatMessage]:
    """Parse the messages of a request, a response, a state, a list, or a JSON text of one.

    Any other text is a message of ``role``: ``user`` for inputs, ``assistant`` for outputs.
    """
    body = parse_json(value)
    keys = ("messages", "input" if role == "user" else "output", "generations", "choices")
    inner = first_value(as_dict(body), *keys)
    body = body if inner is None else inner
    if isinstance(body, str):
        text = _text_part(as_text(body), role)
        return [text._replace(role=role)] if body.strip() else []
    items = [body] if isinstance(body, dict) else as_list(body)
    if len(items) == 1 and isinstance(items[0], list) and not _is_pair(items[0]):
        items = items[0]  # LangChain's prompts and generations are lists of lists
    messages = (parse_message(_unwrap_choice(item, role), role) for item in items)
    return [message for message in messages if message is not None]


def _unwrap_choice(item: object, role: str) -> object:
    """Return the message in a choice, a generation or a pair."""
    if _is_pair(item):
        return dict(zip(("role", "content"), as_list(item), strict=True))
    envelope = as_dict(item)
    if isinstance(envelope.get("message"), dict):
        return envelope["message"]
    if "generation_info" in envelope or [*envelope] == ["text"]:
        return {"role": role, "content": envelope.get("text")}
    return item


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(part) is str for part in value)


def after_last_answer(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return the messages after the last one of the assistant."""
    history = [*messages]
    ends = (end for end, message in enumerate(history, 1) if message.role == "assistant")
    return history[max(ends, default=0) :]


def latest_request(messages: Iterable[ChatMessage]) -> str:
    """Return the user's texts since the last message of the assistant."""
    latest = (message for message in after_last_answer(messages) if message.role == "user")
    return as_text(" ".join(text for message in latest for text in message.texts))


def last_text(messages: Iterable[ChatMessage]) -> str:
    """Return the last text of the assistant, which is the answer of a whole history."""
    answers = (message for message in messages if message.role not in {"user", "tool"})
    texts = [text for message in answers for text in message.texts]
    return texts[-1] if texts else ""
