"""How a graph that waits is told to go on: read from its input, a pure function."""

from collections.abc import Mapping
from typing import NamedTuple


class Resumption(NamedTuple):
    """What a graph that waits was told.

    Attributes:
        decision: What a person decided, or None where the graph was only told to go on.
        questions: Ids of the interrupts that are answered; none: of whatever was asked last.
    """

    decision: object | None = None
    questions: tuple[str, ...] = ()


def resumption_of(inputs: object, metadata: Mapping[str, object]) -> Resumption | None:
    """What the input tells a graph that waits, or None where it begins a run of its own.

    A graph goes on when it is given ``Command(resume=…)``, or nothing at all.
    """
    if inputs is None:  # with a checkpoint's id it goes back to that one, and makes a run of it
        goes_on = "thread_id" in metadata and "checkpoint_id" not in metadata
        return Resumption() if goes_on else None
    kinds = (kind.__name__ for kind in type(inputs).__mro__)
    if "Command" not in kinds:  # langgraph's, which may not be installed
        return None
    decision = getattr(inputs, "resume", None)
    if decision is None:
        return None
    if isinstance(decision, Mapping) and decision and all(map(_is_question, decision)):
        return Resumption(_alone(decision), tuple(decision))
    return Resumption(decision)


def _is_question(key: object) -> bool:
    """Whether this is how LangGraph names an interrupt: 32 hexadecimal digits."""
    return isinstance(key, str) and len(key) == 32 and not key.strip("0123456789abcdef")


def _alone(decisions: Mapping[str, object]) -> object:
    """Of one question the answer, without the id that nobody can read."""
    return next(iter(decisions.values())) if len(decisions) == 1 else dict(decisions)
