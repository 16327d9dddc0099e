"""A span that is held until its run is over: what it told, and the tree that it is in."""

from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.recording import Place, Recorder, Turn
from kp_middleware.spans.messages import Result, Said, asked_in, fields, results_in, text, turn_of

Kind: TypeAlias = Literal["agent", "model", "tool", "retriever", "chain"]
"""The kind of a span; a ``chain`` has no step of its own."""

Attributes: TypeAlias = Mapping[str, Any]

ROOTS: Final = frozenset({"agent", "chain"})
CANCELLED: Final = frozenset({"CancelledError", "GeneratorExit"})

_MOST_PARSED: Final = 4096  # characters


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


def model_reading(
    given: list[Said], said: list[Said], model: str | None, read: object, written: object
) -> Reading:
    """Return the reading of a model that was given messages, and said others."""
    turn = turn_of(said, model, read, written)
    return Reading("model", turn.model or "", turn, asked_in(given), results_in(given))


def handoff_to(agent: str) -> Reading:
    """Return the reading of a handoff, which is a tool call."""
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
    if "message" in told:
        return problem_in(told)
    head, colon, rest = said.partition(": ")
    if colon and len(head) <= 80 and head.isprintable() and not head.startswith(("{", "'")):
        return Problem(head, rest, text(_literal(rest).get("error")) or rest)
    return Problem(kind or "Error") if said == kind else Problem(kind or "Error", said, said)


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
    return Problem(message or "Error", told, text(fields(data).get("error")) or told)


def _literal(words: str) -> dict[str, Any]:
    """Return a dictionary that was written as Python writes it."""
    if not words.startswith("{") or len(words) > _MOST_PARSED:
        return {}
    try:
        return fields(literal_eval(words))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return {}


class Scope(NamedTuple):
    """The instrumentation that tells spans.

    Attributes:
        switch: The setting by which it tells what was said.
        is_of_agents: Whether all its spans are those of agents, also where they do not say so.
        leaves_open: Whether it never ends the span of an agent whose model failed.
    """

    name: str
    framework: str = ""
    switch: str = "the setting of your instrumentation that captures messages"
    is_of_agents: bool = False
    leaves_open: bool = False


@dataclass(slots=True, eq=False)
class HeldSpan:
    """A span, from its start until its run is over.

    Attributes:
        number: The position among all spans that began.
        kind: The kind as far as it is known.
        started_s, ended_s: Epoch seconds; None if it has not ended.
        size_bytes: The size of what it told.
        held_bytes: If it has no parent, the size of what is held of those inside it.
        read: Returns its reading, until that is read.
        outer, place: For a span without a parent, the captured run that it began in.
        recorder: The recorder of a run that was asked for before its end.
        asked: If it is an agent, the number of models in it whose input was kept.
    """

    id: int | str
    parent: "HeldSpan | None"
    number: int
    scope: Scope
    name: str
    kind: Kind | None
    started_s: float
    ended_s: float | None = None
    size_bytes: int = 0
    held_bytes: int = 0
    read: Callable[[], Reading] | None = None
    inside: "dict[int | str, HeldSpan]" = field(default_factory=dict)
    outer: Recorder | None = None
    place: Place | None = None
    recorder: Recorder | None = None
    asked: int = 0
    _reading: Reading = field(default_factory=lambda: Reading(None))

    @property
    def reading(self) -> Reading:
        """The span as it was read at its end."""
        if self.read is not None:
            self._reading, self.read = self.read(), None
        return self._reading

    def is_bracket(self) -> bool:
        """Return whether it is a chain without a model and a tool in it, and so is no run."""
        return self.kind == "chain" and all(one.kind in {None, *ROOTS} for one in self.all())

    def above(self) -> Iterator["HeldSpan"]:
        """Yield the spans around it, innermost first."""
        span = self.parent
        while span is not None:
            yield span
            span = span.parent

    def all(self) -> list["HeldSpan"]:
        """Return it and the spans inside it, in the order in which they began."""
        found, position = [self], 0
        while position < len(found):
            found.extend(found[position].inside.values())
            position += 1
        return sorted(found, key=lambda span: (span.started_s, span.number))


def outermost_of(span: HeldSpan) -> HeldSpan:
    """Return the span around it that has no parent, or itself."""
    while span.parent is not None:
        span = span.parent
    return span


def roots_in(top: HeldSpan) -> Iterator[HeldSpan]:
    """Yield the outermost spans of agents and chains in a tree."""
    spans = [top]
    while spans:
        span = spans.pop(0)
        if span.kind is None and span.ended_s is None and span.scope.is_of_agents and span.inside:
            span.kind = "agent"  # it never told what it was
        if span.kind in ROOTS:
            if span.parent is not None:
                outermost = outermost_of(span)
                span.outer, span.place = outermost.outer, outermost.place
                span.parent = None
            yield span
        elif span.kind is None:
            spans += span.inside.values()


def split(root: HeldSpan) -> list[HeldSpan]:
    """Return the runs in a root that is only a bracket around several, as the SDK's trace is."""
    parts = [span for span in root.inside.values() if span.kind in ROOTS]
    if len(parts) < 2 or root.kind != "agent" or root.ended_s is None or root.reading.name:
        return [root]
    parts.sort(key=lambda span: span.number)
    asked = [part for part in parts if _asked(part)]
    has_steps = any(span.kind in {"model", "tool"} for span in root.inside.values())
    if has_steps or len({_asked(part) for part in asked}) < 2:
        return [root]
    if any(later.started_s < (one.ended_s or later.started_s) for one, later in pairwise(asked)):
        return [root]  # an agent that is the tool of another
    runs: list[HeldSpan] = []
    for part in parts:
        if runs and part not in asked:  # a handoff
            runs[-1].inside[part.id], part.parent = part, runs[-1]
            continue
        part.parent, part.outer, part.place = None, root.outer, root.place
        runs.append(part)
    return runs


def _asked(part: HeldSpan) -> str:
    return next((span.reading.asked for span in part.all() if span.reading.asked), "")


def left_by(span: HeldSpan) -> Problem | None:
    """Return the error of an agent's last step if that ended it, and its scope leaves it open."""
    last = next(reversed(span.inside.values()), None)
    if not span.scope.leaves_open or span.ended_s is not None or last is None:
        return None
    models = (one for one in (last, *last.inside.values()) if one.kind == "model")
    return last.reading.problem if any(one.reading.problem for one in models) else None


def is_left_over(parent: HeldSpan, scope: Scope, name: str, at_s: float, grace_s: float) -> bool:
    """Return whether a parent that never ended is still current by mistake, for a new run.

    smolagents leaves its root so when a model fails: all later runs would be inside it.
    """
    if left_by(parent) is not None:
        return True
    if parent.ended_s is not None or parent.name != name or parent.scope != scope:
        return False
    inside = [*parent.inside.values()]
    if not inside or any(span.ended_s is None for span in inside):
        return False
    last = max(inside, key=lambda span: span.ended_s or 0.0)
    return last.reading.problem is not None or at_s - (last.ended_s or 0.0) > grace_s
