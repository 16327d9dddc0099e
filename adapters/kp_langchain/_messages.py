"""Readers of LangChain's messages, inputs, results and outputs, and of a model's turn."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import LLMResult

from kp_middleware.recording import Message, ServedResult, ToolCall, Turn, fields_of, text_of
from kp_middleware.spans.messages import ANSWER_KEYS, TASK_KEYS, split_thinking

QUOTE: Final = "kp_past_run"
"""The ``lc_source`` of a message that quotes a past run, which is not recorded."""

_MOST_READ: Final = 1000  # messages, newest first
_MAX_FIELDS: Final = 100  # of a state or a tool's list, which may have a million items
_TYPES: Final[dict[type, str]] = {AIMessage: "assistant", HumanMessage: "user", ToolMessage: "tool"}
_ROLES: Final = {"human": "user", "ai": "assistant", "developer": "system", "function": "tool"}


def read(message: object) -> Message:
    """Parse a message object, ``(role, text)``, ``{"role": …, "content": …}``, or plain text.

    >>> read(("user", "hello"))
    Message(role='user', text='hello', id=None, call_id=None, name=None, failed=False)
    """
    if isinstance(message, BaseMessage):
        return Message(
            role=role_of(message),
            text=text_of(message.content),
            id=message.id,
            call_id=getattr(message, "tool_call_id", None),
            name=message.name,
            failed=getattr(message, "status", None) == "error",
        )
    if isinstance(message, Mapping):
        role = str(message.get("role") or message.get("type") or "")
        call_id = message.get("tool_call_id")
        return Message(
            role=_ROLES.get(role, role),
            text=text_of(message.get("content")),
            call_id=call_id if isinstance(call_id, str) else None,
            failed=message.get("status") == "error",
        )
    if isinstance(message, str):
        return Message("user", message)
    if isinstance(message, tuple | list):
        role, content = message if len(message) == 2 else ("", "")
        return Message(_ROLES.get(str(role), str(role)), text_of(content))
    return Message("", "")


def role_of(message: object) -> str:
    """Return the role of a message object (``user``, ``assistant``, …), or an empty string."""
    role = _TYPES.get(type(message))
    if role is not None and not message.additional_kwargs:  # type: ignore[attr-defined]
        return role  # nearly always
    if not isinstance(message, BaseMessage) or message.additional_kwargs.get("lc_source") == QUOTE:
        return ""
    role = getattr(message, "role", "") if message.type == "chat" else message.type
    return _ROLES.get(role, role)


def messages_of(value: object) -> Sequence[object]:
    """Return the messages of a state, a prompt or a list of messages, else an empty list."""
    if isinstance(value, Mapping):
        value = value.get("messages")
    elif not isinstance(value, str | list | tuple):
        value = getattr(value, "messages", None)
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        is_pair = len(value) == 2 and all(isinstance(part, str) for part in value)
        return [value] if is_pair else value
    return [] if value is None else [value]


def result_of(output: object, call_id: str | None) -> tuple[object, bool]:
    """Return the text of a call's result, or its value, and True if the tool reports a failure.

    The output is a message, a Command, a list of these, or any value. A message's artifact is for
    the program, not the model, and is ignored.
    """
    message = output if isinstance(output, ToolMessage) else None
    if message is None:
        found: list[object] = []
        for part in output[:_MAX_FIELDS] if isinstance(output, list) else [output]:
            is_command = type(part).__name__ == "Command"  # langgraph's, maybe not installed
            found += messages_of(getattr(part, "update", None)) if is_command else [part]
        messages = [one for one in found if isinstance(one, ToolMessage)]
        answers = [one for one in messages if one.tool_call_id == call_id]
        message = next(reversed(answers or messages), None)
    if message is None:
        return "None" if output is None else output, False
    content = message.content
    return content if type(content) is str else text_of(content), message.status == "error"


_SIZED: Final = (str, list, tuple, dict, set)


def non_empty_fields(fields: Mapping[str, object]) -> object | None:
    """Return the non-empty fields of a state except its messages; a single text as it is.

    >>> non_empty_fields({"request": {"subject": "cats"}, "report": "", "messages": []})
    {'request': {'subject': 'cats'}}
    """
    present = {
        key: _with_text(value)
        for key, value in islice(fields.items(), _MAX_FIELDS)
        if key != "messages" and value is not None and not (isinstance(value, _SIZED) and not value)
    }
    only = next(iter(present.values())) if len(present) == 1 else None
    return only if isinstance(only, str) else present or None


def answer_text(message: BaseMessage) -> str:
    """Return the text of a message, without a model's reasoning."""
    return parse(message).text if isinstance(message, AIMessage) else text_of(message.content)


