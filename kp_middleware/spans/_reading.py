"""The reading of a span, whatever its dialect, and typed reading of attributes others wrote."""

import json
from ast import literal_eval
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.recording import ToolCall, Turn, bounded_text

Kind: TypeAlias = Literal["agent", "model", "tool", "retriever", "chain"]
"""The kind of a span; a ``chain`` has no step of its own."""

Attributes: TypeAlias = Mapping[str, Any]

MOST_BYTES: Final = 64 * 1024
"""The size up to which a text is kept while its run goes on."""

CANCELLED: Final = frozenset({"CancelledError", "GeneratorExit"})

_REPEATS: Final = 4096  # characters of a number or a nesting that are still worth parsing


class Event(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Attributes


class Problem(NamedTuple):
    """An error as words: its type, its message, and the words of its first cause."""

    type: str
    message: str = ""
    cause: str = ""


class Reading(NamedTuple):
    """A span that has ended.

    Attributes:
        kind: The kind, or None if it is no span of an agent.
        name: The name of the agent, the model or the tool; empty if unknown.
        turn: The turn of a model.
        asked: The user's texts since the last turn of a model, among those given to this one.
        call_id: The id of a tool's call.
        given: The arguments of a tool, or None if they are not told.
        result: The result of a tool, or None.
        answer: The answer of an agent, or None.
        output: The raw output of an agent, used where no model said anything.
        task: The task of an agent, as its user gave it.
        conversation: The id of the conversation.
        problem: The error that ended it.
        complete: Whether an agent came to its result, or None if it does not tell.
    """

    kind: Kind | None
    name: str = ""
    turn: Turn | None = None
    asked: str = ""
    call_id: str | None = None
    given: Mapping[str, object] | None = None
    result: object = None
    answer: object = None
    output: object = None
    task: str = ""
    conversation: str | None = None
    problem: Problem | None = None
    complete: bool | None = None


class Said(NamedTuple):
    """One message: its reasoning and texts in order, the last text, and its tool calls."""

    role: str
    thoughts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()


def text(value: object) -> str:
    """Return a text of bounded size, or an empty one."""
    if not isinstance(value, str):
        return ""
    return value if len(value) < MOST_BYTES // 4 else bounded_text(value, MOST_BYTES)


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


def kept(value: object) -> Any:
    """Return the value of a JSON text if it is small, and the bounded text otherwise."""
    if isinstance(value, str) and len(value) > MOST_BYTES // 2:
        return bounded_text(value, MOST_BYTES)
    return parsed(value)


def fields(value: object) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def arguments(value: object) -> dict[str, object]:
    """Return the arguments of a call: an object, or a JSON text of one.

    >>> arguments('{"a": 1}'), arguments("ls -l"), arguments(None)
    ({'a': 1}, {'input': 'ls -l'}, {})
    """
    given = kept(value)
    if isinstance(given, dict):
        return given
    return {} if given is None or given == "" else {"input": given}


def first_text(attributes: Attributes, *keys: str) -> str:
    """Return the first of these attributes that is a text which is not empty."""
    return next((said for key in keys if (said := text(attributes.get(key)))), "")


def tokens(attributes: Attributes, read: str, written: str) -> tuple[int, int] | None:
    """Return the numbers of input and output tokens, or None if none is told."""
    counts = [attributes.get(read), attributes.get(written)]
    if not any(isinstance(count, int | float) for count in counts):
        return None
    numbers = (count if isinstance(count, int | float) and count >= 0 else 0 for count in counts)
    first, second = (int(min(number, 2**53)) for number in numbers)
    return first, second


def turn_of(messages: Iterable[Said], model: str | None, used: tuple[int, int] | None) -> Turn:
    """Return the turn of a model that answered with these messages."""
    said = list(messages)
    thoughts = tuple(thought for one in said for thought in one.thoughts)
    texts = [one for message in said for one in message.texts]
    calls = tuple(call for message in said for call in message.calls)
    return Turn(
        text=texts[-1] if texts else "", calls=calls, model=model, tokens=used, thoughts=thoughts
    )


def asked_in(messages: Iterable[Said]) -> str:
    """Return the user's texts since the last message of the assistant."""
    asked: list[str] = []
    for message in messages:
        if message.role in {"assistant", "model", "ai"}:
            asked.clear()
        elif message.role in {"user", "human"}:
            asked.extend(message.texts)
    return text(" ".join(asked))


def last_text(messages: Iterable[Said]) -> str:
    """Return the last text of the assistant; of a whole history, that is its answer."""
    texts = [one for said in messages if said.role not in {"user", "tool"} for one in said.texts]
    return texts[-1] if texts else ""


def problem_of(attributes: Attributes, events: Iterable[Event], description: object) -> Problem:
    """Return the error of a span whose status is an error.

    >>> problem_of({}, (), "Error in run: {'error': 'it is gone'}")
    Problem(type='Error in run', message="{'error': 'it is gone'}", cause='it is gone')
    """
    raised = [event.attributes for event in events if event.name == "exception"]
    if raised:
        kind = text(raised[-1].get("exception.type")).rpartition(".")[2]
        message = text(raised[-1].get("exception.message"))
        return Problem(kind or "Error", message, message)
    said = text(description)
    kind = text(attributes.get("error.type")).rpartition(".")[2]
    told = _literal(said)
    if "message" in told:  # a dictionary, as text
        return problem_in(told)
    head, colon, rest = said.partition(": ")
    if colon and len(head) <= 80 and head.isprintable() and not head.startswith(("{", "'")):
        return Problem(head, rest, _cause(_literal(rest), rest))
    if not said or said == kind:
        return Problem(kind or "Error")
    return Problem(kind or "Error", said, said)


def cancellation_of(attributes: Attributes, events: Iterable[Event]) -> Problem | None:
    """Return the cancellation of a span whose status does not tell it, or None."""
    told = text(attributes.get("strands.cancellation.type"))
    if any(event.name == "span.cancelled" for event in events):
        told = "CancelledError"
    return Problem(told) if told in CANCELLED else None


def problem_in(error: Mapping[str, object]) -> Problem:
    """Return an error that is told as ``{"message": …, "data": {"error": …}}``."""
    message, data = text(error.get("message")), error.get("data")
    told = text(str(data)) if data else ""
    return Problem(message or "Error", told, _cause(data, told))


def _cause(data: object, otherwise: str) -> str:
    return text(fields(data).get("error")) or otherwise


def _literal(words: str) -> dict[str, Any]:
    """Return a dictionary that was written as Python writes it."""
    if not words.startswith("{") or len(words) > _REPEATS:
        return {}
    try:
        return fields(literal_eval(words))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return {}
