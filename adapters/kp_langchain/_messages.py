"""Readers for messages, inputs, results and outputs in each form that LangChain accepts."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from kp_langchain._turns import said_in
from kp_middleware.recording import Message, fields_of, newest_first, text_of

QUOTE: Final = "kp_past_run"
"""The ``lc_source`` of a message that quotes a past run: nobody said it."""

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
        return _from_mapping(message)
    if isinstance(message, str):
        return Message("user", message)
    if isinstance(message, tuple | list):
        role, content = message if len(message) == 2 else ("", "")
        return Message(_ROLES.get(str(role), str(role)), text_of(content))
    return Message("", "")


def role_of(message: object) -> str:
    """Return the role of a message object (``user``, ``assistant``, …), or an empty string."""
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
        return [value] if _is_pair(value) else value
    return [] if value is None else [value]


def _from_mapping(message: Mapping[object, object]) -> Message:
    role = str(message.get("role") or message.get("type") or "")
    call_id = message.get("tool_call_id")
    return Message(
        role=_ROLES.get(role, role),
        text=text_of(message.get("content")),
        call_id=call_id if isinstance(call_id, str) else None,
        failed=message.get("status") == "error",
    )


def _is_pair(value: tuple[object, ...]) -> bool:
    return len(value) == 2 and all(isinstance(part, str) for part in value)


_MOST_PARTS: Final = 100  # of a list that a tool gave: it may be a million numbers


def result_of(output: object, call_id: str | None) -> tuple[object, bool]:
    """Return the text of a call's result, or the value itself, and whether the tool says it failed.

    The output is a message, a Command, a list of these, or any value. A message's artifact is for
    the program, not for the model, and is left out.
    """
    message = output if isinstance(output, ToolMessage) else _message_in(output, call_id)
    if message is not None:
        return text_of(message.content), message.status == "error"
    return "None" if output is None else output, False


def _message_in(output: object, call_id: str | None) -> ToolMessage | None:
    parts = output[:_MOST_PARTS] if isinstance(output, list) else [output]
    messages = [
        message
        for part in parts
        for message in ([part] if isinstance(part, ToolMessage) else _messages_of_command(part))
    ]
    answers = [message for message in messages if message.tool_call_id == call_id]
    return next(reversed(answers or messages), None)


def _messages_of_command(command: object) -> list[ToolMessage]:
    if type(command).__name__ != "Command":  # langgraph's, which may not be installed
        return []
    update = getattr(command, "update", None)
    return [message for message in messages_of(update) if isinstance(message, ToolMessage)]


_MAX_FIELDS: Final = 100
_MAX_MESSAGES: Final = 100


def told_by(fields: Mapping[str, object]) -> object | None:
    """Return the non-empty fields of a state except its messages; a single text as it is.

    >>> told_by({"request": {"subject": "cats"}, "report": "", "messages": []})
    {'request': {'subject': 'cats'}}
    """
    told = {
        key: _plain(value)
        for key, value in islice(fields.items(), _MAX_FIELDS)
        if key != "messages" and not _is_empty(value)
    }
    only = next(iter(told.values())) if len(told) == 1 else None
    return only if isinstance(only, str) else told or None


def said_by(message: object) -> str:
    """Return the text of a message, without a model's reasoning."""
    if isinstance(message, AIMessage):
        return said_in(message).text
    return text_of(message.content) if isinstance(message, BaseMessage) else ""


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict | set) and not value)


def _plain(value: object) -> object:
    """Return the value with messages replaced by their text."""
    if isinstance(value, BaseMessage):
        return said_by(value)
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return [_plain(one) for one in value[-_MAX_MESSAGES:]]
    return value


SAYS_IT: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
"""The input keys that may hold the objective, in order of preference."""


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
    if spoken := last_human_text(messages_of(inputs)):
        return spoken
    if isinstance(inputs, list | tuple):
        return inputs or None
    if isinstance(text := getattr(inputs, "text", None), str) and text:
        return text
    fields = inputs if isinstance(inputs, Mapping) else fields_of(inputs)
    if fields is None:
        return None
    for key in SAYS_IT:
        if isinstance(text := fields.get(key), str) and text:
            return text
    return told_by(fields)


def last_human_text(messages: Sequence[object]) -> str | None:
    """Return the last human text, else the last text of anyone, else None."""
    last = None
    for message in newest_first(messages):
        said = read(message)
        if said.role == "user" and said.text:
            return said.text
        last = last or said.text
    return last or None


_ANSWERS: Final = ("output", "answer", "result", "response", "generation", "summary", "text")
_BESIDE: Final = frozenset((*SAYS_IT, "context", "history"))
"""The keys of texts that an answer is based on."""


class Answer(NamedTuple):
    """The final answer of a run, and its structured response; None where there is none."""

    result: object | None
    structured: object | None


def answer_of(output: object) -> Answer:
    """Return the structured response, else the last message, else a known key, else the output.

    >>> answer_of({"question": "1+2", "answer": "3", "confidence": 0.9})
    Answer(result='3', structured=None)
    """
    name = "structured_response"
    structured = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    return Answer(_result(output) if structured is None else structured, structured)


def final_text(output: object) -> str | None:
    """Return the last text of a model where the output is messages alone, and it tells no more."""
    if not isinstance(output, dict) or len(output) != 1:
        return None
    messages = output.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, AIMessage) or last.additional_kwargs:
        return None
    text = last.content
    return text if isinstance(text, str) and "<think" not in text else None


def _result(output: object) -> object | None:
    if isinstance(output, BaseMessage):
        return said_by(output) or None
    if said := _last_said(messages_of(output)):
        return said
    if not isinstance(output, Mapping):
        return output
    for key in _ANSWERS:
        if isinstance(text := output.get(key), str) and text:
            return text if _is_alone(output, key) else told_by(output)
    return told_by(output)


def _is_alone(output: Mapping[str, object], answer: str) -> bool:
    """Return whether no other field of the output is an answer as well."""
    return not any(
        isinstance(value, str | Mapping | BaseMessage) and value
        for key, value in output.items()
        if key != answer and key not in _BESIDE
    )


def _last_said(messages: Sequence[object]) -> str | None:
    """Return the agent's last text, or a tool result that is returned directly."""
    for distance, message in enumerate(newest_first(messages)):
        role = read(message).role
        if role == "user":
            return None
        answers = role == "assistant" or (role == "tool" and distance == 0)
        if answers and (text := _text(message)):
            return text
    return None


def _text(message: object) -> str:
    return said_by(message) if isinstance(message, BaseMessage) else read(message).text
