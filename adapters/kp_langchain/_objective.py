"""What a run is for, read from its input: pure functions."""

from collections.abc import Sequence
from typing import Final

from kp_langchain._messages import messages_of, newest_first, read
from kp_langchain._state import fields_of, told_by

SAYS_IT: Final = ("input", "question", "query", "objective", "task", "prompt", "text", "topic")
"""Keys of an input that tell what is asked, the first before the others."""


def objective_of(inputs: object) -> object | None:
    """The last human message of a run's input, else what else says it, else all of it, or None.

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
    fields = fields_of(inputs)
    if fields is None:
        return None
    for key in SAYS_IT:
        if isinstance(text := fields.get(key), str) and text:
            return text
    return told_by(fields)


def last_human_text(messages: Sequence[object]) -> str | None:
    """What a human said last; where none spoke, what was said last; else None."""
    last = None
    for message in newest_first(messages):
        said = read(message)
        if said.role == "human" and said.text:
            return said.text
        last = last or said.text
    return last or None
