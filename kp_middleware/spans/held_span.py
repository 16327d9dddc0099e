"""A span held until its run is over, the tree that it is in, and the steps that this becomes."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Final, NamedTuple

from kp_middleware.recording import (
    Message,
    Place,
    Recorder,
    RootSpan,
    SpanTree,
    ToolCall,
    Turn,
    bounded_name,
)
from kp_middleware.spans.dialects import CANCELLED, Kind, Reading, ToldError

ROOTS: Final = frozenset({"agent", "chain"})
_WORKS: Final = frozenset({"model", "tool", "retriever"})


class Scope(NamedTuple):
    """The instrumentation that tells spans.

    Attributes:
        switch: The setting by which it tells what was said.
        is_of_agents: Whether all its spans are those of agents, also where they do not say so.
        leaves_open: Whether it never ends the span of an agent whose model failed.
    """

    name: str
    framework: str = ""
    switch: str = ""
    is_of_agents: bool = False
    leaves_open: bool = False


@dataclass(slots=True, eq=False)
class HeldSpan:
    """A span, from its start until its run is over.

    Attributes:
        number: The position among all spans that began.
        started_s, ended_s: Epoch seconds; None if it has not ended.
        held_bytes: If it has no parent, the size of what is held of those inside it.
        read, told: Returns its reading, and that which it has returned.
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
    told: Reading = field(default_factory=lambda: Reading(None))

    @property
    def reading(self) -> Reading:
        """What it told, read once."""
        if self.read is not None:
            self.told, self.read = self.read(), None
        return self.told

    @property
    def named(self) -> str:
        """The name that it told, or its own."""
        return self.reading.name or self.name

    @property
    def tool_around(self) -> "HeldSpan | None":
        """The innermost tool around it."""
        return next((one for one in self.above() if one.kind == "tool"), None)

    def above(self) -> Iterator["HeldSpan"]:
        """Yield the spans around it, innermost first."""
        span = self.parent
        while span is not None:
            yield span
            span = span.parent

    def outermost(self) -> "HeldSpan":
        """Return the span around it that has no parent, or itself."""
        *_, top = (self, *self.above())
        return top

    def all(self) -> list["HeldSpan"]:
        """Return it and the spans inside it, in the order in which they began."""
        found = [self]
        for span in found:
            found.extend(span.inside.values())
        return sorted(found, key=lambda span: (span.started_s, span.number))

    def asks(self) -> str:
        """Return what its first model was asked."""
        return next(filter(None, (span.reading.asked for span in self.all())), "")


def roots_in(top: HeldSpan) -> Iterator[HeldSpan]:
    """Yield the roots of the runs in a tree: its outermost agents and chains, some of them split.

    A chain without a model and a tool in it is no run.
    """
    spans = [top]
    for span in spans:
        if span.kind is None and span.ended_s is None and span.scope.is_of_agents and span.inside:
            span.kind = "agent"  # it never told what it was
        if span.kind in ROOTS:
            if span.parent is not None:
                outermost = span.outermost()
                span.outer, span.place, span.parent = outermost.outer, outermost.place, None
            runs = _split(span)
            yield from (one for one in runs if one.kind == "agent" or _has_work(one))
        elif span.kind is None:
            spans += span.inside.values()


def _has_work(root: HeldSpan) -> bool:
    return any(span.kind in _WORKS for span in root.all())


def _split(root: HeldSpan) -> list[HeldSpan]:
    """Return the runs in a root that is only a bracket around several, as the SDK's trace is."""
    parts = [span for span in root.inside.values() if span.kind in ROOTS]
    if len(parts) < 2 or root.kind != "agent" or root.ended_s is None or root.reading.name:
        return [root]
    parts.sort(key=lambda span: span.number)
    asked = [part for part in parts if part.asks()]
    has_steps = any(span.kind in {"model", "tool"} for span in root.inside.values())
    if has_steps or len({part.asks() for part in asked}) < 2:
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


def left_by(span: HeldSpan) -> ToldError | None:
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
    if parent.ended_s is not None or (parent.name, parent.scope) != (name, scope):
        return False
    inside = [*parent.inside.values()]
    if not inside or any(span.ended_s is None for span in inside):
        return False
    last = max(inside, key=lambda span: span.ended_s or 0.0)
    return last.reading.problem is not None or at_s - (last.ended_s or 0.0) > grace_s


def replay(root: HeldSpan, recorder: Recorder) -> bool:
    """Record a run, unless its spans tell nothing that was said; return whether they do.

    The recorder is the run's own, or that of the run around it.
    """
    spans = _heard(root)
    works = any(span.kind in _WORKS for span in spans)
    if works and not any(_tells(span.reading) for span in spans):
        return False
    _Replay(root, spans, recorder).write()
    return True


