"""The root runs of LangChain and LangGraph: where each begins, what it was asked, how it ended."""

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

from langchain_core.runnables.config import var_child_runnable_config

from kp_langchain._langgraph import (
    Resumption,
    agent_inside,
    failure_of,
    namespace_of,
    questions_in,
)
from kp_langchain._messages import (
    answer_of,
    final_text,
    last_human_text,
    messages_of,
    objective_of,
    read,
    role_of,
)
from kp_middleware.confidence import Confidences
from kp_middleware.forks import at_fork
from kp_middleware.recording import (
    Conversation,
    Failure,
    Here,
    Recorder,
    Recording,
    RootSpan,
    Span,
    SpanTree,
    bounded_name,
    captured_recorder,
    place_here,
    recordings,
    register_finder,
    shield,
)

if TYPE_CHECKING:
    from kp_middleware import KnowledgePulse

logger: Final = logging.getLogger("kp_middleware")
_conversation: Final = partial(Conversation, role_of, read)

Scope: TypeAlias = Literal["run", "thread"]
"""The extent of one trace: one root run, or all runs of a thread."""

_MAX_TAGS: Final = 32
_INTERNAL_TAGS: Final = ("seq:step", "graph:step", "map:key", "retry:attempt", "langsmith:")
_UNNAMED: Final = ("LangGraph", "Runnable")


class Root(RootSpan):
    """A root run being recorded; it may run ``within`` a graph, in another root's background.

    Attributes:
        around: Of a run that ``began_late``, the agent that it ran in.
        is_unnamed: True until the first run inside it names its agent.
    """

    def __init__(self, recorder: Recorder, *, owned: bool, scope: Scope) -> None:
        super().__init__(recorder, owned=owned, conversation=_conversation)
        self.within = ""
        self.awaits_turn = owned and scope == "thread"
        self._asked = not owned
        self._goes_on = False
        self._decided: object = None  # the input that holds the decision noted last
        self.around: object = None
        self.began_late = self.is_unnamed = False

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
        if self.awaits_turn:
            recorder.thread_notes.go_on()
        if (owner := metadata.get("kp_owner")) is not None:
            recorder.owner = str(owner)
        own_name = self.agent_name or name
        if isinstance(own_name, str) and not own_name.startswith(_UNNAMED):
            recorder.agent_name = bounded_name(own_name)
        recorder.tags = tuple(
            bounded_name(tag) for tag in tags[:_MAX_TAGS] if not tag.startswith(_INTERNAL_TAGS)
        )

    def set_thread(self, metadata: Mapping[str, object]) -> None:
        """Note the thread and the agent once known; a chain's come from the graph inside it."""
        recorder, thread_id = self.recorder, metadata.get("thread_id")
        if self.is_unnamed:
            self.is_unnamed = False
            self.within = namespace_of(metadata).rpartition("|")[0]
            self.agent_name = metadata.get("lc_agent_name")
            if self.agent_name is not None and self.agent_name != self.around:
                recorder.agent_name = bounded_name(self.agent_name)
        if recorder.thread_id is None and thread_id is not None:
            recorder.thread_id = str(thread_id)
            if (agent := metadata.get("lc_agent_name")) is not None:
                recorder.thread_notes.agent = str(agent)

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
        if resumption.decision is not None and inputs is not self._decided:
            self._decided = inputs
            self.recorder.note("observation", resumption.decision)

    @shield
    def set_objective(self, inputs: object) -> None:
        """Note the objective from the run's input; a stream reports that only at its end."""
        if not self._asked and (objective := objective_of(inputs)) is not None:
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
        self.set_objective(inputs)
        if not span.conversation.is_settled:
            self.record_messages(span.conversation.results(messages_of(output)), span)
        if self.silent or self.cancelled:
            self.record_late(ended_well=True)
        self.pause(span)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        is_given_up = failure_of(error) is Failure.GIVEN_UP
        if not (is_given_up and self.began_late and not self.recorder.log.count):
            super().fail(error)  # else it was cancelled with what began it

    @shield
    def conclude(self, output: object, *_: object) -> None:
        """Set the result, and the confidence in it."""
        text = final_text(output)
        if text and not self.began_late and self.recorder.extractors.is_own_field_alone:
            self.recorder.outcome(text)  # nearly always
            return
        answer, structured = answer_of(output)
        if self.began_late and not self.recorder.objective:
            self.recorder.set_objective(last_human_text(messages_of(output)) or "")
        result = self._answer or None if answer is None else answer
        if result is not None:
            self.recorder.outcome(result)
        self.recorder.extract_confidence(structured, output)


Origin: TypeAlias = tuple[int | None, Mapping[str, Any], object, Sequence[str]]
"""The parent's id, metadata, name and tags of a run that begins."""

_lock = threading.RLock()
_runs_by_pipeline: Final[WeakValueDictionary[int, SpanTree]] = WeakValueDictionary()


