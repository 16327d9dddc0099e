"""A model's turn: reasoning, text, tool calls, log-probabilities."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kp_middleware.recording import ServedResult, ToolCall, Turn

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import LLMResult

_OPENING: Final = re.compile(r"<think(?:ing)?>")
_CLOSING: Final = re.compile(r"</think(?:ing)?>")

_REASONS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_CUT: Final = frozenset(
    (
        *("length", "max_tokens", "max_output_tokens", "model_length", "token_limit"),
        *("model_context_window_exceeded", "error_limit"),
        *("content_filter", "content_filtered", "guardrail_intervened", "refusal"),
        *("safety", "image_safety", "recitation", "blocklist", "prohibited_content", "spii"),
        *("error", "error_toxic", "cancelled", "user_cancel", "pause_turn", "other", "language"),
        *("malformed_function_call", "malformed_tool_use", "malformed_model_output"),
        *("unexpected_tool_call", "too_many_tool_calls"),
    )
)
"""The providers' finish reasons that mean an incomplete answer, in lower case."""


def turn_of(response: "LLMResult | None") -> Turn:
    """Return the first candidate of a model's response, or an empty turn."""
    if response is None or not response.generations or not response.generations[0]:
        return Turn()
    generation = response.generations[0][0]
    totals = response.llm_output or {}
    message: BaseMessage | None = getattr(generation, "message", None)
    if message is not None:
        return _turn_in(message, totals)
    return Turn(
        *_split_thinking(generation.text),
        model=totals.get("model_name"),
        tokens=_tokens(totals.get("token_usage")),
        unfinished=_cut(generation.generation_info or {}),
    )


def _turn_in(message: "BaseMessage", totals: Mapping[str, Any]) -> Turn:
    """Return the turn of a message; ``totals`` fill in a missing model name and tokens."""
    content, about = message.content, message.response_metadata
    served: tuple[ToolCall | ServedResult, ...] = ()
    if isinstance(content, str) and "<think" not in content and not message.additional_kwargs:
        reasoning, text = "", content  # nearly always
    else:
        said = said_in(message)
        reasoning, text, served = said.reasoning, said.text, said.served
    calls = _calls(message)
    usage = getattr(message, "usage_metadata", None) or totals.get("token_usage")
    return Turn(
        reasoning,
        text,
        calls,
        served,
        about.get("model_name") or about.get("model") or totals.get("model_name"),
        None if usage is None else _tokens(usage),
        message.id,
        None if calls and calls[0].error is None else _unfinished(calls, about),
    )


def _unfinished(calls: tuple[ToolCall, ...], about: Mapping[str, Any]) -> str | None:
    for call in calls:
        if call.error is None:
            return None  # somebody will do it
    return (_cut(about) if about else None) or ("InvalidToolCall" if calls else None)


def _cut(about: Mapping[str, Any]) -> str | None:
    """Return the reason a model stopped before it was finished, or None."""
    for name in _REASONS:
        if isinstance(reason := about.get(name), str) and reason.lower() in _CUT:
            return reason
    match about.get("incomplete_details"):  # of OpenAI's Responses API
        case {"reason": str(reason)}:
            return reason
    return None


def said_in(message: "BaseMessage") -> Turn:
    """Return the reasoning and text of a message, and the steps of its provider's tools."""
    content = message.content
    said = Turn(*_split_thinking(content)) if isinstance(content, str) else _from_blocks(content)
    extra = message.additional_kwargs
    if not extra or said.reasoning:
        return said
    beside = extra.get("reasoning_content") or extra.get("reasoning")
    return said._replace(reasoning=_reasoning({"type": "reasoning", "summary": beside}))


def _split_thinking(text: str) -> tuple[str, str]:
    """Return the reasoning in a text, and the rest."""
    if "<think" not in text:
        return "", text
    thoughts: list[str] = []
    spoken: list[str] = []
    told = 0
    while opening := _OPENING.search(text, told):
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            break
        spoken.append(text[told : opening.start()].strip())
        thoughts.append(text[opening.end() : closing.start()].strip())
        told = closing.end()
    spoken.append(text[told:].strip())
    return "\n\n".join(thoughts), "\n".join(filter(None, spoken))


