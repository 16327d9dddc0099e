"""The state that a run is given, or gives, whatever its keys are: pure functions."""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage

from kp_langchain._messages import text_of
from kp_langchain._turns import said_in

_MAX_FIELDS: Final = 100
_MAX_MESSAGES: Final = 100


def fields_of(value: object) -> Mapping[str, object] | None:
    """A mapping itself, the fields of a dataclass or a pydantic model; else None."""
    if isinstance(value, Mapping):
        return value
    for name in ("__dataclass_fields__", "model_fields"):
        fields = getattr(type(value), name, None)
        if isinstance(fields, Mapping):
            shown = [name for name, field in fields.items() if getattr(field, "repr", True)]
            return {name: getattr(value, name, None) for name in shown}
    return None


def told_by(fields: Mapping[str, object]) -> object | None:
    """What stands in a state beside its conversation: a single text as it is; None: nothing.

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
    """What a message says; not what a model thought before."""
    if isinstance(message, AIMessage):
        return said_in(message).text
    return text_of(message.content) if isinstance(message, BaseMessage) else ""


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict | set) and not value)


def _plain(value: object) -> object:
    """The value, with messages as what they say."""
    if isinstance(value, BaseMessage):
        return said_by(value)
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return [_plain(one) for one in value[-_MAX_MESSAGES:]]
    return value
