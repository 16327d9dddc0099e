"""One root run: its objective and its outcome."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

from kp_langchain._langgraph import Resumption, failure_of, namespace_of, questions_in
from kp_langchain._messages import (
    answer_of,
    final_text,
    last_human_text,
    messages_of,
    objective_of,
    read,
    role_of,
)
from kp_middleware.recording import (
    Conversation,
    Failure,
    Recorder,
    RootSpan,
    Span,
    bounded_name,
    shield,
)

_conversation: Final = partial(Conversation, role_of, read)

Scope: TypeAlias = Literal["run", "thread"]
"""The extent of one trace: one root run, or all runs of a thread."""

_MAX_TAGS: Final = 32
_INTERNAL_TAGS: Final = ("seq:step", "graph:step", "map:key", "retry:attempt", "langsmith:")
_UNNAMED: Final = ("LangGraph", "Runnable")


class Root(RootSpan):
    """A root run being recorded; it may run ``within`` a graph, in another root's background."""

    def __init__(self, recorder: Recorder, *, owned: bool, scope: Scope) -> None:
        super().__init__(recorder, owned=owned, conversation=_conversation)
        self.within = ""
        self._is_turn = owned and scope == "thread"
        self._asked = not owned
        self._around: object = None
        self._goes_on = self._began_late = self._is_unnamed = False

    failure_of = staticmethod(failure_of)
    questions_in = staticmethod(questions_in)

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
        if (owner := metadata.get("kp_owner")) is not None:
            recorder.owner = str(owner)
        name = self.agent_name or name
        if isinstance(name, str) and not name.startswith(_UNNAMED):
            recorder.agent_name = bounded_name(name)
        recorder.tags = tuple(
            bounded_name(tag) for tag in tags[:_MAX_TAGS] if not tag.startswith(_INTERNAL_TAGS)
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
            self.recorder.agent_name = bounded_name(self.agent_name)

    def resume(self, resumption: Resumption, inputs: object, conversation: Conversation) -> None:
        """Note a human's decision, and the calls that may still need a result."""
        self._goes_on = True
        notes = self.recorder.thread_notes
        waited_here = notes.awaits is not None
        conversation.expect(notes.go_on(resumption.questions))
        conversation.follows = not waited_here
        notes.repeats_calls = notes.repeats_calls or not waited_here
        self.one_conversation = waited_here
        self.record_decision(resumption, inputs)

    def record_decision(self, resumption: Resumption, inputs: object) -> None:
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
    def rest(self, output: object, span: Span, inputs: object) -> None:
        """Note at the root's end what only that tells: results, what was given up, a pause."""
        if not self._asked:
            self.set_objective(inputs)
        if not span.conversation.is_settled:
            self.record_messages(span.conversation.results(messages_of(output)), span)
        if self.silent or self.cancelled:
            self.record_late(ended_well=True)
        self.pause(span)

    def pause(self, span: Span) -> None:
        """Note that the thread waits for a human or its next turn, if it does."""
        if span.paused or span.paused_inside:
            super().pause(span)
        elif self._is_turn:
            notes = self.recorder.thread_notes
            notes.wait("turn", questions=(), owed=span.conversation.owed)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        is_given_up = failure_of(error) is Failure.GIVEN_UP
        if not (is_given_up and self._began_late and not self.recorder.log.count):
            super().fail(error)  # else it was cancelled with what began it

    @shield
    def conclude(self, output: object, *_: object) -> None:
        """Set the result, and the confidence in it."""
        text = final_text(output)
        if text and not self._began_late and self.recorder.confidence_estimate.is_own_field_alone:
            self.recorder.outcome(text)  # nearly always
            return
        answer = answer_of(output)
        if self._began_late and not self.recorder.objective:
            self.recorder.set_objective(last_human_text(messages_of(output)) or "")
        result = self._answer or None if answer.result is None else answer.result
        if result is not None:
            self.recorder.outcome(result)
        self.recorder.extract_confidence(answer.structured, output)