def default_pulse() -> "KnowledgePulse":
    """Return the pipeline of this process."""
    from kp_middleware import KnowledgePulse

    return KnowledgePulse.default()


def runs_of(kp: Recording) -> SpanTree:
    """Return the live runs of a pipeline, shared by its handlers."""
    with _lock:
        return _runs_by_pipeline.setdefault(id(kp), SpanTree(kp))


def run_id_here() -> int | None:
    """Return the id of the LangChain run whose code is running here, or None."""
    manager = (var_child_runnable_config.get() or {}).get("callbacks")
    run_id: UUID | None = getattr(manager, "parent_run_id", None)
    return None if run_id is None else run_id.int


def run_here() -> Here | None:
    """Return the recorder and place of the LangChain run whose code is running here, or None."""
    run_id = run_id_here()
    for runs in () if run_id is None else [*_runs_by_pipeline.values()]:
        if (run := runs.get(run_id)) is not None:
            return Here(run.root.recorder, run.place_inside)
    return None


def _start_afresh() -> None:
    """Reset the locks in a forked child, and leave live runs to the parent."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()
    for runs in [*_runs_by_pipeline.values()]:
        runs.leave_to_the_parent()


register_finder(run_here)
at_fork(after_in_child=_start_afresh)


class Roots:
    """A factory of runs: in the trace of an enclosing run, or as the root of a new one."""

    def __init__(
        self, kp: Recording, *, domain: str | None, confidence: Confidences, scope: Scope
    ) -> None:
        self._runs = runs_of(kp)
        self._record = recordings(kp, domain=domain, confidence=confidence)
        self._scope = scope
        self._has_warned = False
        self.last_trace_id: str | None = None

    def begin(self, run_id: int, origin: Origin, *, is_model: bool = False) -> Span | None:
        """Begin a model, a tool or a retriever; return None if its parent is unknown."""
        run = self._runs.join(run_id, origin[0]) or self._begin_alone(run_id, origin)
        if run is None:
            return None
        root, metadata = run.root, origin[1]
        recorder = root.recorder
        run.after = recorder.last_step
        if run.parent is not None:
            run.tells, agent = True, run.around
            if metadata:
                if recorder.thread_id is None and run.around is None:
                    root.set_thread(metadata)
                agent = agent_inside(metadata, root.agent_name, run.around, root.within)
            if agent is not None:
                run.enter(agent)
        if is_model:
            run.started_s = recorder.clock()
            if metadata:
                _name_model(run, metadata)
        return run

    def open(self, run_id: int, origin: Origin) -> Span | None:
        """Begin a run without a recorded parent as a root, unless it is known or ignored."""
        parent_id, metadata, name, tags = origin
        if not self._runs.is_new(run_id, parent_id):
            return None
        outer = captured_recorder()
        if outer is None and (around := self._runs.get(run_id_here())) is not None:
            outer = around.root.recorder  # in a fallback, LangChain does not name the run around it
        # LangGraph before 1.1.5 is known by its default name alone
        is_graph = metadata.get("ls_integration", name) in {"langgraph", "LangGraph"}
        recorder = outer or self._record("langgraph" if is_graph else "langchain")
        if recorder is None:
            self._runs.ignore(run_id)
            return None
        self.last_trace_id = recorder.trace_id
        root = Root(recorder, owned=outer is None, scope=self._scope)
        root.successor = self._successor
        root.place = None if outer is None else place_here()
        root.introduce(name, metadata, tags)
        return self._runs.open(run_id, root)

    def _successor(self, over: RootSpan, run: Span) -> Root | None:
        recorder = self._record(over.recorder.framework)
        if recorder is None:
            return None
        recorder.agent_name = run.around
        root = Root(recorder, owned=True, scope="run")
        root.successor, root.around = self._successor, over.agent_name
        root.began_late = root.is_unnamed = True
        return root

    def _begin_alone(self, run_id: int, origin: Origin) -> Span | None:
        parent_id = origin[0]
        if (
            parent_id is None
            or parent_id != run_id_here()  # LangSmith's own run is between
            or self._runs.is_over(parent_id)
        ):
            return self.open(run_id, origin)
        if self._runs.is_new(run_id, parent_id) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a model or tool is not recorded, because the run around it is unknown; give the "
                'handler to the outermost call: config={"callbacks": [handler]}'
            )
        return None


def _name_model(run: Span, metadata: Mapping[str, object]) -> None:
    recorder = run.root.recorder
    if (source := metadata.get("lc_source")) is not None:  # a middleware's, not the agent's
        run.internal = True
        run.enter(bounded_name(source))
    if (name := metadata.get("ls_model_name")) is not None:
        run.model = str(name)
        if recorder.model is None and not run.internal:
            recorder.model = bounded_name(name)
