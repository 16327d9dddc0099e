"""The tree of live spans, which adapters of any framework feed."""

import threading
from collections.abc import Callable, Sequence, Set
from itertools import takewhile
from typing import Any, Final, Literal, Protocol, TypeAlias

from kp_middleware.confidence import Confidences
from kp_middleware.recording._context import current_place, current_recorder, shield
from kp_middleware.recording._conversation import Message, Turn
from kp_middleware.recording._extractors import Extractors
from kp_middleware.recording._recorder import Recorder
from kp_middleware.recording._spans import RootSpan, Span, SpanId

_REMEMBERED: Final = 4096  # spans at least: enough to recognize late reports

Kind: TypeAlias = Literal["agent", "model", "tool", "chain"]
"""The kind of a span; a ``chain`` is not a step."""


class Recording(Protocol):
    """The pipeline that takes the traces: a `KnowledgePulse`."""

    def start_recording(self, framework: str, /) -> Recorder | None:
        """Return a recorder for a run that begins now, or None if it is not recorded."""


class NullRecording:
    """A pipeline that records nothing."""

    def start_recording(self, framework: str, /) -> None: ...


def recordings(
    kp: Recording, *, domain: str | None, confidence: Confidences
) -> Callable[[str], Recorder | None]:
    """Return a function that starts a recorder for a framework, in a domain, with extractors."""
    extractors = Extractors(confidence)

    def begin(framework: str) -> Recorder | None:
        recorder = kp.start_recording(framework)
        if recorder is not None:
            recorder.domain, recorder.extractors = domain, extractors
        return recorder

    return begin


