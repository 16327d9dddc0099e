"""Buffered spans, the trees they form, and their replay as the steps of a run."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Final

from kp_middleware.recording import (
    Message,
    NullRecording,
    Place,
    Recorder,
    RootSpan,
    SpanTree,
    ToolCall,
    Turn,
    bounded_name,
)
from kp_middleware.spans.dialects import CANCELLED, Kind, Scope, SpanContent
from kp_middleware.spans.errors import SpanError
from kp_middleware.spans.messages import parse_json

ROOT_KINDS: Final = frozenset({"agent", "chain"})
_WORK_KINDS: Final = frozenset({"model", "tool", "retriever"})


@dataclass(slots=True, eq=False)
class BufferedSpan:
    """A span, from its start until the end of its run."""

    id: int | str
    parent: "BufferedSpan | None"
    number: int  # the position among all started spans
    scope: Scope
    name: str
    kind: Kind | None
    started_s: float
    ended_s: float | None = None  # None if it is still open
    size_bytes: int = 0
    buffered_bytes: int = 0  # of its subtree's content, if it has no parent
    read: Callable[[], SpanContent] | None = None  # returns the content
    children: "dict[int | str, BufferedSpan]" = field(default_factory=dict)
    outer_recorder: Recorder | None = None  # the captured run around a span without a parent
    place: Place | None = None  # in that run
    recorder: Recorder | None = None  # of a run that was looked up before its end
    input_count: int = 0  # for an agent, the number of its models whose input is buffered
    loaded: SpanContent = field(default_factory=lambda: SpanContent(None))

    @property
    def content(self) -> SpanContent:
        """The content, read on first use."""
        if self.read is not None:
            self.loaded, self.read = self.read(), None
        return self.loaded

    @property
    def label(self) -> str:
        """The name of its agent, model or tool, or else its own."""
        return self.content.name or self.name

    @property
    def enclosing_tool(self) -> "BufferedSpan | None":
        """The innermost tool or guardrail around it: its models do not speak for the agent."""
        return next((one for one in self.ancestors() if one.kind in {"tool", "guardrail"}), None)

    @property
    def is_internal(self) -> bool:
        """True inside a guardrail."""
        return any(outer.kind == "guardrail" for outer in self.ancestors())

    @property
    def error(self) -> SpanError | None:
        """Its error, or that of its last turn, if its scope reports some there."""
        turns = reversed(self.children.values()) if self.scope.turns_fail else ()
        last = next((turn.content.error for turn in turns if turn.kind == "chain"), None)
        return self.content.error or last

    def ancestors(self) -> Iterator["BufferedSpan"]:
        """Yield the spans around it, innermost first."""
        span = self.parent
        while span is not None:
            yield span
            span = span.parent

    def outermost(self) -> "BufferedSpan":
        """Return the last of its ancestors, or the span itself without any."""
        *_, outermost = (self, *self.ancestors())
        return outermost

    def subtree(self) -> list["BufferedSpan"]:
        """Return the span and its descendants in the order of their starts."""
        spans = [self]
        for span in spans:
            spans.extend(span.children.values())
        return sorted(spans, key=lambda span: (span.started_s, span.number))

    def first_request(self) -> str:
        """Return the user's request to its first model."""
        return next(filter(None, (span.content.request for span in self.subtree())), "")


def find_roots(top: BufferedSpan) -> Iterator[BufferedSpan]:
    """Yield the roots of the runs in a tree: its outermost agents and chains.

    Splits a root that only groups several runs, and skips chains without a model or a tool.
    """
    spans = [top]
    for span in spans:
        if span.kind is None and span.ended_s is None and span.scope.is_of_agents and span.children:
            span.kind = "agent"  # its kind is known at its end
        if span.kind in ROOT_KINDS:
            if span.parent is not None:
                outer = span.outermost()
                span.outer_recorder, span.place = outer.outer_recorder, outer.place
                span.parent = None
            yield from (root for root in _split(span) if root.kind == "agent" or has_work(root))
        elif span.kind is None:
            spans += span.children.values()


def has_work(root: BufferedSpan) -> bool:
    """Return whether a model or a tool ran inside."""
    return any(span.kind in _WORK_KINDS for span in root.subtree())


