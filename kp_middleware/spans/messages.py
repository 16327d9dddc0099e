"""Messages in every published form, and what they say; a field of another type counts as absent.

OpenAI's chat messages and items of its Responses API, Anthropic's and Bedrock's blocks, LangChain's
messages, and the parts of OpenTelemetry's GenAI conventions.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.recording import ToolCall, bounded_text, text_of

Fields: TypeAlias = dict[str, Any]

_MOST_BYTES: Final = 1_000_000
_MOST_EXACT: Final = 2**53
_EARLIEST_S: Final = 631_152_000.0  # 1990: what is earlier or later is no time of a run
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
}
_CALLS: Final = frozenset({"tool_use", "tool_call"})
_RESULTS: Final = frozenset({"tool_result", "tool_call_response"})
_REASONS: Final = frozenset({"reasoning", "thinking", "redacted_thinking"})
_FAILED: Final = frozenset({"error", "failed", "incomplete"})


def fields(value: object) -> Fields:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """Return a list, or an empty one."""
    return value if isinstance(value, list) else []


def objects(value: object) -> list[Fields]:
    """Return the objects of a list."""
    return [one for one in listed(value) if isinstance(one, dict)]


def text(value: object) -> str:
    """Return a text, at most 1 MB of it, or an empty one."""
    if isinstance(value, str) and len(value) >= _MOST_BYTES // 4:
        return bounded_text(value, _MOST_BYTES)
    return value if isinstance(value, str) else ""


def name(value: object) -> str | None:
    """Return a text that is not empty and that UTF-8 can write, or an integer as one; else None."""
    if type(value) is int and abs(value) < _MOST_EXACT:
        return str(value)
    return value.encode(errors="replace").decode() or None if isinstance(value, str) else None


def first_text(values: Mapping[str, Any], *keys: str) -> str:
    """Return the first of these values that is a text and not empty, or an empty one."""
    return next((said for key in keys if (said := text(values.get(key)))), "")


def number(value: object) -> float | None:
    """Return a finite number, or None; true and false are none.

    >>> number(1), number(True), number("1")
    (1.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _MOST_EXACT and math.isfinite(value) else None


def tokens(*values: object) -> int | None:
    """Return the sum of counts of tokens, or None where there is none."""
    counts = [count for value in values if (count := number(value)) is not None and count >= 0]
    return int(min(sum(counts), _MOST_EXACT)) if counts else None


def time_s(value: object) -> float | None:
    """Return an instant as epoch seconds, or None if it is no time of a run.

    Args:
        value: ISO 8601, in UTC where no zone is named, or epoch seconds.

    >>> time_s("2026-11-01T09:14:03Z") == time_s("2026-11-01 09:14:03.000") == 1793524443.0
    True
    """
    seconds = number(value)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds if seconds is not None and _EARLIEST_S <= seconds <= _LATEST_S else None


def parsed(value: object) -> Any:
    """Return the value of a JSON text, and any other value as it is: a cut text stays a text.

    >>> parsed('{"a": 1}'), parsed('{"a": '), parsed(2)
    ({'a': 1}, '{"a": ', 2)
    """
    if not isinstance(value, str | bytes):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def arguments(value: object) -> Fields:
    """Return the arguments of a call: an object, or a JSON text of one.

    >>> arguments('{"a": 1}'), arguments("ls -l"), arguments(None)
    ({'a': 1}, {'input': 'ls -l'}, {})
    """
    given = parsed(value)
    if isinstance(given, dict):
        return given
    return {} if given is None or given == "" else {"input": given}


class Result(NamedTuple):
    """The result of a tool, as a message has it."""

    output: object
    call_id: str | None = None
    tool: str | None = None
    failed: bool = False


class Said(NamedTuple):
    """The content of one message: ``thoughts`` are its reasoning and its texts, in order."""

    role: str
    thoughts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    results: tuple[Result, ...] = ()
    model: str | None = None
    read: int | None = None
    written: int | None = None


def said_in(given: object, role: str = "") -> Said | None:
    """Return what a message or an item says, or None if it is none.

    A message that does not tell its role has ``role``.

    >>> said_in({"role": "user", "content": [{"type": "text", "text": "An egg?"}]}).texts
    ('An egg?',)
    """
    message = _plain(fields(given))
    sort = text(message.get("type"))
    if sort.endswith("_call_output"):
        return Said("tool", results=(_result(message),))
    if sort == "reasoning":
        parts = objects(message.get("summary")) or objects(message.get("content"))
        return Said("assistant", tuple(said for one in parts if (said := text(one.get("text")))))
    if sort.endswith("_call"):
        call_id = name(message.get("call_id")) or name(message.get("id"))
        called = {"name": sort.removesuffix("_call"), "arguments": message.get("action")}
        return Said("assistant", calls=(_call({**called, **message, "id": call_id}),))
    known = (_ROLES.get(text(message.get(key))) for key in ("role", "type"))
    told = next(filter(None, known), None) or text(message.get("role"))
    if not told and (not role or not message.keys() & {"content", "parts", "tool_calls"}):
        return None
    return _in_message(message, told or role)


def _in_message(message: Fields, role: str) -> Said:
    content = message.get("parts") or message.get("contents") or message.get("content")
    blocks = [content] if isinstance(content, str) else listed(content)
    if role == "tool" and not any(_is_result(block) for block in blocks):
        return Said("tool", results=(_result(message),))
    parts = [_in_block(block, role) for block in blocks]
    if "contents" in message and not any(part.texts for part in parts):
        parts.append(_spoken(text(message.get("content"))))
    reasoning = first_text(message, "reasoning_content", "reasoning")
    thoughts = [thought for part in parts for thought in part.thoughts]
    called = [_call(one) for one in objects(message.get("tool_calls"))]
    calls = called or [call for part in parts for call in part.calls]
    if isinstance(message.get("function_call"), dict):
        calls.append(_call(message["function_call"]))
    usage = fields(message.get("usage_metadata")) or fields(message.get("usage"))
    model = fields(message.get("response_metadata")).get("model_name")
    return Said(
        role,
        tuple([reasoning, *thoughts] if reasoning else thoughts),
        tuple(words for part in parts for words in part.texts),
        tuple(calls),
        tuple(result for part in parts for result in part.results),
        name(model) or name(message.get("model")),
        tokens(usage.get("input_tokens", usage.get("prompt_tokens"))),
        tokens(usage.get("output_tokens", usage.get("completion_tokens"))),
    )


def _in_block(given: object, role: str) -> Said:
    block, sort = fields(given), text(fields(given).get("type"))
    if isinstance(given, str):
        return _spoken(given)
    if sort in _CALLS or "toolUse" in block:
        return Said(role, calls=(_call(fields(block.get("toolUse")) or block),))
    if _is_result(block):
        return Said(role, results=(_result(fields(block.get("toolResult")) or block),))
    words = _words(block)
    if sort in _REASONS or "reasoningContent" in block:
        return Said(role, (words,) if words else ())
    if not words and sort and not sort.endswith("text") and role == "user":
        words = f"[{sort[:40]}]"  # a picture
    return _spoken(words)


def _spoken(words: str) -> Said:
    return Said("", (words,), (words,)) if words.strip() else Said("")


def _plain(message: Fields) -> Fields:
    """Return a message of LangChain without the envelope of its serialization."""
    kwargs = message.get("kwargs")
    if "lc" in message and isinstance(kwargs, dict):
        kind = next((part for part in reversed(listed(message.get("id"))) if part), "")
        return {"role": kind, **kwargs}
    data = message.get("data")
    return {**message, **data} if isinstance(data, dict) and "content" in data else message


def _is_result(block: object) -> bool:
    return text(fields(block).get("type")) in _RESULTS or "toolResult" in fields(block)


def _words(block: Fields) -> str:
    """Return the text of a block or a part; Bedrock has its own block inside."""
    for key in ("text", "content", "thinking", "reasoning", "refusal", "reasoningContent"):
        value = block.get(key)
        if isinstance(value, dict):
            value = fields(value.get("reasoningText") or value).get("text")
        if said := text(value):
            return said
    return "\n".join(text(one.get("text")) for one in objects(block.get("summary")))


def _call(call: Fields) -> ToolCall:
    """Return a tool call in OpenAI's, Anthropic's, Bedrock's or LangChain's form."""
    asked = fields(call.get("function")) or call
    keys = ("arguments", "args", "input")
    given = next((asked[key] for key in keys if asked.get(key) is not None), None)
    call_id = name(call.get("id")) or name(call.get("toolUseId"))
    return ToolCall(text(asked.get("name")) or "(unnamed)", arguments(given), call_id)


def _result(message: Fields) -> Result:
    keys = ("content", "response", "result", "output")
    output = next((message[key] for key in keys if message.get(key) is not None), None)
    ids = ("tool_call_id", "call_id", "tool_use_id", "toolUseId", "id")
    return Result(
        text_of(output) if isinstance(output, list) and text_of(output) else output,
        next((found for key in ids if (found := name(message.get(key)))), None),
        name(message.get("name")),
        failed=message.get("is_error") is True or text(message.get("status")) in _FAILED,
    )


def messages_in(value: object, role: str) -> list[Said]:
    """Return the messages of a request, a response, a state, a list, or a JSON text of one.

    Any other text is what ``role`` said: ``user`` for what was given, ``assistant`` for what came.
    """
    body = parsed(value)
    told = fields(body)
    keys = ("messages", "input" if role == "user" else "output", "generations", "choices")
    body = next((told[key] for key in keys if told.get(key) is not None), body)
    if isinstance(body, str):
        return [Said(role, (text(body),), (text(body),))] if body.strip() else []
    found = [body] if isinstance(body, dict) else listed(body)
    if len(found) == 1 and isinstance(found[0], list) and not _is_pair(found[0]):
        found = found[0]  # LangChain's prompts and generations are lists of lists
    all_said = (said_in(_message(one, role), role) for one in found)
    return [said for said in all_said if said is not None]


def _message(one: object, role: str) -> object:
    """Return the message in a choice, a generation or a pair."""
    if _is_pair(one):
        return dict(zip(("role", "content"), listed(one), strict=True))
    envelope = fields(one)
    if isinstance(envelope.get("message"), dict):
        return envelope["message"]
    if "generation_info" in envelope or [*envelope] == ["text"]:
        return {"role": role, "content": envelope.get("text")}
    return one


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(one) is str for one in value)


def since_the_answer(messages: Iterable[Said]) -> list[Said]:
    """Return the messages after the last one of the assistant."""
    said = [*messages]
    start = max((at for at, one in enumerate(said, 1) if one.role == "assistant"), default=0)
    return said[start:]


def asked_in(messages: Iterable[Said]) -> str:
    """Return the user's texts since the last message of the assistant."""
    news = since_the_answer(messages)
    return text(" ".join(words for one in news if one.role == "user" for words in one.texts))


def last_text(messages: Iterable[Said]) -> str:
    """Return the last text of the assistant; of a whole history, that is its answer."""
    texts = [one for said in messages if said.role not in {"user", "tool"} for one in said.texts]
    return texts[-1] if texts else ""