class SpanTree:
    """The live spans by id; call `start` and `finish` from any thread.

    Wrap the functions that a framework calls in `shield`. When a root ends, all its spans are
    removed, and those without an end are recorded as given up. When there are thousands of live
    roots, the oldest are given up.

    Args:
        kp: The pipeline that records the runs.
        framework: The framework's name, stored with each run.
        domain: The domain, which selects the weights of the score; None means the pipeline's.
        confidence: Extractors of the confidence from a run's result.

    >>> from tempfile import TemporaryDirectory
    >>> from kp_middleware import KnowledgePulse
    >>> from kp_middleware.recording import ToolCall, Turn
    >>> with TemporaryDirectory() as folder:
    ...     with KnowledgePulse(db=f"{folder}/kp.db", embedder=None) as kp:
    ...         spans = SpanTree(kp, "my_framework")
    ...         agent = spans.start("a", None, "agent", "cook", input="Boil an egg.", at_s=1.7e9)
    ...         model = spans.start("b", "a", "model", "gpt-5-mini", at_s=1.7e9 + 1)
    ...         call = ToolCall("boil", {"minutes": 6}, "call 1")
    ...         model = spans.finish("b", turn=Turn(text="First I boil it.", calls=(call,)))
    ...         tool = spans.start("c", "a", "tool", "boil", call_id="call 1", at_s=1.7e9 + 2)
    ...         tool = spans.finish("c", "It is done.", at_s=1.7e9 + 362)
    ...         agent = spans.finish("a", "Here is your egg.", at_s=1.7e9 + 363)
    ...         agent.root.recorder.log.count
    3
    """

    def __init__(
        self,
        kp: Recording,
        framework: str = "",
        *,
        domain: str | None = None,
        confidence: Confidences = None,
    ) -> None:
        self._framework = framework
        self._record = recordings(kp, domain=domain, confidence=confidence)
        self._lock = threading.RLock()  # reentrant: the garbage collector may close a stream here
        self._live_spans: dict[Any, Span] = {}  # by `SpanId`
        self.get = self._live_spans.get
        """Return the live span with this id, or None."""
        self._root_ids: dict[RootSpan, SpanId] = {}
        self._ended_ids = RecentIds()
        self._ignored_ids = RecentIds()
        self._trace_ids: dict[SpanId, str] = {}

    def start(
        self,
        span_id: SpanId,
        parent_id: SpanId | None,
        kind: Kind,
        name: str = "",
        *,
        input: object = None,
        messages: Sequence[Message] = (),
        call_id: str | None = None,
        at_s: float | None = None,
    ) -> Span | None:
        """Begin a span.

        An agent without a live parent begins a run, unless its code runs inside one, which it then
        joins, as any other span does. A model inside a model, or a tool inside the same tool, has
        no step.

        Args:
            span_id: The id of the span.
            parent_id: The id of the span around it, or None.
            kind: The kind of the span.
            name: The name of the agent, the model or the tool.
            input: The task of an agent, or the arguments of a tool.
            messages: The model's input, with the whole history: messages that no span reported
                become steps, and without a task the user's last ones are the objective.
            call_id: The id of a tool's call; a call in a model's turn is not recorded again.
            at_s: The start in seconds since the epoch, for a span of the past; None means now.

        Returns:
            The span, or None if it is not recorded. Set further details on its ``root.recorder``.
        """
        span = self.join(span_id, parent_id)
        if span is None and (span := self._start_root(span_id, parent_id, kind)) is None:
            return None
        root, parent = span.root, span.parent
        recorder = root.recorder
        if at_s is not None:
            recorder.at(at_s)
        if parent is not None:
            if parent.agent is not None:
                span.enter(parent.agent)
            if parent.emits_steps and parent.tool == (name if kind == "tool" else None):
                return span
        span.after = recorder.last_step
        if kind == "agent":
            self._begin_agent(span, name, input)
        elif kind == "model":
            span.begin_model(name)
            if messages:
                root.record_history(messages, span)
        elif kind == "tool":
            span.begin_tool(name, call_id, input)
        return span

    def finish(
        self,
        span_id: SpanId,
        output: object = None,
        *,
        turn: Turn | None = None,
        failed: bool = False,
        error: BaseException | None = None,
        complete: bool = True,
        at_s: float | None = None,
    ) -> Span | None:
        """End a span; with a root its run ends.

        Args:
            span_id: The id of the span.
            output: The result of a tool, or the answer of an agent; without one, it is the last
                answer of its model.
            turn: The turn of a model.
            failed: True if the result of a tool reports a failure.
            error: The error that ended it; `RootSpan.error_named` makes one from text. It is
                recorded once, also if it propagates. After a cancellation, the run is incomplete.
            complete: False if the run is incomplete for another reason.
            at_s: The end in seconds since the epoch, for a span of the past; None means now.

        Returns:
            The span, or None if it is not live.
        """
        span = self.get(span_id)
        if span is None:
            return None
        if at_s is not None:
            span.root.recorder.at(at_s)
        if self.end(span_id) is None or span.answered:
            return span
        root = span.root  # only now: another thread may have ended its root and moved it
        if turn is not None:
            root.end_turn(turn, span)
        if error is not None:
            if span.tool is not None and root.recorder.already_recorded(error):
                span.fail(error)  # the tool is an agent whose span is not its child
            else:
                span.end_with(error)
            return span
        if span.tool is not None:
            span.conversation.end(span.tool, span.call_id)
            root.record_result("None" if output is None else output, span, failed=failed)
        if span.is_root:
            root.record_late(ended_well=True)
        if span.ends_trace:
            root.succeed(output, complete=complete)
        return span

    def _start_root(self, span_id: SpanId, parent_id: SpanId | None, kind: Kind) -> Span | None:
        if not self.is_new(span_id, parent_id):
            return None
        outer = current_recorder()
        if outer is None and kind != "agent":
            return None
        recorder = outer or self._record(self._framework)
        if recorder is None:
            self.ignore(span_id)
            return None
        root = RootSpan(recorder, owned=outer is None)
        root.place = None if outer is None else current_place()
        return self.open(span_id, root)

    def _begin_agent(self, span: Span, name: str, task: object) -> None:
        root, recorder = span.root, span.root.recorder
        if span.is_root and root.owned and task is not None:
            recorder.set_objective(task)
        if span.enclosing_tool is not None or (root.agent_name and name != root.agent_name):
            span.enter(name or span.agent)
        elif name and root.agent_name is None:
            root.agent_name = name
            if root.owned:
                recorder.agent_name = name

    def abandon_in_child(self) -> None:
        """Discard all spans in a forked child, where a span inside one of them is a root."""
        self._lock = threading.RLock()
        self._ended_ids.update(self._live_spans)
        self._live_spans.clear()
        self._root_ids.clear()

    def __len__(self) -> int:
        return len(self._live_spans)

    def trace_id(self, span_id: SpanId) -> str | None:
        """Return the trace id of a live or ended root; None if it is too old or not a root."""
        return self._trace_ids.get(span_id)

    def join(self, span_id: SpanId, parent_id: SpanId | None) -> Span | None:
        """Begin a span inside a live one; return None without a live parent or if begun already."""
        with self._lock:
            parent = self.get(parent_id)
            if parent is None or span_id in self._live_spans:
                return None
            root, chat = parent.root, parent.conversation
            if parent.tool is not None and not root.one_conversation:
                if parent.inner is None:
                    parent.inner = root.new_conversation()
                    parent.inner.follows = chat.follows
                chat = parent.inner
            parent.paused_inside = False
            span = self._live_spans[span_id] = Span(root, chat, parent)
            root.span_ids.add(span_id)
            span.number = root.span_count = root.span_count + 1
            return span

    def is_new(self, span_id: SpanId, parent_id: SpanId | None) -> bool:
        """Return True if a span is neither live nor inside an ignored span."""
        with self._lock:
            if span_id in self._live_spans:
                return False
            if parent_id is None or parent_id not in self._ignored_ids:
                return True
        self.ignore(span_id)
        return False

    def is_over(self, span_id: SpanId | None) -> bool:
        """Return True if a recorded span has ended, or was live when the process forked."""
        return span_id is not None and span_id in self._ended_ids

    def open(self, span_id: SpanId, root: RootSpan) -> Span:
        """Begin a root; if there are too many, give up the oldest."""
        span = Span(root, root.new_conversation(), None)
        with self._lock:
            oldest = self._add_root(span_id, span)
        if oldest is not None:
            oldest.give_up()
        return span

    def end(self, span_id: SpanId, *, streamed: bool = False) -> Span | None:
        """End a span, and with a root the spans left in it; return None if it was not live.

        A ``streamed`` chain that is closed early ends before the models and tools inside it, which
        still report their output: its trace ends with the last of them.
        """
        with self._lock:
            span = self._live_spans.pop(span_id, None)
            if span is None:
                return None
            self._ended_ids.add(span_id)
            if len(self._ended_ids) > _REMEMBERED:
                self._ended_ids.trim()
            span.is_over = True
            root = span.root
            root.span_ids.discard(span_id)
            if span.parent is None:
                root.closed_early = streamed and self._awaits(root)
            elif not root.closed_early:
                return span
            if root.closed_early and self._awaits(root):
                return span
            span.ends_trace = root.owned
            del self._root_ids[root]
            is_outlived = root.span_ids and span.parent is None and not streamed
            abandoned = self._move(root) if is_outlived else None  # nearly never
            if root.span_ids:
                self._close(root)
        for oldest in abandoned or ():
            oldest.give_up()
        return span

    def ignore(self, span_id: SpanId) -> None:
        """Ignore a span and the spans inside it."""
        with self._lock:
            self._ignored_ids.add(span_id)
            self._ignored_ids.trim()

    def _awaits(self, root: RootSpan) -> bool:
        """Return True if a model, tool or retriever in it is live; a chain may never end."""
        return any(self._live_spans[key].emits_steps for key in root.span_ids)

    @shield
    def _move(self, over: RootSpan) -> list[RootSpan]:
        """Make each chain that outlives its root a root; return the roots beyond the limit."""
        abandoned: list[RootSpan | None] = []
        live = {span: key for key in over.span_ids if (span := self.get(key)) is not None}
        chains: dict[Span, dict[SpanId, Span]] = {}
        for span in sorted(live, key=lambda span: span.number):
            outermost = [span, *takewhile(live.__contains__, span.ancestors())][-1]
            if not outermost.emits_steps:  # a tool or a model may have been given up
                chains.setdefault(outermost, {})[live[span]] = span
        for outermost, inside in chains.items():
            root = over.successor and over.successor(over, outermost)
            if root is None:
                continue
            over.span_ids.difference_update(inside)
            enclosing_tool = outermost.enclosing_tool
            for span in inside.values():
                span.root = root
                if span.enclosing_tool == enclosing_tool:
                    span.enclosing_tool = span.agent = None
                span.enter(span.agent)
            outermost.parent, outermost.is_root = None, True
            root.span_ids = {key for key in inside if key in self._live_spans} - {live[outermost]}
            root.span_count = max(span.number for span in inside.values())
            abandoned.append(self._add_root(live[outermost], outermost))
        return [root for root in abandoned if root is not None]

    def _add_root(self, span_id: SpanId, span: Span) -> RootSpan | None:
        """Add a root; remove and return the oldest beyond the limit."""
        self._live_spans[span_id] = span
        self._root_ids[span.root] = span_id
        self._trace_ids[span_id] = span.root.recorder.trace_id
        if len(self._trace_ids) > _REMEMBERED:
            del self._trace_ids[next(iter(self._trace_ids))]
        if len(self._root_ids) <= 2048:
            return None
        oldest = next(iter(self._root_ids))
        oldest_id = self._root_ids.pop(oldest)
        self._live_spans.pop(oldest_id, None)
        self._ignored_ids.update((oldest_id, *oldest.span_ids))
        self._ignored_ids.trim()
        self._close(oldest)
        return oldest

    def _close(self, root: RootSpan) -> None:
        self._ended_ids.update(root.span_ids)
        self._ended_ids.trim()
        left = (self._live_spans.pop(key, None) for key in root.span_ids)
        root.unfinished_spans, root.span_ids = [span for span in left if span is not None], set()


class RecentIds(set[SpanId]):
    """The ids of the last few thousand spans."""

    _before: Set[SpanId] = frozenset()

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._before

    def trim(self) -> None:
        """Forget the oldest half beyond the limit."""
        if len(self) > _REMEMBERED:
            self._before = frozenset(iter(self))  # a copy would take twice the memory
            self.clear()
