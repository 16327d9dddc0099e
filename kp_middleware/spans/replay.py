"""The steps of a run that is over, from its spans in the order of their starts."""

from collections import defaultdict
from collections.abc import Iterable

from kp_middleware.recording import (
    Message,
    Recorder,
    RootSpan,
    SpanTree,
    ToolCall,
    Turn,
    bounded_name,
)
from kp_middleware.spans.held_span import CANCELLED, HeldSpan, Problem, Reading, left_by
from kp_middleware.spans.messages import Result


def replay(root: HeldSpan, recorder: Recorder) -> bool:
    """Record a run, unless its spans tell nothing that was said; return whether they do.

    The recorder is the run's own, or that of the run around it.
    """
    spans = _heard(root)
    works = any(span.kind in {"model", "tool", "retriever"} for span in spans)
    if works and not any(_tells(span) for span in spans):
        return False
    _Replay(root, spans, recorder).write()
    return True


def _tells(span: HeldSpan) -> bool:
    told, turn = span.reading, span.reading.turn
    return bool(
        told.asked
        or told.task
        or (turn is not None and (turn.thoughts or any(call.args for call in turn.calls)))
        or told.given
        or (told.result is not None and told.result != "")
    )


def _heard(root: HeldSpan) -> list[HeldSpan]:
    """Return the spans of a run; of those that two instrumentations tell, the root's own."""
    spans = root.all()
    if all(span.scope == root.scope for span in spans):
        return spans
    own = {(_of_scope(span, root), span.kind) for span in spans if span.scope == root.scope}
    for span in spans:
        if span.scope != root.scope and (_of_scope(span, root), span.kind) in own:
            span.kind = None
    return spans


def _of_scope(span: HeldSpan, root: HeldSpan) -> int:
    """Return the innermost agent or tool of the root's instrumentation around a span."""
    return next(
        (
            above.number
            for above in span.above()
            if above.scope == root.scope and above.kind in {"agent", "tool"}
        ),
        root.number,
    )


class _Nowhere:
    def start_recording(self, _: str, /) -> None:
        """Record no run beside that which is replayed."""


class _Replay:
    def __init__(self, root: HeldSpan, spans: list[HeldSpan], recorder: Recorder) -> None:
        self._root, self._spans, self._recorder = root, spans, recorder
        self._agents = [one for one in spans if one.kind == "agent" and _tool_around(one) is None]
        self._has_tools = any(span.kind in {"tool", "retriever"} for span in spans)
        self._tree = SpanTree(_Nowhere())
        self._owned = root.outer is None
        self._owner = RootSpan(recorder, owned=self._owned)
        self._owner.place = root.place
        self._pending: defaultdict[int, list[ToolCall]] = defaultdict(list)  # by the tool around
        self._calls = 0
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
            return False
        if span.kind == "agent":
            name = span.reading.name
            if not name and span not in self._agents:  # a nameless agent in a tool
                inside = (one.reading.name for one in span.all() if one.kind == "agent")
                name = next(filter(None, inside), span.name)
            self._tree.start(span.id, around.id, "agent", name, at_s=span.started_s)
        else:
            self._write_tool(span, around)
        return True

    def _counts(self, span: HeldSpan) -> bool:
        """Return whether a span has a place in the tree: others are parts of what is around."""
        if span is self._root or span.kind == "agent":
            return True
        if span.kind == "retriever":
            return _tool_around(span) is None
        if span.kind not in {"model", "tool"}:
            return False
        above = next((one for one in span.above() if one.kind not in {None, "chain"}), None)
        if above is None or above.kind != span.kind:
            return True
        return span.kind == "tool" and _name(above) != _name(span)

    def _write_model(self, span: HeldSpan, around: HeldSpan) -> None:
        told = span.reading
        asked = "" if self._has_objective else told.asked
        messages = (Message("user", asked),) if asked and self._owned else ()
        self._has_objective = self._has_objective or bool(asked)
        live = self._tree.start(
            span.id, around.id, "model", told.name, messages=messages, at_s=span.started_s
        )
        if live is not None and live.place == self._root.place and not self._has_tools:
            self._write_results(told.results)
        turn = None if told.turn is None else self._with_ids(told.turn, span)
        problem = None if told.problem is None else self._error(told.problem)
        # the model's span of ADK ends after the tools beside it
        tool_s = self._next_tool_s.get(span.number, span.ended_s)
        at_s = tool_s and span.ended_s and min(span.ended_s, tool_s)
        self._tree.finish(span.id, turn=turn, error=problem, at_s=at_s)

    def _write_results(self, results: Iterable[Result]) -> None:
        """Note the results that a model was given, of tools that have no spans."""
        pending = self._pending[0]
        for result in results:
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

    def _with_ids(self, turn: Turn, span: HeldSpan) -> Turn:
        """Return the turn with an id for each call, by which its tool finds it."""
        calls = []
        for call in turn.calls:
            self._calls += 1
            calls.append(call if call.id else call._replace(id=f"call {self._calls}"))
        tool = _tool_around(span)
        self._pending[tool.number if tool else 0] += calls
        if tool is None and (turn.thoughts or turn.calls):
            self._can_tell = True
            self._owes = {call.id for call in calls}
            if turn.text:
                self._last_text, self._is_answered = turn.text, True
        return turn._replace(calls=tuple(calls))

    def _announced(self, span: HeldSpan, tool: HeldSpan | None) -> ToolCall | None:
        """Return the call that a tool answers: by its id, its arguments, or else its name."""
        told, pending = span.reading, self._pending[tool.number if tool else 0]
        named = [call for call in pending if call.name == _name(span)]
        same = [call for call in pending if told.call_id and call.id == told.call_id]
        alike = [call for call in named if call.args == told.given]
        found = next(iter(same or alike or named), None)
        if found is not None:
            pending.remove(found)
        return found

    def _write_tool(self, span: HeldSpan, around: HeldSpan) -> None:
        told, tool = span.reading, _tool_around(span)
        call = self._announced(span, tool)
        name, call_id = (_name(span), told.call_id) if call is None else (call.name, call.id)
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

    def _error(self, problem: Problem) -> BaseException:
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
        left = left_by(root)
        if left is not None and self._owned:
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


def _next_tools_s(spans: list[HeldSpan]) -> dict[int, float]:
    """Return when the next tool beside each model began, by the number of the model."""
    found: dict[int, float] = {}
    beside: dict[HeldSpan | None, float] = {}
    for span in reversed(spans):
        if span.kind == "tool":
            beside[span.parent] = span.started_s
        elif span.kind == "model" and span.parent in beside:
            found[span.number] = beside[span.parent]
    return found


def _name(span: HeldSpan) -> str:
    return span.reading.name or span.name


def _tool_around(span: HeldSpan) -> HeldSpan | None:
    return next((one for one in span.above() if one.kind == "tool"), None)
