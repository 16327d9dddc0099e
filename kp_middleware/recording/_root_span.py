"""The root of a tree of spans, and the steps that its spans become."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kp_middleware.recording._context import Place
from kp_middleware.recording._conversation import Conversation, Message, ToolCall, Turn
from kp_middleware.recording._limits import bounded_name
from kp_middleware.recording._recorder import GIVEN_UP, Recorder
from kp_middleware.recording._shield import shield
from kp_middleware.recording._spans import Failure, Span, SpanId
from kp_middleware.recording._steps import BEGINNING, LateNote, ModelCall

_OWN: Final = Place()


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
        silent: After the end, the spans whose end was never reported.
        outliving: After the end, True while spans go on in the background that were not moved yet.
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
        kind = type(bounded_name(error_type), (Exception,), {})
        return self._errors.setdefault(told, kind(message))

    def record_messages(self, messages: Iterable[Message], span: Span) -> None:
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

    def record_history(self, messages: Sequence[Message], span: Span) -> None:
        """Note the messages given to a model that are new; the run's first ones say its task."""
        if news := span.conversation.unreported(messages):
            self.record_messages(news, span)
        if self.owned and not self.recorder.objective:
            asked = span.conversation.asked(messages)
            if asked:
                self.recorder.set_objective(asked)
                self.recorder.note("observation", asked, place=span.place)

    def record_turn(self, turn: Turn, span: Span) -> None:
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
            recorder.model = bounded_name(turn.model)

    def _record_served(self, turn: Turn, place: Place | None) -> None:
        for step in turn.served:
            if isinstance(step, ToolCall):
                self.recorder.note("tool_call", tool=step.name, input=step.args, place=place)
            elif step.failed:
                self.recorder.error(str(step.output), tool=step.name, place=place or _OWN)
            else:
                self.recorder.note("observation", None, step.name, step.output, None, place)

    def end_turn(self, turn: Turn, span: Span) -> None:
        """Note a model's last turn; one that a middleware called is no thought of the agent."""
        if span.internal:
            model_call = self._model_call(turn, span)
            if said := turn.text or [call.args for call in turn.calls]:
                self.recorder.note("observation", None, None, said, model_call, span.place)
            return
        span.conversation.add_turn(turn)
        self.record_turn(turn, span)
        if span.around is None:
            self.recorder.unfinished = turn.unfinished

    def _model_call(self, turn: Turn, span: Span) -> ModelCall:
        latency_ms = (self.recorder.clock() - span.started_s) * 1000 if span.started_s else None
        name = turn.model or span.model
        if turn.tokens is None:
            return ModelCall(name, None, None, latency_ms)
        read, written = turn.tokens
        self.recorder.used_tokens(input_tokens=read, output_tokens=written)
        return ModelCall(name, read, written, latency_ms)

    def record_result(self, result: object, span: Span, *, failed: bool = False) -> None:
        """Note the result of a tool or a retriever, or that it says that it ``failed``."""
        if failed:
            self.record_error(str(result), span)
            return
        self.recorder.note(
            "observation", None, span.tool, result, span.latency_ms, span.place, span.step_call_id
        )

    def record_error(self, error: BaseException | str, span: Span) -> None:
        """Note an error in the run; if the same error ends the run, it is no recovery."""
        self.recorder.error(
            error,
            tool=span.tool,
            latency_ms=span.latency_ms if span.tool is not None else None,
            place=span.place or _OWN,
            call_id=span.step_call_id,
        )

    def record_recovery(self, error: BaseException, span: Span) -> None:
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
    def record_interrupt(self, questions: Iterable[object], span: Span) -> None:
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
        self.recorder.note_late(self._late_notes(ended_well=ended_well))
        self.silent = self.cancelled = []

    def cut_short(self, error: BaseException) -> None:
        """Note the tools that ran when the run was given up: they have no other result."""
        if self.recorder.thread_notes.awaits == "human":
            return
        for span in self._given_up():
            if span.tool is not None and not span.is_survived(ended_well=False):
                self.record_result(type(error).__name__, span)
                self._is_end_noted = True

    def _given_up(self) -> list[Span]:
        """Return one span for each attempt that was given up, in the order in which they began.

        A chain cancelled together with a span inside it is no attempt of its own, nor is what is
        inside a tool given up.
        """
        left = [span for span in self.silent if span.is_left]
        around = {id(outer) for span in (*left, *self.cancelled) for outer in span.above()}
        found = [*left, *(span for span in self.cancelled if id(span) not in around)]
        own = (
            span
            for span in found
            if span.tool is not None
            or all(outer.tool is None or outer.is_over for outer in span.above())
        )
        return sorted(own, key=lambda span: span.number)

    def _late_notes(self, *, ended_well: bool) -> Iterator[LateNote]:
        """Yield the partial texts and the recoveries of spans that were given up."""
        for span in self._given_up():
            after, at = span.after or BEGINNING, span.started_s or self.recorder.clock()
            where = span.place, span.step_call_id, at
            said = "".join(span.parts or ())
            if said and not span.internal:
                yield LateNote("thought", said, after, None, *where)
            if span.is_survived(ended_well=ended_well):
                yield LateNote("error_recovery", span.cancelled_by, after, span.tool, *where)

    def pause(self, span: Span) -> None:
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
        """Set the result, by default a model's last answer; ``parts`` may state its confidence."""
        result = self._answer or None if output is None else output
        if result is not None:
            self.recorder.outcome(result)
        self.recorder.extract_confidence(*parts, output)

    def give_up(self) -> None:
        """Finish an owned trace as incomplete, because its end was never reported."""
        if self.owned:
            self.recorder.finish(complete=False)
