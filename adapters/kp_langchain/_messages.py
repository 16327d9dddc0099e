"""What messages say, in each of the forms that LangChain accepts: pure functions of messages."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from langchain_core.messages import BaseMessage

_ROLES: Final = {"user": "human", "assistant": "ai", "developer": "system", "function": "tool"}
_FARTHEST: Final = 1000


class Message(NamedTuple):
    """One message, read.

    Attributes:
        role: ``human``, ``ai``, ``system``, ``tool`` or another name that its author chose.
        text: What it says; pictures and the like are named in brackets.
        id: Of the message, or None.
        call_id: Of the tool call that it answers, or None.
        name: Of the tool that it comes from, or None.
        failed: Whether it says that a tool failed.
    """

    role: str
    text: str
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    failed: bool = False


def read(message: object) -> Message:
    """A message object, ``(role, text)``, ``{"role": …, "content": …}``, or a plain text.

    >>> read(("user", "hello"))
    Message(role='human', text='hello', id=None, call_id=None, name=None, failed=False)
    """
    if isinstance(message, Mapping):
        return _from_mapping(message)
    if isinstance(message, str):
        return Message("human", message)
    if isinstance(message, tuple | list):
        role, content = message if len(message) == 2 else ("", "")
        return Message(_ROLES.get(str(role), str(role)), text_of(content))
    if not isinstance(message, BaseMessage):
        return Message("", "")
    return Message(
        role=role_of(message),
        text=text_of(message.content),
        id=message.id,
        call_id=getattr(message, "tool_call_id", None),
        name=message.name,
        failed=getattr(message, "status", None) == "error",
    )


def role_of(message: object) -> str:
    """Who speaks in a message object: ``human``, ``ai``, ``tool``, …; of another object, nobody."""
    if not isinstance(message, BaseMessage):
        return ""
    role = getattr(message, "role", "") if message.type == "chat" else message.type
    return _ROLES.get(role, role)


def messages_of(value: object) -> Sequence[object]:
    """The conversation that a state, a prompt or a list of messages holds, else nothing."""
    if isinstance(value, Mapping):
        value = value.get("messages")
    elif not isinstance(value, str | list | tuple):
        value = getattr(value, "messages", None)
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return [value] if _is_pair(value) else value
    return [] if value is None else [value]


def newest_first(messages: Sequence[object]) -> Iterable[object]:
    """The last thousand messages, from the last one back."""
    return islice(reversed(messages), _FARTHEST)


def text_of(content: object) -> str:
    """The text of a message's content: itself, or its blocks, each on a line.

    >>> text_of([{"type": "text", "text": "Here:"}, {"type": "image", "url": "…"}]).splitlines()
    ['Here:', '[image]']
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(text for block in content if (text := _block_text(block)))


def _block_text(block: object) -> str:
    match block:
        case str():
            return block
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)}:
            return f"[{kind}]"
    return ""


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