def _with_text(value: object) -> object:
    if isinstance(value, BaseMessage):
        return answer_text(value)
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return [_with_text(one) for one in value[-_MAX_FIELDS:]]
    return (_last_text(messages_of(value)) if isinstance(value, dict) else None) or value


def objective_of(inputs: object) -> object | None:
    """Return the last human message of a run's input, else a known key, else all of it, or None.

    >>> objective_of({"messages": [("user", "add 1 and 2"), ("ai", "3"), ("user", "and 4")]})
    'and 4'
    >>> objective_of({"language": "French", "length": 3})
    {'language': 'French', 'length': 3}
    """
    if type(inputs).__name__ == "Command":  # langgraph's, which may not be installed
        inputs = getattr(inputs, "update", None)
    if isinstance(inputs, str | int | float):
        return inputs or None
    if text := last_human_text(messages_of(inputs)):
        return text
    if isinstance(inputs, list | tuple):
        return inputs or None
    if isinstance(text := getattr(inputs, "text", None), str) and text:
        return text
    fields = inputs if isinstance(inputs, Mapping) else fields_of(inputs)
    if fields is None:
        return None
    for key in TASK_KEYS:
        if isinstance(text := fields.get(key), str) and text:
            return text
    return non_empty_fields(fields)


def last_human_text(messages: Sequence[object]) -> str | None:
    """Return the last human text, else the last text that is no tool's, else None."""
    last = None
    for message in islice(reversed(messages), _MOST_READ):
        parsed = read(message)
        if parsed.role == "user" and parsed.text:
            return parsed.text
        last = last or (parsed.text if parsed.role != "tool" else None)
    return last or None


_CONTEXT_KEYS: Final = frozenset((*TASK_KEYS, "context", "history"))
"""The keys of an answer's inputs."""


def answer_of(output: object) -> tuple[object | None, object | None]:
    """Return the final answer of a run and its structured response, each None if missing.

    The answer is the structured response, else the last message, else a known key, else the output.

    >>> answer_of({"question": "1+2", "answer": "3", "confidence": 0.9})
    ('3', None)
    """
    name = "structured_response"
    structured = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    return _result(output) if structured is None else structured, structured


def final_text(output: object) -> str | None:
    """Return the last text of an output that has only messages, if it needs no parsing."""
    if not isinstance(output, dict) or len(output) != 1:
        return None
    messages = output.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, AIMessage | ToolMessage) or "lc_source" in last.additional_kwargs:
        return None
    text = last.content
    return text if isinstance(text, str) and "<think" not in text else None


def _result(output: object) -> object | None:
    if isinstance(output, BaseMessage):
        return answer_text(output) or None
    if text := _last_text(messages_of(output)):
        return text
    if not isinstance(output, Mapping):
        return output
    answers = (key for key in ANSWER_KEYS if isinstance(output.get(key), str) and output[key])
    answer = next(answers, None)
    others = (value for key, value in output.items() if key != answer and key not in _CONTEXT_KEYS)
    is_one_of_many = any(isinstance(one, str | Mapping | BaseMessage) and one for one in others)
    return non_empty_fields(output) if answer is None or is_one_of_many else str(output[answer])


def _last_text(messages: Sequence[object]) -> str | None:
    """Return the agent's last text, or a tool result that is returned directly."""
    for distance, message in enumerate(islice(reversed(messages), _MOST_READ)):
        parsed = read(message)
        if parsed.role == "user":
            return None
        text = answer_text(message) if isinstance(message, BaseMessage) else parsed.text
        if text and (parsed.role == "assistant" or (parsed.role == "tool" and distance == 0)):
            return text
    return None


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