def _split(root: BufferedSpan) -> list[BufferedSpan]:
    """Return the roots of several runs that a root only groups, as the SDK's trace does."""
    parts = [span for span in root.children.values() if span.kind in ROOT_KINDS]
    is_asked = root.content.name or root.content.request
    if len(parts) < 2 or root.kind != "agent" or root.ended_s is None or is_asked:
        return [root]
    parts.sort(key=lambda span: span.number)
    requested = [part for part in parts if part.first_request()]
    has_steps = any(span.kind in {"model", "tool"} for span in root.children.values())
    if has_steps or len({part.first_request() for part in requested}) < 2:
        return [root]
    if any(b.started_s < (a.ended_s or b.started_s) for a, b in pairwise(requested)):
        return [root]  # an agent used as a tool of another
    runs: list[BufferedSpan] = []
    for part in parts:
        if runs and part not in requested:  # a handoff
            runs[-1].children[part.id], part.parent = part, runs[-1]
            continue
        part.parent, part.outer_recorder, part.place = None, root.outer_recorder, root.place
        runs.append(part)
    return runs


def abandoning_error(span: BufferedSpan) -> SpanError | None:
    """Return the model's error that ended an agent whose span its scope leaves open, or None."""
    last = next(reversed(span.children.values()), None)
    if not span.scope.leaves_open or span.ended_s is not None or last is None:
        return None
    models = (step for step in (last, *last.children.values()) if step.kind == "model")
    return last.content.error if any(model.content.error for model in models) else None


def replay(root: BufferedSpan, recorder: Recorder) -> bool:
    """Record a run; return False without recording it if its spans have no content.

    The recorder is the run's own, or that of the run around it.
    """
    spans = _without_duplicates(root)
    for span in spans:
        if span.kind == "chain" and _is_of_another_agent(span):
            span.kind = "agent"
    if not any(_has_content(span.content) for span in spans):
        return not has_work(root)
    _StepWriter(root, spans, recorder).write()
    return True


def _is_of_another_agent(span: BufferedSpan) -> bool:
    """Return whether a chain names another agent than the spans around it, as LangChain's do."""
    outer = (one.content.name for one in span.ancestors() if one.kind in ROOT_KINDS)
    return span.content.name not in {"", next(filter(None, outer), "")}


def _has_content(content: SpanContent) -> bool:
    turn = content.turn or Turn()
    arguments = (content.arguments, *(call.args for call in turn.calls))
    texts = any((content.request, content.task, content.answer, turn.thoughts, *arguments))
    return texts or (content.result is not None and content.result != "")


def _without_duplicates(root: BufferedSpan) -> list[BufferedSpan]:
    """Return the spans of a run; ignore copies by a second instrumentation than the root's."""
    spans = root.subtree()

    def position(span: BufferedSpan) -> tuple[BufferedSpan, Kind | None]:
        own = (outer for outer in span.ancestors() if outer.scope == root.scope)
        return next((outer for outer in own if outer.kind in {"agent", "tool"}), root), span.kind

    for span in spans:  # LlamaIndex wraps a model in one without messages
        turn, inside = span.content.turn, (one.kind for one in span.children.values())
        if turn is not None and not (turn.thoughts or turn.calls) and "model" in inside:
            span.kind = None
    seen = {position(span) for span in spans if span.scope == root.scope}
    for span in spans:
        if span.scope != root.scope and position(span) in seen:
            if span.kind == "tool":
                _complete_copy(span)
            span.kind = None
    return spans


def _complete_copy(tool: BufferedSpan) -> None:
    """Give the copy of a tool inside it the content that it lacks, as AutoGen's own spans do."""
    for copy in tool.children.values():
        own = copy.content
        if copy.label == tool.label and own.arguments is own.result is None:
            copy.loaded = tool.content._replace(call_id=own.call_id, error=own.error)


