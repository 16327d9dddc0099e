"""Spans of a run (agents, models, tools, and chains around them), and the steps they become."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from kp_middleware.recording._context import Place
from kp_middleware.recording._conversation import Conversation, Message, ToolCall, Turn
from kp_middleware.recording._given_up import given_up, is_survived, late_notes
from kp_middleware.recording._limits import NAME_BYTES, bounded_text, causes
from kp_middleware.recording._recorder import GIVEN_UP, Recorder
from kp_middleware.recording._shield import shield
from kp_middleware.recording._steps import ModelCall

_MAX_ERRORS: Final = 20
_MAX_PARTS: Final = 20_000
_OWN: Final = Place()

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
        agent_name: The name of the root's agent, or None.
        span_ids: The ids of the live spans inside the root.
        begun: The number of spans that began.
        silent: After the end, the spans whose end was never reported.
        cancelled: The spans that reported a cancellation.
        outliving: After the end, True while spans go on in the background that were not moved yet.
        closed_early: True if its stream was closed while spans in it were live.
        one_conversation: True if the calls inside its tools belong to its own conversation.
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
        self.agent_name: object = None
        self.span_ids: set[SpanId] = set()
        self.begun = 0
        self.silent: list[Span] = []
        self.outliving = False
        self.closed_early = False
        self.one_conversation = False
        self.cancelled: list[Span] = []
        self._errors: dict[str, BaseException] = {}
        self._questions: dict[str, None] = {}
        self._answer = ""
        self._is_end_noted = False

    def failure_of(self, error: BaseException) -> Failure:
        """Classify an error; adapters extend it with their framework's own."""
        return Failure.GIVEN_UP if isinstance(error, GIVEN_UP) else Failure.ERROR

    def questions_in(self, error: BaseException) -> Iterable[object]:  # noqa: ARG002
        """Return the questions to a human in an error that paused a span; adapters extend it."""
        return ()

    def error_named(self, error_type: str, message: str, cause: str = "") -> BaseException:
        """Return an exception for an error that a framework reports in words.

        The same words give the same exception, and so does a message (its ``cause``, if given) that
        ends with another's, as of a run that fails with its tool's error: it is noted once.
        """
        told = cause or message
        same = (error for known, error in self._errors.items() if known and told.endswith(known))
        if (error := next(same, None)) is not None:
            return error
        kind = type(bounded_text(error_type, NAME_BYTES), (Exception,), {})
        return self._errors.setdefault(told, kind(message))

    def record_messages(self, messages: Iterable[Message], span: "Span") -> None:
        """Note messages that came without a span of their own: tools' results, a user's words."""
        note, place = self.recorder.note, span.place
        for message in messages:
            call_id, text, tool = message.call_id, message.text, message.name
            if message.role == "user":
                note("observation", text, place=place, call_id=call_id)
            elif message.failed:
                self.recorder.error(text, tool=tool, place=place or _OWN, call_id=call_id)
            else:
                note("observation", None, tool, text, None, place, call_id)

    def record_history(self, messages: Sequence[Message], span: "Span") -> None:
        """Note the messages given to a model that are new; the run's first ones say its task."""
        if news := span.conversation.unreported(messages):
            self.record_messages(news, span)
        if self.owned and not self.recorder.objective:
            asked = span.conversation.asked(messages)
            if asked:
                self.recorder.set_objective(asked)
                self.recorder.note("observation", asked, place=span.place)

    def record_turn(self, turn: Turn, span: "Span") -> None:
        """Note a model's turn: its reasoning, text and tool calls."""
        recorder, place = self.recorder, span.place
        note = recorder.note
        if turn.served:
            self._record_served(turn, place)
        model_call: ModelCall | None = self._model_call(turn, span)
        for thought in turn.thoughts or (turn.thought,):
            if thought:
                note("thought", thought, None, None, model_call, place)
                model_call = None
        for name, args, call_id, error in turn.calls:
            note("tool_call", None, name, None, model_call, place, call_id, args)
            model_call = None
            if error is not None:
                recorder.error(error, tool=name, place=place or _OWN, call_id=call_id)
        if turn.text and span.around is None:
            self._answer = turn.text
        if turn.model:
            recorder.model = bounded_text(str(turn.model), NAME_BYTES)

    def _record_served(self, turn: Turn, place: Place | None) -> None:
        for step in turn.served:
            if isinstance(step, ToolCall):
                self.recorder.note("tool_call", tool=step.name, input=step.args, place=place)
            elif step.failed:
                self.recorder.error(str(step.output), tool=step.name, place=place or _OWN)
            else:
                self.recorder.note("observation", None, step.name, step.output, None, place)

    def record_aside(self, turn: Turn, span: "Span") -> None:
        """Note the turn of a model that a middleware called, which is no thought of the agent."""
        model_call = self._model_call(turn, span)
        if said := turn.text or [call.args for call in turn.calls]:
            self.recorder.note("observation", None, None, said, model_call, span.place)

    def _model_call(self, turn: Turn, span: "Span") -> ModelCall:
        latency_ms = (self.recorder.clock() - span.started_s) * 1000 if span.started_s else None
        name = turn.model or span.model
        if turn.tokens is None:
            return ModelCall(name, None, None, latency_ms)
        read, written = turn.tokens
        self.recorder.used_tokens(input_tokens=read, output_tokens=written)
        return ModelCall(name, read, written, latency_ms)

    def record_result(self, result: object, span: "Span") -> None:
        """Note the result of a tool or a retriever."""
        self.recorder.note(
            "observation", None, span.tool, result, span.latency_ms, span.place, span.step_call_id
        )

    def record_error(self, error: BaseException | str, span: "Span") -> None:
        """Note an error in the run; if the same error ends the run, it is no recovery."""
        self.recorder.error(
            error,
            tool=span.tool,
            latency_ms=span.latency_ms if span.tool is not None else None,
            place=span.place or _OWN,
            call_id=span.step_call_id,
        )

    def record_recovery(self, error: BaseException, span: "Span") -> None:
        """Note an exception raised inside, if it is an error."""
        match self.failure_of(error):
            case Failure.ERROR:
                self.record_error(error, span)
            case Failure.REFUSED:
                self.recorder.error(error)
            case Failure.GIVEN_UP if not isinstance(error, GeneratorExit):  # one had enough
                if not span.is_root:
                    self.cancelled.append(span)
                elif not self.owned:  # should it end the run around this one, it will be fatal
                    self.record_error(error, span)

    @shield
    def record_interrupt(self, questions: Iterable[object], span: "Span") -> None:
        """Note the questions to a human, once each: every enclosing span reports them."""
        for question in questions:
            number = str(getattr(question, "id", question))
            if number not in self._questions:
                self._questions[number] = None
                asked = getattr(question, "value", question)
                self.recorder.note("observation", None, None, asked, None, span.place, number)

    @shield
    def record_late(self, *, ended_well: bool) -> None:
        """Note the spans given up inside, now that the root is over."""
        left = given_up(self.silent, self.cancelled)
        self.recorder.note_late(late_notes(left, ended_well=ended_well))
        self.silent = self.cancelled = []

    def cut_short(self, error: BaseException) -> None:
        """Note the tools that ran when the run was given up: they have no other result."""
        if self.recorder.thread_notes.awaits == "human":
            return
        for span in given_up(self.silent, self.cancelled):
            if span.tool is not None and not is_survived(span, ended_well=False):
                self.record_result(type(error).__name__, span)
                self._is_end_noted = True

    def pause(self, span: "Span") -> None:
        """Note at the root's end that it waits for a human, if it does."""
        if span.paused or span.paused_inside:
            owed = span.conversation.owed
            self.recorder.thread_notes.wait("human", questions=tuple(self._questions), owed=owed)

    def succeed(self, output: object, *, complete: bool = True) -> None:
        """End with a result, or without one if the run was paused or its stream closed early."""
        self.conclude(output)
        if self.closed_early:
            self.recorder.unfinished = GeneratorExit.__name__
        self.recorder.finish(complete=complete and not self.closed_early)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        match self.failure_of(error):
            case Failure.ERROR:
                self.recorder.finish(error, complete=not self.closed_early)
            case Failure.GIVEN_UP if self.recorder.thread_notes.awaits != "human":
                self.recorder.finish(error, complete=False, is_noted=self._is_end_noted)
            case Failure.GIVEN_UP | Failure.PAUSED | Failure.HANDED_OVER | Failure.REFUSED:
                self.recorder.finish(complete=False)

    @shield
    def conclude(self, output: object, *parts: object) -> None:
        """Set the result, by default the last answer of a model, and the confidence in it.

        Args:
            output: The result of the run, or None.
            parts: Parts of it whose fields may state the confidence.
        """
        result = self._answer or None if output is None else output
        if result is not None:
            self.recorder.outcome(result)
        self.recorder.extract_confidence(*parts, output)

    def give_up(self) -> None:
        """Finish an owned trace as incomplete, because its end was never reported."""
        if self.owned:
            self.recorder.finish(complete=False)


