"""Spans of a run: agents, models, tools and chains, and the root span."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from kp_middleware.recording._bounds import (
    BEGINNING,
    LateNote,
    ModelCall,
    StepFields,
    bounded_name,
    causes,
)
from kp_middleware.recording._context import Place, shield
from kp_middleware.recording._conversation import (
    Conversation,
    Message,
    ServedResult,
    ToolCall,
    Turn,
)
from kp_middleware.recording._recorder import GIVEN_UP, Recorder
from kp_middleware.traces import StepType

_RESULT: Final[dict[bool, StepType]] = {False: "observation", True: "error_recovery"}
"""The step type of a result, by whether the tool failed."""

SpanId: TypeAlias = int | str
"""An id of a span, unique in its process."""


class SpanFailure(Enum):
    """The reason why a span ended without a result."""

    ERROR = auto()
    GIVEN_UP = auto()
    """A cancellation, a timeout, or a stream closed by its consumer."""
    PAUSED = auto()
    """An interrupt for a human, or a drained graph: the run may resume later."""
    HANDED_OVER = auto()
    """A handoff to a parent graph."""
    REFUSED = auto()
    """A person's answer that the graph rejected; it waits for another."""


class Span:
    """A span: a chain, a model call, a tool call or a retriever.

    Attributes:
        tool, call_id: The name of a tool and the id of its call; None for other spans.
        enclosing_tool, enclosing_call_id: The innermost tool around the span and the id of its
            call, or None.
        step_call_id: The id of a tool's call, generated if it has none; None for other spans.
        started_s: The start of a tool or a model, by the recorder's clock.
        agent: The inner agent that the span runs in; None means the root's own agent.
        place: The place of the span's steps; a tool's own steps are outside its call.
        emits_steps: True for a model, a tool or a retriever, whose end is a step.
        after: The last step of the trace when the span began or was cancelled.
        internal: True for a model called by a middleware.
        answered: True if another span reported its result; its own later report is ignored.
        ends_trace: True if the span has ended and its trace ends with it.
        paused_inside: True if a graph inside it waits for a human; it may continue regardless.
        parts: The parts of a model's streamed answer, in case it never ends.
        inner: The conversation of the spans inside this tool, made on first use.
    """

    is_over = ends_trace = emits_steps = internal = answered = raised = False
    paused = paused_inside = False
    tool: str | None = None
    call_id: str | None = None
    step_call_id: str | None = None
    model: str | None = None
    agent: str | None = None
    enclosing_tool: str | None = None
    enclosing_call_id: str | None = None
    number, started_s = 0, 0.0
    after: StepFields | None = None
    cancelled_at: int | None = None
    cancelled_by = "CancelledError"
    failed_inside: deque[dict[str, Any]] | None = None
    inner: Conversation | None = None
    parts: list[str] | None = None

    def __init__(self, root: Any, conversation: Conversation, parent: "Span | None") -> None:
        self.root = root  # a `RootSpan`, or an adapter's own kind of it
        self.conversation = conversation
        self.parent = parent
        self.is_root = parent is None
        self.place: Place | None = root.place
        if parent is not None and (call_id := parent.step_call_id or parent.enclosing_call_id):
            self.enclosing_tool = parent.tool or parent.enclosing_tool
            self.enclosing_call_id = call_id
            self.enter(None)

    def enter(self, agent: str | None) -> None:
        """Put the span into an inner agent, or None for the root's own."""
        self.agent = agent
        is_own = agent is None and self.enclosing_call_id is None
        self.place = self.root.place if is_own else Place(agent, self.enclosing_call_id)

    @property
    def place_inside(self) -> Place | None:
        """The place of the steps of the spans inside this one."""
        return self.place if self.tool is None else Place(self.agent, self.step_call_id)

    @property
    def latency_ms(self) -> float | None:
        """The time since a tool or a model started; None for other spans."""
        now_s: float = self.root.recorder.clock()
        return (now_s - self.started_s) * 1000 if self.started_s else None

    def begin_model(self, name: str) -> None:
        """Make this span a model call that starts now."""
        recorder = self.root.recorder
        self.emits_steps, self.started_s = True, recorder.clock()
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
        recorder = self.root.recorder
        expected = self.conversation.begin(self, name, call_id, inputs)
        self.emits_steps, self.tool, self.call_id = True, name, expected or call_id
        self.step_call_id = self.call_id or recorder.new_call_id()
        self.started_s = recorder.clock()
        if expected is None:
            given = otherwise if inputs is None else inputs
            self.after = recorder.note(
                "tool_call", None, name, None, None, self.place, self.step_call_id, given
            )

    def ancestors(self) -> Iterator["Span"]:
        """Yield the spans around this one, innermost first."""
        outer = self.parent
        while outer is not None:
            yield outer
            outer = outer.parent

    def was_survived(self, *, ended_well: bool) -> bool:
        """Return True if the run continued after this span was given up, or ``ended_well``."""
        # spans are numbered; a cancelled span has the number of spans begun before it
        cancelled = self if self.cancelled_at is not None else self.parent
        if cancelled is None or cancelled.raised:
            return False  # the error itself is a step
        span_count: int = self.root.span_count
        return ended_well or cancelled.cancelled_at is None or span_count > cancelled.cancelled_at

    def fail(self, error: BaseException) -> bool:
        """Register an error, and return True if it was raised here and not in an inner span."""
        if self.parent is not None:
            if self.parent.failed_inside is None:
                self.parent.failed_inside = deque(maxlen=20)
            self.parent.failed_inside.append(vars(error))  # not its id, which may be reused
        inside = [*(self.failed_inside or ())]
        return all(vars(cause) is not noted for cause in causes(error) for noted in inside)

    def end_with(self, error: BaseException) -> None:
        """Record that the span ended with an exception, unless another span reported its result."""
        if self.answered:
            return
        root = self.root
        failure = root.failure_of(error)
        if failure in {SpanFailure.PAUSED, SpanFailure.REFUSED}:
            self._pause(root.questions_in(error) if failure is SpanFailure.PAUSED else ())
        elif failure is SpanFailure.GIVEN_UP:
            self.cancelled_at, self.cancelled_by = root.span_count, type(error).__name__
            self.after = root.recorder.last_step
        if self.is_root:
            self.paused &= failure is not SpanFailure.ERROR
            root.pause(self)
        if self.fail(error) or (self.is_root and failure is SpanFailure.GIVEN_UP):
            self.raised = failure is SpanFailure.ERROR
            if self.tool is not None or not self.ends_trace:
                root.record_recovery(error, self)
        elif self.tool is not None and failure is SpanFailure.ERROR:
            root.record_result(type(error).__name__, self)
        cut_short = self.ends_trace and failure is SpanFailure.GIVEN_UP
        if self.is_root or cut_short:
            ended_well = failure not in {SpanFailure.ERROR, SpanFailure.GIVEN_UP}
            root.record_late(ended_well=ended_well, cut_short_by=error if cut_short else None)
        if self.ends_trace:
            root.fail(error)

    def _pause(self, questions: Iterable[object]) -> None:
        """Pause this span and its parent for a human; the calls inside remain pending."""
        self.root.record_interrupt(questions, self)
        self.paused = True
        if self.parent is not None:
            self.parent.paused = True
        if self.inner is not None:
            self.conversation.expect(self.inner.pending_calls)


