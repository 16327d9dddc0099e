"""A span that is held until its run is over, and the tree that it is in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from kp_middleware.recording import Place, Recorder
from kp_middleware.spans._reading import Kind, Problem, Reading

ROOTS: Final = frozenset({"agent", "chain"})


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

    def end(
        self, kind: Kind | None, read: Callable[[], Reading], at_s: float, size_bytes: int
    ) -> None:
        """End it; what it told is read when it is needed."""
        self.ended_s, self.size_bytes, self.read = at_s, size_bytes, read
        self.kind = kind or self.kind

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


def agent_of(span: HeldSpan) -> HeldSpan | None:
    """Return the innermost span around a model that may be an agent's, for which it is asked."""
    return next((above for above in span.above() if above.kind in {None, "agent"}), span.parent)


def outermost_of(span: HeldSpan) -> HeldSpan:
    """Return the span around it that has no parent, or itself."""
    outermost = span
    for outermost in span.above():  # noqa: B007 - the last one
        pass
    return outermost


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
    asked = sorted((part for part in parts if _asked(part)), key=lambda span: span.number)
    if len(asked) < 2 or len({_asked(part) for part in asked}) < 2:
        return [root]
    if any(span.kind in {"model", "tool"} for span in root.inside.values()):
        return [root]
    if any(later.started_s < (one.ended_s or later.started_s) for one, later in pairwise(asked)):
        return [root]  # an agent that is the tool of another
    runs: list[HeldSpan] = []
    for part in sorted(parts, key=lambda span: span.number):
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
