"""Spans of a run: agents, models, tools, and chains around them."""

from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from kp_middleware.recording._context import Place
from kp_middleware.recording._conversation import Conversation
from kp_middleware.recording._limits import bounded_name, causes

_MAX_ERRORS: Final = 20
_MAX_PARTS: Final = 20_000

SpanId: TypeAlias = int | str
"""An id of a span, unique in its process."""


class Failure(Enum):
    """The reason why a span ended without a result."""

    ERROR = auto()
    """An error."""
    GIVEN_UP = auto()
    """A cancellation, a timeout, or a stream closed by its consumer."""
    PAUSED = auto()
    """An interrupt for a human, or a drained graph: the run may resume later."""
    HANDED_OVER = auto()
    """A handoff to a parent graph."""
    REFUSED = auto()
    """An answer of a person that the graph rejected: it waits for another."""


class Span:
    """A span: a chain, a model call, a tool call or a retriever.

    Attributes:
        tool, call_id: The name of a tool and the id of its call; None for other spans.
        around, within: The innermost tool around the span and the id of its call, or None.
        step_call_id: The id of a tool's call, made if it has none; None for other spans.
        started_s: The start of a tool or a model, by the recorder's clock.
        agent: The inner agent that the span runs in; None means the root's own agent.
        tells: True for a model, a tool or a retriever, whose end is noted.
        number: The position among the spans that began in the root.
        after: The last step of the trace when the span began or was cancelled.
        internal: True for a model that a middleware calls for its own purposes.
        answered: True if its end was reported by another span; its own later report is ignored.
        cancelled_at: The number of spans begun at its cancellation, or None.
        raised: True if its own error ended it.
        ends_trace: True if the span has ended and its trace ends with it.
        paused_inside: True if a graph that it called waits for a human; it may go on regardless.
    """

    tool: str | None = None
    call_id: str | None = None
    agent: str | None = None
    ends_trace = False
    number = 0
    after: dict[str, Any] | None = None
    internal = False
    answered = False
    is_over = False
    cancelled_at: int | None = None
    cancelled_by = "CancelledError"
    raised = False
    tells = False
    paused = False
    paused_inside = False
    failed_inside: deque[dict[str, Any]] | None = None
    started_s = 0.0
    step_call_id: str | None = None
    model: str | None = None
    _inner: Conversation | None = None
    parts: list[str] | None = None

    def __init__(self, root: Any, conversation: Conversation, parent: "Span | None") -> None:
        self.root = root
        self.conversation = conversation
        self.parent = parent
        self.is_root = parent is None
        self.around: str | None = None
        self.within: str | None = None
        if parent is not None:
            self.around = parent.tool or parent.around
            self.within = parent.step_call_id or parent.within

    @property
    def place(self) -> Place | None:
        """The place of the span's steps; a tool's own steps are outside its call."""
        if self.agent is None and self.within is None:
            place: Place | None = self.root.place
            return place
        return Place(self.agent, self.within)

    @property
    def place_inside(self) -> Place | None:
        """The place of the steps of the spans inside this one."""
        return self.place if self.tool is None else Place(self.agent, self.step_call_id)

    def begin_model(self, name: str) -> None:
        """Make this span a model call that starts now."""
        recorder = self.root.recorder
        self.tells = True
        self.started_s = recorder.clock()
        if name:
            self.model = name
            if recorder.model is None:
                recorder.model = bounded_name(name)

    def begin_tool(
        self, name: str, call_id: str | None, inputs: Any, otherwise: object = None
    ) -> None:
        """Make this span a tool call that starts now, and note it unless a model announced it.

        The step's input is ``otherwise`` if the inputs are None.
        """
        announced = self.conversation.begin(self, name, call_id, inputs)
        self.use(name, announced or call_id)
        if announced is None:
            self.note_call(otherwise if inputs is None else inputs)

    def use(self, tool: str, call_id: str | None) -> None:
        """Make this span a tool call that starts now."""
        recorder = self.root.recorder
        self.tells = True
        self.tool = tool
        self.call_id = call_id
        self.step_call_id = call_id or recorder.new_call_id()
        self.started_s = recorder.clock()

    def note_call(self, inputs: object) -> None:
        """Note the call of this tool."""
        self.after = self.root.recorder.note(
            "tool_call", None, self.tool, None, None, self.place, self.step_call_id, inputs
        )

    def above(self) -> Iterator["Span"]:
        """Yield the spans around this one, innermost first."""
        outer = self.parent
        while outer is not None:
            yield outer
            outer = outer.parent

    @property
    def is_left(self) -> bool:
        """True if a span with a step was presumably given up, because its parent has ended."""
        return self.tells and not self.answered and self.parent is not None and self.parent.is_over

    def is_survived(self, *, ended_well: bool) -> bool:
        """Return whether the run went on after this was given up, or its root ``ended_well``."""
        cancelled = self if self.cancelled_at is not None else self.parent
        if cancelled is None or cancelled.raised:
            return False  # the error itself is noted
        if cancelled.cancelled_at is None:
            return True
        begun: int = self.root.begun
        return ended_well or begun > cancelled.cancelled_at

    def fail(self, error: BaseException) -> bool:
        """Register an error, and return whether it began here and not in a span inside."""
        around = self.parent
        if around is not None:
            noted = around.failed_inside
            if noted is None:
                noted = around.failed_inside = deque(maxlen=_MAX_ERRORS)
            noted.append(vars(error))  # not its id, which may be reused
        if self.failed_inside is None:
            return True
        inside = [*self.failed_inside]
        return all(vars(cause) is not noted for cause in causes(error) for noted in inside)

    def inner_conversation(self) -> Conversation:
        """Return the conversation of the spans inside this tool, made on first use."""
        if self.root.one_conversation:
            return self.conversation
        if self._inner is None:
            self._inner = self.root.new_conversation()
            self._inner.follows = self.conversation.follows
        return self._inner

    def pause(self) -> None:
        """Pause the span and its parent for a human; the calls inside it stay without a result."""
        self.paused = True
        if self.parent is not None:
            self.parent.paused = True
        if self._inner is not None:
            self.conversation.expect(self._inner.owed)

    def add_part(self, part: str) -> None:
        """Add the next part of a model's streamed answer, in case it never ends."""
        if self.parts is None:
            self.parts = [part]
        elif len(self.parts) < _MAX_PARTS:
            self.parts.append(part)

    def _stop(self, error: BaseException, failure: Failure) -> None:
        if failure in {Failure.PAUSED, Failure.REFUSED}:
            self.pause()
        elif failure is Failure.GIVEN_UP:
            self.cancelled_at, self.cancelled_by = self.root.begun, type(error).__name__
            self.after = self.root.recorder.last_step

    def end_with(self, error: BaseException) -> None:
        """Record that the span ended with an exception, unless it was already answered."""
        if self.answered:
            return
        root = self.root
        failure = root.failure_of(error)
        self._stop(error, failure)
        if failure is Failure.PAUSED:
            root.record_interrupt(root.questions_in(error), self)
        if self.is_root:
            self.paused &= failure is not Failure.ERROR
            root.pause(self)
        if self.fail(error) or (self.is_root and failure is Failure.GIVEN_UP):
            self.raised = failure is Failure.ERROR
            if self.tool is not None or not self.ends_trace:
                root.record_recovery(error, self)
        elif self.tool is not None and failure is Failure.ERROR:
            root.record_result(type(error).__name__, self)
        if self.ends_trace and failure is Failure.GIVEN_UP:
            root.cut_short(error)
        if self.is_root:
            root.record_late(ended_well=failure not in {Failure.ERROR, Failure.GIVEN_UP})
        if self.ends_trace:
            root.fail(error)

    @property
    def latency_ms(self) -> float | None:
        """The time since a tool or a model started; None for other spans."""
        if not self.started_s:
            return None
        latency_s: float = self.root.recorder.clock() - self.started_s
        return latency_s * 1000