class _StepWriter:
    def __init__(self, root: BufferedSpan, spans: list[BufferedSpan], recorder: Recorder) -> None:
        self._root, self._spans, self._recorder = root, spans, recorder
        agents = (span for span in spans if span.kind == "agent")
        self._agents = [agent for agent in agents if agent.enclosing_tool is None]
        self._has_tools = any(span.kind in {"tool", "retriever"} for span in spans)
        self._tree = SpanTree(NullRecording())  # a replay starts no other run
        self._owns_run = root.outer_recorder is None
        self._owner = RootSpan(recorder, owned=self._owns_run)
        self._owner.place = root.place
        # by the tool around a model, its calls without a result
        self._pending: defaultdict[BufferedSpan | None, list[ToolCall]] = defaultdict(list)
        self._numbers = count(1)  # of calls without an id
        self._has_objective = False
        self._last_text = ""
        self._last_result: object = None
        self._unanswered: set[str | None] = set()  # calls of the last turn
        self._last_arguments: list[object] = []  # of these calls
        self._is_answered = True
        self._has_turns = False
        self._next_tool_s = _next_tool_starts_s(spans)

    def write(self) -> None:
        """Write the steps; finish the run unless it is part of another."""
        recorder, root = self._recorder, self._root
        clock = recorder.clock
        if not self._owns_run:
            now = clock()
            recorder.clock = lambda: now  # keep the start of the outer run
        self._top = self._tree.open(root.id, self._owner)
        try:
            recorder.at(root.started_s)
            content = root.content
            self._owner.agent_name = bounded_name(content.name) or None
            models = (one for one in self._spans if one.kind == "model" and not one.is_internal)
            in_models = any(model.content.request for model in models)
            if request := content.task or ("" if in_models else root.first_request()):
                self._owner.record_history((Message("user", request),), self._top)
                self._has_objective = True
            opened = [span for span in self._spans if span is not root and self._write(span)]
            for span in reversed(opened):
                self._tree.end(span.id)
            self._end()
        finally:
            if not self._owns_run:
                recorder.clock = clock
            elif not recorder.finished:  # after an internal error, record the steps so far
                self._owner.give_up()

    def _write(self, span: BufferedSpan) -> bool:
        """Write the steps of a span; return whether it stays open for its children."""
        if not self._is_step(span):
            return False
        outer = (one for one in span.ancestors() if one.kind != "model" and self._is_step(one))
        parent = next(outer, self._root)
        if span.kind == "model":
            self._write_model(span, parent)
        elif span.kind == "agent":
            name = span.content.name
            if not name and span not in self._agents:  # a nameless agent in a tool
                inner = (one.content.name for one in span.subtree() if one.kind == "agent")
                name = next(filter(None, inner), span.name)
            self._tree.start(span.id, parent.id, "agent", name, at_s=span.started_s)
        else:
            self._write_tool(span, parent)
        return span.kind != "model"

    def _is_step(self, span: BufferedSpan) -> bool:
        """Return whether a span is a step, and not a detail of another."""
        if span is self._root or span.kind == "agent":
            return True
        if span.kind == "retriever":
            return all(one.kind not in {"tool", "retriever"} for one in span.ancestors())
        if span.kind not in {"model", "tool"}:
            return False
        outer = next((one for one in span.ancestors() if one.kind not in {None, "chain"}), None)
        if outer is None or outer.kind != span.kind:
            return True
        return span.kind == "tool" and outer.label != span.label

    def _write_model(self, span: BufferedSpan, parent: BufferedSpan) -> None:
        content, is_internal = span.content, span.is_internal
        request = "" if self._has_objective or is_internal else content.request
        messages = (Message("user", request),) if request and self._owns_run else ()
        self._has_objective = self._has_objective or bool(request)
        self._recorder.at(span.started_s)
        self._owner.record_history(messages, self._top)
        if content.task and not (self._recorder.objective or is_internal):
            self._recorder.set_objective(content.task)  # of a run that was resumed
        live = self._tree.start(span.id, parent.id, "model", content.name, at_s=span.started_s)
        if live is not None:
            live.internal = is_internal
            if live.place == self._root.place and not self._has_tools:
                self._write_results(content)
        turn = None if content.turn is None else self._assign_ids(content.turn, span.enclosing_tool)
        error = None if content.error is None else self._error(content.error)
        # ADK ends a model's span after its sibling tools
        tool_s = self._next_tool_s.get(span, span.ended_s)
        at_s = tool_s and span.ended_s and min(span.ended_s, tool_s)
        self._tree.finish(span.id, turn=turn, error=error, at_s=at_s)

    def _write_results(self, content: SpanContent) -> None:
        """Record the results in a model's input of tools that have no spans."""
        pending = self._pending[None]
        for result in content.results:
            call = next((call for call in pending if call.id == result.call_id), None)
            if call is not None:
                pending.remove(call)
                self._unanswered.discard(call.id)
                self._recorder.note(
                    "error_recovery" if result.failed else "observation",
                    tool=call.name,
                    output_summary=result.output,
                    place=self._root.place,
                    call_id=call.id,
                )

    def _assign_ids(self, turn: Turn, tool: BufferedSpan | None) -> Turn:
        """Return the turn with an id for each call, to match tools with calls."""
        numbered = zip(turn.calls, self._numbers, strict=False)
        calls = [call if call.id else call._replace(id=f"call {at}") for call, at in numbered]
        self._pending[tool] += calls
        if tool is None and (turn.thoughts or turn.calls):
            self._has_turns = True
            self._unanswered = {call.id for call in calls}
            self._last_arguments = [call.args for call in calls]
            if turn.text:
                self._last_text, self._is_answered = turn.text, True
        return turn._replace(calls=tuple(calls))

    def _write_tool(self, span: BufferedSpan, parent: BufferedSpan) -> None:
        content, tool = span.content, span.enclosing_tool
        call = self._match_call(span, tool)
        name, call_id = (span.label, content.call_id) if call is None else (call.name, call.id)
        live = self._tree.start(
            span.id,
            parent.id,
            "tool",
            name,
            input=content.arguments or {},
            call_id=call_id,
            at_s=span.started_s,
        )
        if live is None or span.ended_s is None:
            return
        self._recorder.at(span.ended_s)
        if content.error is not None:
            live.end_with(self._error(content.error))
        else:
            live.conversation.end(live.tool, live.call_id)
            result = "null" if content.result is None else content.result
            self._owner.record_result(result, live, failed=content.failed)
        live.answered = True
        if tool is None:
            if call is not None:
                self._unanswered.discard(call.id)
            self._is_answered = name == "final_answer" and content.error is None
            if self._is_answered:
                self._last_result = content.result

    def _match_call(self, span: BufferedSpan, tool: BufferedSpan | None) -> ToolCall | None:
        """Take the pending call that a tool answers: by its id, its arguments, or its name."""
        content, pending = span.content, self._pending[tool]
        by_id = [call for call in pending if content.call_id and call.id == content.call_id]
        by_name = [call for call in pending if call.name == span.label]
        by_arguments = [call for call in by_name if call.args == content.arguments]
        call = next(iter(by_id or by_arguments or by_name), None)
        if call is not None:
            pending.remove(call)
        return call

    def _error(self, error: SpanError) -> BaseException:
        kind = bounded_name(error.type) or "Error"
        return self._owner.error_named(kind, error.message, cause=error.cause or kind)

    def _end(self) -> None:
        root, recorder, content = self._root, self._recorder, self._root.content
        ends = [span.ended_s for span in self._spans if span.ended_s is not None]
        at_s = root.ended_s or max(ends, default=root.started_s)
        if self._owns_run:
            names = (content.name, *(agent.content.name for agent in self._agents), root.name)
            recorder.agent_name = bounded_name(next(filter(None, names), "")) or None
            if content.conversation:
                recorder.thread_id = bounded_name(content.conversation)
        if self._owns_run and (error := abandoning_error(root)) is not None:
            recorder.at(at_s)
            recorder.finish(self._error(error), complete=False)
            return
        errors = (span.error for span in (root, *self._agents))
        error = next(filter(None, errors), None)
        if error is not None and error.type not in CANCELLED:
            self._tree.finish(root.id, error=self._error(error), at_s=at_s)
            return
        types = {span.content.error.type for span in self._spans if span.content.error is not None}
        cancelled = min(types & CANCELLED, default=None)
        if cancelled is not None and self._owns_run:
            recorder.unfinished = cancelled
        if content.answer and not self._has_turns:
            self._write_answer(content.turn, str(content.answer), at_s)
        outputs = [agent.content.output for agent in reversed(self._agents)]
        outputs = [content.answer, self._last_result, self._last_text, content.output, *outputs]
        complete = cancelled is None and self._is_complete(content)
        output = next(filter(None, outputs), None)
        self._tree.finish(root.id, output, complete=complete, at_s=at_s)

    def _write_answer(self, turn: Turn | None, answer: str, at_s: float) -> None:
        """Record the answer of an agent whose models report no texts, or have no spans."""
        if turn is not None or any(span.kind == "model" for span in self._spans):
            turn = (turn or Turn())._replace(text=answer, thoughts=(answer,))
            live = self._tree.start("answer", self._root.id, "model", turn.model or "", at_s=at_s)
            if live is not None:
                live.started_s = 0.0  # its latency is unknown
            self._tree.finish("answer", turn=turn)

    def _is_complete(self, content: SpanContent) -> bool:
        if any(span.ended_s is None for span in self._spans):
            return False
        if content.complete is not None:
            return content.complete
        if not self._has_turns:  # a request without an answer is incomplete
            return bool(content.answer) or not self._has_objective
        is_argument = parse_json(content.answer) in self._last_arguments  # a structured answer
        return is_argument or (not self._unanswered and self._is_answered)


def _next_tool_starts_s(spans: list[BufferedSpan]) -> dict[BufferedSpan, float]:
    """Return the start of the next sibling tool of each model."""
    starts_s: dict[BufferedSpan, float] = {}
    next_by_parent: dict[BufferedSpan | None, float] = {}
    for span in reversed(spans):
        if span.kind == "tool":
            next_by_parent[span.parent] = span.started_s
        elif span.kind == "model" and span.parent in next_by_parent:
            starts_s[span] = next_by_parent[span.parent]
    return starts_s