class Span:
    """A span: a chain, a model call, a tool call or a retriever.

    Attributes:
        is_root: True if the span has no parent.
        tool, call_id: The name of a tool and the id of its call; None for other spans.
        around, within: The innermost tool around the span and the id of its call, or None.
        step_call_id: The id of a tool's call, made if it has none; None for other spans.
        model: The name of a model; None for other spans.
        started_s: The start of a tool or a model, by the recorder's clock.
        agent: The inner agent that the span runs in; None means the root's own agent.
        tells: True for a model, a tool or a retriever, whose end is noted.
        number: The position among the spans that began in the root.
        after: The last step of the trace when the span began or was cancelled.
        internal: True for a model that a middleware calls for its own purposes.
        answered: True if its end was reported by another span; its own later report is ignored.
        is_over: True if the span has ended.
        cancelled_at, cancelled_by: The spans begun by its cancellation, and the error's name.
        raised: True if its own error ended it.
        ends_trace: True if the span has ended and its trace ends with it.
        paused: True if something in it waits for a human.
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
                recorder.model = bounded_text(str(name), NAME_BYTES)

    def begin_tool(self, name: str, call_id: str | None, inputs: object) -> None:
        """Make this span a tool call that starts now, and note it unless a model announced it."""
        self.tells = True
        announced = self.conversation.begin(self, name, call_id, inputs)
        self.use(name, announced or call_id)
        if announced is None:
            place, recorder = self.place, self.root.recorder
            self.after = recorder.note(
                "tool_call", None, name, None, None, place, self.step_call_id, inputs
            )

    def use(self, tool: str, call_id: str | None) -> None:
        """Make this span a tool call that starts now."""
        self.tool = tool
        self.call_id = call_id
        self.step_call_id = call_id or self.root.recorder.new_call_id()
        self.started_s = self.root.recorder.clock()

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

    def rest(self, *, is_node: bool) -> None:
        """End while something in the span waits for a human; after a node the parent went on."""
        if self.parent is not None and not is_node:
            self.parent.paused_inside = True

    def add_part(self, part: str) -> None:
        """Add the next part of a model's streamed answer, in case it never ends."""
        if self.parts is None:
            self.parts = [part]
        elif len(self.parts) < _MAX_PARTS:
            self.parts.append(part)

    def stop(self, error: BaseException, failure: Failure) -> None:
        """End without a result: pause, or note the cancellation."""
        if failure in {Failure.PAUSED, Failure.REFUSED}:
            self.pause()
        elif failure is Failure.GIVEN_UP:
            self.cancelled_at, self.cancelled_by = self.root.begun, type(error).__name__
            self.after = self.root.recorder.last_step

    def end_with(self, error: BaseException) -> None:
        """Record that the span ended with an exception, unless it was already answered."""
        if self.answered:
            return
        root: RootSpan = self.root
        failure = root.failure_of(error)
        self.stop(error, failure)
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