class RootSpan:
    """The root of a tree of spans, with the recorder of its trace; adapters may extend it.

    Args:
        recorder: The recorder of the trace.
        owned: False if the trace belongs to a captured function or to a run around this one, which
            finishes it.
        conversation: Returns a new conversation: for the root, and for each tool in which agents
            run.

    Attributes:
        place: The place of the root in the trace of a captured function, or None.
        unfinished_spans: After the end, the spans whose end was never reported.
        successor: Returns a new root for a span that outlives this root, or None.
        one_conversation: True if the calls inside its tools belong to its own conversation.
        awaits_turn: True if the run waits for the next turn of its thread at its end.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        owned: bool,
        conversation: Callable[[], Conversation] = Conversation,
    ) -> None:
        self.recorder = recorder
        self.owned = owned
        self.new_conversation = conversation
        self.place: Place | None = None
        self.successor: Callable[[RootSpan, Span], RootSpan | None] | None = None
        self.agent_name: object = None
        self.span_ids: set[SpanId] = set()
        self.span_count = 0
        self.unfinished_spans: list[Span] = []
        self.closed_early = self.one_conversation = self.awaits_turn = False
        self.cancelled: list[Span] = []
        self._errors: dict[str, BaseException] = {}
        self._questions: dict[str, None] = {}
        self._answer = ""
        self._is_end_noted = False
        self._empty_answer: ModelCall | None = None  # before any step

    def failure_of(self, error: BaseException) -> SpanFailure:
        """Classify an error; adapters extend it with their framework's own."""
        return SpanFailure.GIVEN_UP if isinstance(error, GIVEN_UP) else SpanFailure.ERROR

    def questions_in(self, error: BaseException) -> Iterable[object]:  # noqa: ARG002
        """Return the questions to a human in the error that paused a span; adapters extend it."""
        return ()

    def error_named(self, error_type: str, message: str, cause: str = "") -> BaseException:
        """Return an exception for an error that a framework reports as text.

        Equal messages return the same exception, as does a message (or its ``cause``) that ends
        with an earlier one: a run that fails with its tool's error records it once.
        """
        text = cause or message
        same = (error for known, error in self._errors.items() if known and text.endswith(known))
        if (error := next(same, None)) is not None:
            return error
        kind = type(bounded_name(error_type), (Exception,), {})
        return self._errors.setdefault(text, kind(message))

    def record_messages(self, messages: Iterable[Message], span: Span) -> None:
        """Record tool results and user messages that have no span."""
        note, place = self.recorder.note, span.place
        for role, text, _, call_id, name, failed in messages:
            if role == "user":
                note("observation", text, place=place, call_id=call_id)
            else:
                note(_RESULT[bool(failed)], None, name, text, None, place, call_id)

    def record_history(self, messages: Sequence[Message], span: Span) -> None:
        """Record the new messages given to a model; the first ones may set the objective."""
        if new_messages := span.conversation.unreported(messages):
            self.record_messages(new_messages, span)
        needs_objective = self.owned and not self.recorder.objective
        if needs_objective and (objective := span.conversation.user_text(messages)):
            self.recorder.set_objective(objective)
            self.recorder.note("observation", objective, place=span.place)

    def record_turn(self, turn: Turn, span: Span) -> None:
        """Record a model's turn: its reasoning, text and tool calls.

        The turn of an internal model is an observation.
        """
        recorder, note, place = self.recorder, self.recorder.note, span.place
        read, written = turn.tokens or (None, None)
        if turn.tokens is not None:
            recorder.used_tokens(input_tokens=turn.tokens[0], output_tokens=turn.tokens[1])
        took: ModelCall | None
        took = ModelCall(turn.model or span.model, read, written, span.latency_ms)
        if span.internal:
            if output := turn.text or [call.args for call in turn.calls]:
                note("observation", None, None, output, took, place)
            return
        if turn.served:
            self._record_served(turn.served, place)
        for thought in turn.thoughts or (turn.thought if turn.reasoning else turn.text,):
            if thought and not thought.isspace():
                note("thought", thought, None, None, took, place)
                took = None
        for name, args, call_id, error in turn.calls:
            note("tool_call", None, name, None, took, place, call_id, args)
            took = None
            if error is not None:
                note("error_recovery", None, name, error, None, place, call_id)
        if turn.text and span.enclosing_tool is None:
            self._answer = turn.text

    def _record_served(self, steps: Iterable[ToolCall | ServedResult], place: Place | None) -> None:
        for step in steps:
            if isinstance(step, ToolCall):
                self.recorder.note("tool_call", None, step.name, None, None, place, None, step.args)
            else:
                kind = _RESULT[bool(step.failed)]
                output = str(step.output) if step.failed else step.output
                self.recorder.note(kind, None, step.name, output, None, place)

    def end_turn(self, turn: Turn, span: Span) -> None:
        """Record a model's turn, and add its calls to the pending ones."""
        if not span.internal:
            span.conversation.add_turn(turn)
            if span.enclosing_tool is None:
                self.recorder.unfinished = turn.unfinished
            if turn.model:
                self.recorder.model = bounded_name(turn.model)
        self.record_turn(turn, span)
        if turn.tokens is not None and not self.recorder.log.kept:
            self._empty_answer = ModelCall(turn.model or span.model, *turn.tokens, span.latency_ms)

    def record_result(self, result: object, span: Span, *, failed: bool = False) -> None:
        """Record the result of a tool or a retriever, or its failure."""
        kind = _RESULT[bool(failed)]
        output, took_ms = str(result) if failed else result, span.latency_ms
        self.recorder.note(kind, None, span.tool, output, took_ms, span.place, span.step_call_id)

    def record_recovery(self, error: BaseException, span: Span) -> None:
        """Record an exception raised inside; a recovery, unless it ends the run."""
        failure = self.failure_of(error)
        given_up = failure is SpanFailure.GIVEN_UP and not isinstance(error, GeneratorExit)
        if failure is SpanFailure.REFUSED:
            self.recorder.error(error)
        elif given_up and not span.is_root:
            self.cancelled.append(span)
        elif failure is SpanFailure.ERROR or (given_up and not self.owned):
            took_ms = span.latency_ms if span.tool is not None else None
            place, call_id = span.place or Place(), span.step_call_id
            self.recorder.error(
                error, tool=span.tool, latency_ms=took_ms, place=place, call_id=call_id
            )

    @shield
    def record_interrupt(self, questions: Iterable[object], span: Span) -> None:
        """Record each question to a human once, although every enclosing span reports it."""
        for question in questions:
            number = str(getattr(question, "id", question))
            if number not in self._questions:
                self._questions[number] = None
                content = getattr(question, "value", question)
                self.recorder.note("observation", None, None, content, None, span.place, number)

    @shield
    def record_late(self, *, ended_well: bool, cut_short_by: BaseException | None = None) -> None:
        """Record at the end the partial texts and the recoveries of spans given up.

        The error that cut a run short is the result of the tools that were running.
        """
        notes = []
        if self.recorder.thread_notes.awaits == "human":
            cut_short_by = None
        for span in self._given_up():
            after, at = span.after or BEGINNING, span.started_s or self.recorder.clock()
            where = span.place, span.step_call_id, at
            text = "".join(span.parts or ())
            if text and not span.internal:
                notes.append(LateNote("thought", text, after, None, *where))
            if span.was_survived(ended_well=ended_well):
                by = span.cancelled_by
                notes.append(LateNote("error_recovery", by, after, span.tool, *where))
            elif cut_short_by is not None and span.tool is not None:
                self.record_result(type(cut_short_by).__name__, span)
                self._is_end_noted = True
        self.recorder.note_late(notes)
        self.unfinished_spans = self.cancelled = []

    def _given_up(self) -> list[Span]:
        """Return the innermost spans given up, by start, except those inside a live tool."""
        unended = [
            span
            for span in self.unfinished_spans
            if span.emits_steps
            and not span.answered
            and span.parent is not None
            and span.parent.is_over
        ]
        enclosing = {outer for span in (*unended, *self.cancelled) for outer in span.ancestors()}
        own = (
            span
            for span in (*unended, *(span for span in self.cancelled if span not in enclosing))
            if span.tool is not None
            or all(outer.tool is None or outer.is_over for outer in span.ancestors())
        )
        return sorted(own, key=lambda span: span.number)

    def pause(self, span: Span) -> None:
        """Record at the root's end if it waits for a human or for the next turn."""
        is_paused = span.paused or span.paused_inside
        if is_paused or self.awaits_turn:
            notes = self.recorder.thread_notes
            notes.awaits = "human" if is_paused else "turn"
            notes.pending_calls = span.conversation.pending_calls
            notes.questions = tuple(self._questions) if is_paused else ()

    def succeed(self, output: object, *, complete: bool = True) -> None:
        """End with a result, or without one if the run was paused or its stream closed early."""
        if self._empty_answer is not None and not self.recorder.log.kept:
            self.recorder.note("thought", took=self._empty_answer)
        self.conclude(output)
        if self.closed_early:
            self.recorder.unfinished = GeneratorExit.__name__
        self.recorder.finish(complete=complete and not self.closed_early)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        failure, recorder = self.failure_of(error), self.recorder
        if failure is SpanFailure.ERROR:
            recorder.finish(error, complete=not self.closed_early)
        elif failure is SpanFailure.GIVEN_UP and recorder.thread_notes.awaits != "human":
            recorder.finish(error, complete=False, is_noted=self._is_end_noted)
        else:
            recorder.finish(complete=False)

    @shield
    def conclude(self, output: object, *parts: object) -> None:
        """Set the result, by default the last answer; ``parts`` may contain its confidence."""
        result = self._answer or None if output is None else output
        if result is not None:
            self.recorder.outcome(result)
        self.recorder.extract_confidence(*parts, output)

    def give_up(self) -> None:
        """Finish an owned trace as incomplete if its end was never reported."""
        if self.owned:
            self.recorder.finish(complete=False)
