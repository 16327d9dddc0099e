"""The reading of a span, whatever its dialect, and of the error that ended it."""

from ast import literal_eval
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.recording import Turn
from kp_middleware.spans._fields import fields, text
from kp_middleware.spans._said import Result

Kind: TypeAlias = Literal["agent", "model", "tool", "retriever", "chain"]
"""The kind of a span; a ``chain`` has no step of its own."""

Attributes: TypeAlias = Mapping[str, Any]

CANCELLED: Final = frozenset({"CancelledError", "GeneratorExit"})

_REPEATS: Final = 4096  # characters of a dictionary as text that are still worth parsing


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
        asked, results: The user's texts, and tools' results, since the last turn of a model.
        given: The arguments of a tool, or None if they are not told.
        failed: True if the result of a tool says that it failed.
        answer: The answer of an agent, or None.
        output: The raw output of an agent, used where no model said anything.
        task: The task of an agent, as its user gave it.
        conversation: The id of the conversation.
        complete: Whether an agent came to its result, or None if it does not tell.
    """

    kind: Kind | None
    name: str = ""
    turn: Turn | None = None
    asked: str = ""
    results: tuple[Result, ...] = ()
    call_id: str | None = None
    given: Mapping[str, object] | None = None
    result: object = None
    failed: bool = False
    answer: object = None
    output: object = None
    task: str = ""
    conversation: str | None = None
    problem: Problem | None = None
    complete: bool | None = None


def handoff_to(agent: str) -> Reading:
    """Return the reading of a handoff, which is a call of a tool."""
    tool = f"transfer_to_{agent.lower().replace(' ', '_')}"
    return Reading("tool", tool, given={}, result=f"to {agent}")


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