def _from_blocks(blocks: list[str | dict[str, object]]) -> Turn:
    texts: list[str] = []
    thoughts: list[str] = []
    served: list[ToolCall | ServedResult] = []
    names: dict[str, str] = {}
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif block.get("type") == "text" and isinstance(text := block.get("text"), str):
            texts.append(text)
        elif thought := _reasoning(block):
            thoughts.append(thought)
        elif step := _served(block, names):
            served.append(step)
    inline, text = _split_thinking("".join(texts))
    return Turn("\n\n".join(filter(None, [*thoughts, inline])), text, served=tuple(served))


def _reasoning(block: object) -> str:
    """Return the reasoning in a block, in any provider's form, or an empty string."""
    match block:
        case {"type": "reasoning", "reasoning": str(text)}:
            return text
        case {"type": "reasoning", "summary": str(text)}:
            return text
        case {"type": "reasoning", "summary": [*parts]}:
            texts = (part.get("text") for part in parts if isinstance(part, Mapping))
            return "\n\n".join(text for text in texts if isinstance(text, str) and text)
        case {"type": "reasoning", "summary": {"summary": [*parts]}}:
            return _reasoning({"type": "reasoning", "summary": parts})
        case {"type": "thinking", "thinking": str(text)}:
            return text
        case {"type": "reasoning_content", "reasoning_content": {"text": str(text)}}:
            return text
        case {"type": "non_standard", "value": value}:
            return _reasoning(value)
    return ""


def _served(block: Mapping[str, object], names: dict[str, str]) -> ToolCall | ServedResult | None:
    """Return a step of the provider's own tools, or None; ``names`` maps call ids to tools."""
    match block:
        case {"type": "server_tool_call" | "server_tool_use", "name": str(name)}:
            args = block.get("args", block.get("input"))
            names[str(block.get("id"))] = name
            return ToolCall(name, args if isinstance(args, Mapping) else {"input": args})
        case {"type": "server_tool_result", "tool_call_id": call_id}:
            failed = block.get("status") == "error"
            return ServedResult(names.get(str(call_id), "server_tool"), block.get("output"), failed)
        case {"type": str(kind), "tool_use_id": call_id} if kind.endswith("_tool_result"):
            name = names.get(str(call_id), kind.removesuffix("_tool_result"))
            return ServedResult(name, block.get("content"))
    return None


def _calls(message: "BaseMessage") -> tuple[ToolCall, ...]:
    calls = [
        ToolCall(call["name"], call["args"], call.get("id"))
        for call in getattr(message, "tool_calls", ())
    ]
    for call in getattr(message, "invalid_tool_calls", ()):
        error = str(call.get("error") or "the arguments are not valid JSON")
        arguments = {"arguments": call.get("args")}
        calls.append(ToolCall(call.get("name") or "?", arguments, error=error))
    return tuple(calls)


def _tokens(usage: object) -> tuple[int, int] | None:
    match usage:
        case {"input_tokens": int(read), "output_tokens": int(written)}:
            return read, written
        case {"prompt_tokens": int(read), "completion_tokens": int(written)}:
            return read, written
    return None


def told_beside(response: "LLMResult") -> Mapping[str, object]:
    """Return the metadata of a response, or nothing if its log-probabilities are incomplete.

    LangChain's streaming of version 3 keeps those of the last chunk alone: the full stop's.
    """
    if not response.generations or not response.generations[0]:
        return {}
    generation = response.generations[0][0]
    message = getattr(generation, "message", None)
    if message is None:
        return generation.generation_info or {}
    about: Mapping[str, object] = message.response_metadata
    may_be_cut = about.get("output_version") == "v1" and "logprobs" in about
    return {} if may_be_cut and not _cover(about["logprobs"], message.text) else about


def _cover(logprobs: object, text: str) -> bool:
    """Return whether log-probabilities cover at least half of a text."""
    match logprobs:
        case {"content": [*tokens]} | [*tokens]:
            said = (token.get("token") for token in tokens if isinstance(token, Mapping))
            return 2 * sum(len(str(token)) for token in said) >= len(text)
    return False