def _tells(told: Reading) -> bool:
    turn = told.turn or Turn()
    said = (told.asked, told.task, told.given, turn.thoughts, *(call.args for call in turn.calls))
    return any(said) or (told.result is not None and told.result != "")


def _heard(root: HeldSpan) -> list[HeldSpan]:
    """Return the spans of a run; of those that two instrumentations tell, the root's own."""
    spans = root.all()
    if all(span.scope == root.scope for span in spans):
        return spans

    def place(span: HeldSpan) -> tuple[HeldSpan, Kind | None]:
        own = (one for one in span.above() if one.scope == root.scope)
        return next((one for one in own if one.kind in {"agent", "tool"}), root), span.kind

    heard = {place(span) for span in spans if span.scope == root.scope}
    for span in spans:
        if span.scope != root.scope and place(span) in heard:
            span.kind = None
    return spans


class _Nowhere:  # no run begins beside that which is replayed
    def start_recording(self, _: str, /) -> None: ...


class _Replay:
    def __init__(self, root: HeldSpan, spans: list[HeldSpan], recorder: Recorder) -> None:
        self._root, self._spans, self._recorder = root, spans, recorder
        self._agents = [one for one in spans if one.kind == "agent" and one.tool_around is None]
        self._has_tools = any(span.kind in {"tool", "retriever"} for span in spans)
        self._tree = SpanTree(_Nowhere())
        self._owned = root.outer is None
        self._owner = RootSpan(recorder, owned=self._owned)
        self._owner.place = root.place
        self._pending: defaultdict[HeldSpan | None, list[ToolCall]] = defaultdict(list)  # by tool
        self._numbers = count(1)  # of calls without an id
        self._has_objective = False
        self._last_text = ""
        self._last_result: object = None
        self._owes: set[str | None] = set()  # the calls of the last turn without a result
        self._is_answered = True
        self._can_tell = False
        self._next_tool_s = _next_tools_s(spans)

    def write(self) -> None:
        """Write the steps, and finish the run if it is our own."""
        recorder, root = self._recorder, self._root
        clock = recorder.clock
        if not self._owned:
            now = clock()
            recorder.clock = lambda: now  # the run around this one keeps its start
        top = self._tree.open(root.id, self._owner)
        try:
            recorder.at(root.started_s)
            told = root.reading
            is_asked = any(one.reading.asked for one in self._spans if one.kind == "model")
            if asked := told.task or ("" if is_asked else told.asked):
                self._owner.record_history((Message("user", asked),), top)
                self._has_objective = True
            opened = [span for span in self._spans if span is not root and self._write(span)]
            for span in reversed(opened):
                self._tree.finish(span.id)
            self._end()
        finally:
            if not self._owned:
                recorder.clock = clock
            elif not recorder.finished:  # by an error of ours: what was noted is kept
                self._owner.give_up()

    def _write(self, span: HeldSpan) -> bool:
        """Write the steps of a span, and return whether it stays open for those inside it."""
        if not self._counts(span):
            return False
        above = (one for one in span.above() if one.kind != "model" and self._counts(one))
        around = next(above, self._root)
        if span.kind == "model":
            self._write_model(span, around)
        elif span.kind == "agent":
            name = span.reading.name
            if not name and span not in self._agents:  # a nameless agent in a tool
                inside = (one.reading.name for one in span.all() if one.kind == "agent")
                name = next(filter(None, inside), span.name)
            self._tree.start(span.id, around.id, "agent", name, at_s=span.started_s)
        else:
            self._write_tool(span, around)
        return span.kind != "model"

    def _counts(self, span: HeldSpan) -> bool:
        """Return whether a span has a place in the tree: others are parts of what is around."""
        if span is self._root or span.kind == "agent":
            return True
        if span.kind == "retriever":
            return span.tool_around is None
        if span.kind not in {"model", "tool"}:
            return False
        above = next((one for one in span.above() if one.kind not in {None, "chain"}), None)
        if above is None or above.kind != span.kind:
            return True
        return span.kind == "tool" and above.named != span.named

    def _write_model(self, span: HeldSpan, around: HeldSpan) -> None:
        told = span.reading
        asked = "" if self._has_objective else told.asked
        messages = (Message("user", asked),) if asked and self._owned else ()
        self._has_objective = self._has_objective or bool(asked)
        live = self._tree.start(
            span.id, around.id, "model", told.name, messages=messages, at_s=span.started_s
        )
        if live is not None and live.place == self._root.place and not self._has_tools:
            self._write_results(told)
        turn = None if told.turn is None else self._with_ids(told.turn, span.tool_around)
        problem = None if told.problem is None else self._error(told.problem)
        # the model's span of ADK ends after the tools beside it
        tool_s = self._next_tool_s.get(span, span.ended_s)
        at_s = tool_s and span.ended_s and min(span.ended_s, tool_s)
        self._tree.finish(span.id, turn=turn, error=problem, at_s=at_s)

    def _write_results(self, told: Reading) -> None:
        """Note the results that a model was given, of tools that have no spans."""
        pending = self._pending[None]
        for result in told.results:
            found = next((call for call in pending if call.id == result.call_id), None)
            if found is not None:
                pending.remove(found)
                self._owes.discard(found.id)
                self._recorder.note(
                    "error_recovery" if result.failed else "observation",
                    tool=found.name,
                    output_summary=result.output,
                    place=self._root.place,
                    call_id=found.id,
                )

    def _with_ids(self, turn: Turn, tool: HeldSpan | None) -> Turn:
        """Return the turn with an id for each call, by which its tool finds it."""
        numbered = zip(turn.calls, self._numbers, strict=False)
        calls = [call if call.id else call._replace(id=f"call {at}") for call, at in numbered]
        self._pending[tool] += calls
        if tool is None and (turn.thoughts or turn.calls):
            self._can_tell = True
            self._owes = {call.id for call in calls}
            if turn.text:
                self._last_text, self._is_answered = turn.text, True
        return turn._replace(calls=tuple(calls))

    def _write_tool(self, span: HeldSpan, around: HeldSpan) -> None:
        told, tool = span.reading, span.tool_around
        call = self._announced(span, tool)
        name, call_id = (span.named, told.call_id) if call is None else (call.name, call.id)
        live = self._tree.start(
            span.id,
            around.id,
            "tool",
            name,
            input=told.given or {},
            call_id=call_id,
            at_s=span.started_s,
        )
        if live is None or span.ended_s is None:
            return
        self._recorder.at(span.ended_s)
        if told.problem is not None:
            live.end_with(self._error(told.problem))
        else:
            live.conversation.end(live.tool, live.call_id)
            result = "null" if told.result is None else told.result
            self._owner.record_result(result, live, failed=told.failed)
        live.answered = True
        if tool is None:
            if call is not None:
                self._owes.discard(call.id)
            self._is_answered = name == "final_answer" and told.problem is None
            if self._is_answered:
                self._last_result = told.result

    def _announced(self, span: HeldSpan, tool: HeldSpan | None) -> ToolCall | None:
        """Return the call that a tool answers: by its id, its arguments, or else its name."""
        told, pending = span.reading, self._pending[tool]
        named = [call for call in pending if call.name == span.named]
        same = [call for call in pending if told.call_id and call.id == told.call_id]
        alike = [call for call in named if call.args == told.given]
        found = next(iter(same or alike or named), None)
        if found is not None:
            pending.remove(found)
        return found

    def _error(self, problem: ToldError) -> BaseException:
        kind = bounded_name(problem.type) or "Error"
        return self._owner.error_named(kind, problem.message, cause=problem.cause or kind)

    def _end(self) -> None:
        root, recorder, told = self._root, self._recorder, self._root.reading
        ends = [span.ended_s for span in self._spans if span.ended_s is not None]
        at_s = root.ended_s or max(ends, default=root.started_s)
        if self._owned:
            named = (told.name, *(one.reading.name for one in self._agents), root.name)
            recorder.agent_name = bounded_name(next(filter(None, named), "")) or None
            if told.conversation:
                recorder.thread_id = bounded_name(told.conversation)
        if self._owned and (left := left_by(root)) is not None:
            recorder.at(at_s)
            recorder.finish(self._error(left), complete=False)
            return
        problems = (one.reading.problem for one in (root, *self._agents))
        problem = next(filter(None, problems), None)
        if problem is not None and problem.type not in CANCELLED:
            self._tree.finish(root.id, error=self._error(problem), at_s=at_s)
            return
        problems = (span.reading.problem for span in self._spans)
        why = next((one.type for one in problems if one and one.type in CANCELLED), None)
        if why is not None and self._owned:
            recorder.unfinished = why
        outputs = [one.reading.output for one in reversed(self._agents)]
        said = (told.answer, self._last_result, self._last_text, told.output, *outputs)
        complete = why is None and self._is_complete(told)
        output = next(filter(None, said), None)
        self._tree.finish(root.id, output, complete=complete, at_s=at_s)

    def _is_complete(self, told: Reading) -> bool:
        if any(span.ended_s is None for span in self._spans):
            return False
        if told.complete is not None:
            return told.complete
        if not self._can_tell:
            return not self._has_objective  # its model was asked, and has not said anything
        return not self._owes and self._is_answered


def _next_tools_s(spans: list[HeldSpan]) -> dict[HeldSpan, float]:
    """Return when the next tool beside each model began."""
    found: dict[HeldSpan, float] = {}
    beside: dict[HeldSpan | None, float] = {}
    for span in reversed(spans):
        if span.kind == "tool":
            beside[span.parent] = span.started_s
        elif span.kind == "model" and span.parent in beside:
            found[span] = beside[span.parent]
    return found
