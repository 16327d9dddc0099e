"""What a run is for, read from its input: pure functions."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from kp_langchain._messages import messages_of, newest_first, read

_SAYS_IT: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
_MAX_FIELDS: Final = 20


def objective_of(inputs: object) -> object | None:
    """The last human message of a run's input, else what else says it, else None.

    >>> objective_of({"messages": [("user", "add 1 and 2"), ("ai", "3"), ("user", "and 4")]})
    'and 4'
    >>> objective_of({"language": "French", "length": 3})
    {'language': 'French', 'length': 3}
    """
    if isinstance(inputs, str | int | float):
        return inputs or None
    if spoken := last_human_text(messages_of(inputs)):
        return spoken
    if not isinstance(inputs, Mapping):
        text = getattr(inputs, "text", None)
        return text if isinstance(text, str) and text else None
    for key in _SAYS_IT:
        if isinstance(text := inputs.get(key), str) and text:
            return text
    return _plain_fields(inputs)


def last_human_text(messages: Sequence[object]) -> str | None:
    """What a human said last; where none spoke, what was said last; else None."""
    last = None
    for message in newest_first(messages):
        said = read(message)
        if said.role == "human" and said.text:
            return said.text
        last = last or said.text
    return last or None


def _plain_fields(inputs: Mapping[object, object]) -> object | None:
    fields = {
        key: value
        for key, value in islice(inputs.items(), _MAX_FIELDS)
        if isinstance(value, str | int | float) and value != ""
    }
    texts = [value for value in fields.values() if isinstance(value, str)]
    if len(fields) == len(texts) == 1:
        return texts[0]
    return fields or None