def turn_of(response: LLMResult | None) -> Turn:
    """Return the first candidate of a model's response, or an empty turn."""
    if response is None or not response.generations or not response.generations[0]:
        return Turn()
    generation, totals = response.generations[0][0], response.llm_output or {}
    message: BaseMessage | None = getattr(generation, "message", None)
    if message is None:
        return Turn(
            *split_thinking(generation.text),
            model=totals.get("model_name"),
            tokens=_tokens(totals.get("token_usage")),
            unfinished=_cut(generation.generation_info or {}),
        )
    content, metadata = message.content, message.response_metadata
    served: tuple[ToolCall | ServedResult, ...] = ()
    if isinstance(content, str) and "<think" not in content and not message.additional_kwargs:
        reasoning, text = "", content  # nearly always
    else:
        turn = parse(message)
        reasoning, text, served = turn.reasoning, turn.text, turn.served
    calls = _calls(message)
    usage = getattr(message, "usage_metadata", None) or totals.get("token_usage")
    unfinished = None
    if not calls or calls[0].error is not None:  # valid calls are first, and will be run
        is_empty = usage is not None and not content
        otherwise = "InvalidToolCall" if calls else "EmptyAnswer" if is_empty else None
        unfinished = (_cut(metadata) if metadata else None) or otherwise
    return Turn(
        reasoning,
        text,
        calls,
        served,
        metadata.get("model_name") or metadata.get("model") or totals.get("model_name"),
        None if usage is None else _tokens(usage),
        message.id,
        unfinished,
    )


def _cut(metadata: Mapping[str, Any]) -> str | None:
    for name in ("finish_reason", "stop_reason", "stopReason", "done_reason"):
        if isinstance(reason := metadata.get(name), str) and reason.lower() in _CUT:
            return reason
    match metadata.get("incomplete_details"):  # of OpenAI's Responses API
        case {"reason": str(reason)}:
            return reason
    return None


def parse(message: BaseMessage) -> Turn:
    """Return the reasoning and text of a message, and the steps of its provider's tools."""
    content = message.content
    turn = Turn(*split_thinking(content)) if isinstance(content, str) else _from_blocks(content)
    extra = message.additional_kwargs
    if not extra or turn.reasoning:
        return turn
    extra_reasoning = extra.get("reasoning_content") or extra.get("reasoning")
    return turn._replace(reasoning=_reasoning({"type": "reasoning", "summary": extra_reasoning}))


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
    inline, text = split_thinking("".join(texts))
    return Turn("\n\n".join(filter(None, [*thoughts, inline])), text, served=tuple(served))


def _reasoning(block: object) -> str:
    """Return the reasoning in a block, in any provider's form, or an empty string."""
    match block:
        case (
            {"type": "reasoning", "reasoning": str(text)}
            | {"type": "reasoning", "summary": str(text)}
            | {"type": "thinking", "thinking": str(text)}
            | {"type": "reasoning_content", "reasoning_content": {"text": str(text)}}
        ):
            return text
        case {"type": "reasoning", "summary": [*parts] | {"summary": [*parts]}}:
            texts = (part.get("text") for part in parts if isinstance(part, Mapping))
            return "\n\n".join(text for text in texts if isinstance(text, str) and text)
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


def _calls(message: BaseMessage) -> tuple[ToolCall, ...]:
    made = getattr(message, "tool_calls", ())
    calls = [ToolCall(call["name"], call["args"], call.get("id")) for call in made]
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


def logprobs_of(response: LLMResult) -> Mapping[str, object]:
    """Return the metadata of a response, or nothing if its log-probabilities are incomplete.

    LangChain's streaming of version 3 only retains those of the last chunk.
    """
    if not response.generations or not response.generations[0]:
        return {}
    generation = response.generations[0][0]
    message = getattr(generation, "message", None)
    if message is None:
        return generation.generation_info or {}
    metadata: Mapping[str, object] = message.response_metadata
    if metadata.get("output_version") != "v1" or "logprobs" not in metadata:
        return metadata
    match metadata["logprobs"]:
        case {"content": [*tokens]} | [*tokens]:
            texts = (token.get("token") for token in tokens if isinstance(token, Mapping))
            if 2 * sum(len(str(token)) for token in texts) >= len(message.text):
                return metadata
    return {}
