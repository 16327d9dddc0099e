"""What a run came to, read from its output: pure functions."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from langchain_core.messages import BaseMessage

from kp_langchain._messages import messages_of, newest_first, read
from kp_langchain._objective import SAYS_IT
from kp_langchain._state import said_by, told_by

_ANSWERS: Final = ("output", "answer", "result", "response", "generation", "summary", "text")
_BESIDE: Final = frozenset((*SAYS_IT, "context", "history"))
"""Keys of texts that an answer was made of."""


class Answer(NamedTuple):
    """What a run came to.

    Attributes:
        result: The final answer, or None where the output names none.
        structured: The structured response, or None where there is none.
    """

    result: object | None
    structured: object | None


def answer_of(output: object) -> Answer:
    """The structured response, else the last thing said, else what else is an answer, else all.

    >>> answer_of({"question": "1+2", "answer": "3", "confidence": 0.9})
    Answer(result='3', structured=None)
    """
    structured = _field(output, "structured_response")
    return Answer(_result(output) if structured is None else structured, structured)


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
    """Whether nothing else in it is an answer as well."""
    return not any(
        isinstance(value, str | Mapping | BaseMessage) and value
        for key, value in output.items()
        if key != answer and key not in _BESIDE
    )


def _last_said(messages: Sequence[object]) -> str | None:
    """What the agent said last, or the tool's result where that is returned directly."""
    for distance, message in enumerate(newest_first(messages)):
        role = read(message).role
        if role == "human":
            return None
        answers = role == "ai" or (role == "tool" and distance == 0)
        if answers and (text := _text(message)):
            return text
    return None


def _text(message: object) -> str:
    return said_by(message) if isinstance(message, BaseMessage) else read(message).text


def _field(value: object, name: str) -> object | None:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
