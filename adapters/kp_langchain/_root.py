"""One root run: its objective and its outcome."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kp_langchain._conversation import Conversation
from kp_langchain._langgraph import Resumption, failure_of, namespace_of
from kp_langchain._messages import answer_of, last_human_text, messages_of, objective_of, text_of
from kp_langchain._turns import Call, Turn, told_beside
from kp_middleware.recording import (
    BEGINNING,
    Failure,
    LateNote,
    ModelCall,
    Place,
    Recorder,
    RootSpan,
    Span,
    bounded_text,
    given_up,
    is_survived,
    shield,
)

if TYPE_CHECKING:
    from langchain_core.outputs import LLMResult

    from kp_langchain._messages import Message

Scope: TypeAlias = Literal["run", "thread"]
"""The extent of one trace: one root run, or all runs of a thread."""

_NAME_BYTES: Final = 256
_MAX_TAGS: Final = 32
_INTERNAL_TAGS: Final = ("seq:step", "graph:step", "map:key", "retry:attempt", "langsmith:")
NOWHERE: Final = Place()
_UNNAMED: Final = ("LangGraph", "Runnable")


class Root(RootSpan):
    """A root run being recorded.

    Attributes:
        agent_name: As LangChain says it, or None.
        within: Where in a graph it runs itself: in the background of another root, or in its child.
        follows: Whether it goes on with an earlier run that waited for a human.
    """

    def __init__(self, recorder: Recorder, *, owned: bool, scope: Scope) -> None:
        super().__init__(recorder, owned=owned, new_calls=Conversation)
        self._cancelled: list[Span] = []
        self.agent_name: object = None
        self.within = ""
        self.follows = False
        self._is_turn = owned and scope == "thread"
        self._asked = not owned
        self._is_end_noted = False
        self._around: object = None
        self._goes_on = self._began_late = self._is_unnamed = False
        self._questions: dict[str, None] = {}
        self._answer = ""

    @shield
    def introduce(self, name: object, metadata: Mapping[str, object], tags: Sequence[str]) -> None:
        """Note the agent, thread and tags that LangChain gives for the root."""
        recorder = self.recorder
        self.agent_name = metadata.get("lc_agent_name")
        self.within = namespace_of(metadata)
        self.set_thread(metadata)
        if not self.owned:
            return
        if self._is_turn:
            recorder.thread_notes.go_on()
        name = self.agent_name or name
        if isinstance(name, str) and not name.startswith(_UNNAMED):
            recorder.agent_name = bounded_text(name, _NAME_BYTES)
        recorder.tags = tuple(
            bounded_text(tag, _NAME_BYTES)
            for tag in tags[:_MAX_TAGS]
            if not tag.startswith(_INTERNAL_TAGS)
        )

    def begin_late(self, tool: str | None, around: object) -> None:
        """Make this a root now; its agent is named by the next run inside, else after its tool."""
        self.recorder.agent_name = tool
        self._around = around  # an agent without a name has that of the agent around it
        self._began_late = self._is_unnamed = True

    def set_thread(self, metadata: Mapping[str, object]) -> None:
        """Note the thread and the agent once known; a chain's come from the graph inside it."""
        recorder, thread_id = self.recorder, metadata.get("thread_id")
        if self._is_unnamed:
            self._be_named(metadata)
        if recorder.thread_id is None and thread_id is not None:
            recorder.thread_id = str(thread_id)
            if (agent := metadata.get("lc_agent_name")) is not None:
                recorder.thread_notes.agent = str(agent)

    def _be_named(self, metadata: Mapping[str, object]) -> None:
        self._is_unnamed = False
        self.within = namespace_of(metadata).rpartition("|")[0]
        self.agent_name = metadata.get("lc_agent_name")
        if self.agent_name is not None and self.agent_name != self._around:
            self.recorder.agent_name = bounded_text(str(self.agent_name), _NAME_BYTES)

    def resume(self, resumption: Resumption, inputs: object, ledger: "Conversation") -> None:
        """Note a human's decision, and the calls that may still need a result."""
        self._goes_on = True
        notes = self.recorder.thread_notes
        waited_here = notes.awaits is not None
        ledger.expect(notes.go_on(resumption.questions))
        self.follows = ledger.follows = not waited_here
        notes.repeats_calls = notes.repeats_calls or self.follows
        self.one_ledger = waited_here
        self.hear_decision(resumption, inputs)

    def hear_decision(self, resumption: Resumption, inputs: object) -> None:
        """Note a human's decision, once for all the runs that receive the input."""
        notes = self.recorder.thread_notes
        if resumption.decision is not None and inputs is not notes.heard:
            notes.heard = inputs
            self.recorder.note("observation", resumption.decision)

    @shield
    def set_objective(self, inputs: object) -> None:
        """Note the objective from the run's input; a stream reports that only at its end."""
        if self._asked:
            return
        objective = objective_of(inputs)
        if objective is not None:
            self._asked = True
            self.recorder.set_objective(objective)

    @shield
    def guess_objective(self, messages: Sequence[object]) -> None:
        """Guess the objective from the messages to the first model."""
        if not self._asked and not self.recorder.objective:
            self.recorder.set_objective(last_human_text(messages) or "")
            self.recorder.thread_notes.overheard = self._goes_on

    @shield
    def record_messages(self, messages: "Iterable[Message]", run: "Span") -> None:
        """Note messages that came without an event of their own."""
        for message in messages:
            place, call_id = run.place, message.call_id
            if message.role == "human":
                self.recorder.note("observation", message.text, place=place, call_id=call_id)
            elif message.failed:
                self.recorder.error(
                    message.text, tool=message.name, place=place or NOWHERE, call_id=call_id
                )
            else:
                self.recorder.note(
                    "observation", None, message.name, message.text, None, place, call_id
                )

    def record_turn(self, turn: Turn, run: "Span") -> None:
        """Note a model's turn: its reasoning, text and tool calls."""
        recorder, place = self.recorder, run.place
        for step in turn.served:
            if isinstance(step, Call):
                recorder.note("tool_call", tool=step.name, input=step.args, place=place)
            elif step.failed:
                recorder.error(str(step.output), tool=step.name, place=place or NOWHERE)
            else:
                recorder.note("observation", None, step.name, step.output, None, place)
        model_call: ModelCall | None = self._model_call(turn, run)
        if thought := turn.thought:
            recorder.note("thought", thought, took=model_call, place=place)
            model_call = None
        for call in turn.calls:
            recorder.note(
                "tool_call",
                tool=call.name,
                input=call.args,
                took=model_call,
                place=place,
                call_id=call.id,
            )
            model_call = None
            if call.error is not None:
                recorder.error(call.error, tool=call.name, place=place or NOWHERE, call_id=call.id)
        if turn.text:
            self._answer = turn.text
        if turn.model:
            recorder.model = bounded_text(str(turn.model), _NAME_BYTES)

    def record_aside(self, turn: Turn, run: "Span") -> None:
        """Note a middleware's own model turn, which is no thought of the agent."""
        model_call = self._model_call(turn, run)
        said = turn.text or [call.args for call in turn.calls]
        if said:
            self.recorder.note("observation", None, None, said, model_call, run.place)

    def _model_call(self, turn: Turn, run: "Span") -> ModelCall:
        read, written = turn.tokens or (None, None)
        if turn.tokens is not None:
            self.recorder.used_tokens(input_tokens=turn.tokens[0], output_tokens=turn.tokens[1])
        return ModelCall(turn.model or run.model, read, written, run.latency_ms)

    @shield
    def record_logprobs(self, response: "LLMResult", run: "Span") -> None:
        """Note the log-probabilities of a model's answer."""
        self.recorder.sureness.hear(told_beside(response), inside=run.around is not None)

    def record_recovery(self, error: BaseException, run: "Span") -> None:
        """Note an exception raised inside, if it is an error."""
        match failure_of(error):
            case Failure.ERROR:
                self.record_error(error, run)
            case Failure.REFUSED:
                self.recorder.error(error)
            case Failure.GIVEN_UP if not isinstance(error, GeneratorExit):  # one had enough
                if not run.is_root:
                    self._cancelled.append(run)
                elif not self.owned:  # should it end the run around this one, it will be fatal
                    self.record_error(error, run)

    @shield
    def record_late(self, *, ended_well: bool) -> None:
        """Note the runs given up inside, now that the root is over."""
        left = given_up(self.silent, self._cancelled)
        self.recorder.note_late(
            note for run in left for note in _late_notes(run, ended_well=ended_well)
        )
        self.silent = self._cancelled = []

    def cut_short(self, error: BaseException) -> None:
        """Note the tools that were running when the run was given up: they have no other result."""
        if self.recorder.thread_notes.awaits == "human":
            return
        for run in given_up(self.silent, self._cancelled):
            if run.tool is not None and not is_survived(run, ended_well=False):
                self.recorder.note(
                    *("observation", None, run.tool, type(error).__name__, run.latency_ms),
                    *(run.place, run.step_call_id),
                )
                self._is_end_noted = True

    @shield
    def record_interrupt(self, questions: Iterable[object], run: "Span") -> None:
        """Note the questions to a human, once each: every enclosing run reports them."""
        for question in questions:
            number = str(getattr(question, "id", question))
            if number not in self._questions:
                self._questions[number] = None
                asked = getattr(question, "value", question)
                self.recorder.note(
                    "observation", output_summary=asked, place=run.place, call_id=number
                )

    @shield
    def pause(self, run: "Span") -> None:
        """Note that the thread waits for a human or its next turn, if it does."""
        notes = self.recorder.thread_notes
        if run.paused or run.paused_inside:
            notes.wait("human", questions=tuple(self._questions), owed=run.ledger.owed)
        elif self._is_turn:
            notes.wait("turn", questions=(), owed=run.ledger.owed)

    def succeed(self, output: object) -> None:
        """End with a result, or without one where the run was paused or its stream closed early."""
        self._conclude(output)
        if self.closed_early:
            self.recorder.unfinished = GeneratorExit.__name__
        self.recorder.finish(complete=not self.closed_early)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        failure = failure_of(error)
        if failure is Failure.GIVEN_UP and self._began_late and not self.recorder.log.count:
            return  # it was cancelled with what began it
        match failure:
            case Failure.ERROR:
                self.recorder.finish(error, complete=not self.closed_early)
            case Failure.GIVEN_UP if self.recorder.thread_notes.awaits != "human":
                self.recorder.finish(error, complete=False, is_noted=self._is_end_noted)
            case Failure.GIVEN_UP | Failure.PAUSED | Failure.HANDED_OVER | Failure.REFUSED:
                self.recorder.finish(complete=False)

    @shield
    def _conclude(self, output: object) -> None:
        answer = answer_of(output)
        if self._began_late and not self.recorder.objective:
            self.recorder.set_objective(last_human_text(messages_of(output)) or "")
        if answer.result is not None or self._answer:
            self.recorder.outcome(self._answer if answer.result is None else answer.result)
        self.recorder.extract_confidence(answer.structured, output)


def _late_notes(run: "Span", *, ended_well: bool) -> Iterator[LateNote]:
    """Yield the notes of a run that was given up: its partial text, and its recovery."""
    after, began = run.after or BEGINNING, time() - (run.latency_ms or 0.0) / 1000
    where = run.place, run.step_call_id, began
    said = "".join(map(text_of, run.parts or ()))
    if said and not run.internal:
        yield LateNote("thought", said, after, None, *where)
    if is_survived(run, ended_well=ended_well):
        yield LateNote("error_recovery", run.cancelled_by, after, run.tool, *where)
