"""Root runs of LangChain and LangGraph: their objective, pauses, resumption and result."""

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.runnables.config import var_child_runnable_config

from kp_langchain._messages import (
    answer_of,
    final_text,
    last_human_text,
    messages_of,
    objective_of,
    read,
    role_of,
)
from kp_middleware.forks import at_fork
from kp_middleware.recording import (
    GIVEN_UP,
    Conversation,
    CurrentRun,
    Recorder,
    Recording,
    RootSpan,
    Span,
    SpanFailure,
    SpanTree,
    bounded_name,
    causes,
    register_finder,
    shield,
)

if TYPE_CHECKING:
    from kp_middleware import KnowledgePulse

_conversation: Final = partial(Conversation, role_of, read)

Scope: TypeAlias = Literal["run", "thread"]
"""The extent of one trace: one root run, or all runs of a thread."""

Resumption: TypeAlias = tuple[object | None, tuple[str, ...]]
"""A person's decision, or None to just continue, and the ids of the interrupts, if given."""

_NAMESPACE: Final = "langgraph_checkpoint_ns"
_INTERNAL_TAGS: Final = ("seq:step", "graph:step", "map:key", "retry:attempt", "langsmith:")
_INTERRUPT_ID: Final = re.compile("[0-9a-f]{32}").fullmatch  # an interrupt's id
_graph_handlers: Final[dict[type[BaseCallbackHandler], type[BaseCallbackHandler]]] = {}
_lock = threading.RLock()
_runs_by_pipeline: Final[WeakValueDictionary[int, SpanTree]] = WeakValueDictionary()


def default_pulse() -> "KnowledgePulse":
    from kp_middleware import KnowledgePulse

    return KnowledgePulse.default()


def runs_of(kp: Recording) -> SpanTree:
    """Return the live runs of a pipeline, shared by its handlers."""
    with _lock:
        return _runs_by_pipeline.setdefault(id(kp), SpanTree(kp))


def current_run_id() -> int | None:
    manager = (var_child_runnable_config.get() or {}).get("callbacks")
    run_id: UUID | None = getattr(manager, "parent_run_id", None)
    return None if run_id is None else run_id.int


def current_run() -> CurrentRun | None:
    """Return the recorder and place of the current LangChain run, or None."""
    run_id = current_run_id()
    for runs in () if run_id is None else [*_runs_by_pipeline.values()]:
        if (run := runs.get(run_id)) is not None:
            return CurrentRun(run.root.recorder, run.place_inside)
    return None


def _reset_after_fork() -> None:
    """Reset the lock in a forked child, and leave live runs to the parent."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()
    for runs in [*_runs_by_pipeline.values()]:
        runs.abandon_in_child()


register_finder(current_run)
at_fork(after_in_child=_reset_after_fork)


def watch_graphs(handler: BaseCallbackHandler) -> None:
    """Subscribe a handler to graph pauses, if LangGraph is loaded and reports them.

    LangGraph is never imported here, because that takes seconds.
    """
    own = type(handler)
    callbacks = sys.modules.get("langgraph.callbacks")  # since 1.1.8
    if callbacks is None or issubclass(own, callbacks.GraphCallbackHandler):
        return
    if own not in _graph_handlers:
        bases = (own, callbacks.GraphCallbackHandler)
        _graph_handlers[own] = type(own.__name__, bases, {"__module__": own.__module__})
    handler.__class__ = _graph_handlers[own]


def resumption_of(inputs: object, metadata: Mapping[str, object]) -> Resumption | None:
    """Return the resumption in an input, or None if it begins a new run.

    A graph resumes when its input is ``Command(resume=…)`` or None.
    """
    if inputs is None:  # with a checkpoint's id, it begins a run from there
        is_resumed = "thread_id" in metadata and "checkpoint_id" not in metadata
        return (None, ()) if is_resumed else None
    is_command = any(kind.__name__ == "Command" for kind in type(inputs).__mro__)  # langgraph's
    decision = getattr(inputs, "resume", None) if is_command else None
    if decision is None:
        return None
    answers = dict(decision) if isinstance(decision, Mapping) else {}
    if not answers or not all(map(_INTERRUPT_ID, map(str, answers))):
        return decision, ()
    only = next(iter(answers.values()))
    return (answers if len(answers) > 1 else only), tuple(answers)


def agent_inside(
    metadata: Mapping[str, object], own: object, tool: str | None, namespace: str = ""
) -> str | None:
    """Return the name of the nested agent that a run belongs to, or None for the root's ``own``.

    An unnamed agent is named after its enclosing ``tool``, a subgraph after its node;
    ``namespace`` is the root's.

    >>> agent_inside({"langgraph_checkpoint_ns": "billing:1f|model:2e"}, own=None, tool=None)
    'billing'
    """
    agent = metadata.get("lc_agent_name")
    if agent is not None and agent != own:
        return bounded_name(agent)
    if tool is not None:
        return bounded_name(tool)
    *inside, _ = str(metadata.get(_NAMESPACE) or "").removeprefix(f"{namespace}|").split("|")
    nodes = [node.partition(":")[0] for node in inside if not node.isdigit()]  # those count calls
    return bounded_name("/".join(nodes)) if nodes else None


def _refuses_an_answer(error: BaseException, errors: ModuleType) -> bool:
    unknown = getattr(errors, "UnknownInterruptError", ())  # since 1.2
    is_invalid = getattr(errors, "is_invalid_resume", None)
    return isinstance(error, unknown) or (
        is_invalid is not None and any(map(is_invalid, causes(error)))
    )


class RootRun(RootSpan):
    """A root run being recorded, maybe in a graph or in another root's background."""

    def __init__(self, recorder: Recorder, *, owned: bool, scope: Scope) -> None:
        super().__init__(recorder, owned=owned, conversation=_conversation)
        self.namespace = ""
        self.awaits_turn = owned and scope == "thread"
        self._has_objective = not owned
        self._is_resumed = False
        self.enclosing_agent: object = None  # if it ``began_late``, the agent that it ran in
        self.began_late = False
        self.is_unnamed = False  # until the first run inside it names its agent
        self.is_agent = False  # made by `create_agent`
        self.unanswered: str | None = None  # why, if the last model call gave no answer

    def failure_of(self, error: BaseException) -> SpanFailure:
        """Classify an exception; LangGraph's own are recognized once LangGraph is loaded."""
        errors = sys.modules.get("langgraph.errors")
        if isinstance(error, GIVEN_UP) or errors is None:
            return super().failure_of(error)
        if not isinstance(error, errors.GraphBubbleUp):
            return SpanFailure.REFUSED if _refuses_an_answer(error, errors) else SpanFailure.ERROR
        is_handoff = isinstance(error, errors.ParentCommand)
        return SpanFailure.HANDED_OVER if is_handoff else SpanFailure.PAUSED

    def questions_in(self, error: BaseException) -> Sequence[object]:
        """Return LangGraph's ``Interrupt``s from the exception that paused a run."""
        questions = error.args[0] if error.args else ()
        return questions if isinstance(questions, tuple | list) else ()

    @shield
    def set_metadata(
        self, name: object, metadata: Mapping[str, object], tags: Sequence[str]
    ) -> None:
        """Set the agent, thread, owner and tags of the root."""
        recorder = self.recorder
        self.agent_name = metadata.get("lc_agent_name")
        self.is_agent = metadata.get("ls_integration") == "langchain_create_agent"
        self.namespace = str(metadata.get(_NAMESPACE) or "")
        if "thread_id" in metadata:
            self.set_thread(metadata)
        if not self.owned:
            return
        if self.awaits_turn:
            recorder.thread_notes.resume()
        if (owner := metadata.get("kp_owner")) is not None:
            recorder.owner = str(owner)
        own_name = self.agent_name or name
        if isinstance(own_name, str) and not own_name.startswith(("LangGraph", "Runnable")):
            recorder.agent_name = bounded_name(own_name)
        recorder.tags = tuple(
            bounded_name(tag) for tag in tags[:32] if not tag.startswith(_INTERNAL_TAGS)
        )

    def set_thread(self, metadata: Mapping[str, object]) -> None:
        """Set the thread and the agent once known; a chain's come from the graph inside it."""
        recorder, thread_id = self.recorder, metadata.get("thread_id")
        if self.is_unnamed:
            self.is_unnamed = False
            self.namespace = str(metadata.get(_NAMESPACE) or "").rpartition("|")[0]
            self.agent_name = metadata.get("lc_agent_name")
            if self.agent_name is not None and self.agent_name != self.enclosing_agent:
                recorder.agent_name = bounded_name(self.agent_name)
        if recorder.thread_id is None and thread_id is not None:
            recorder.thread_id = str(thread_id)
            if (agent := metadata.get("lc_agent_name")) is not None:
                recorder.thread_notes.agent = str(agent)

    def resume(self, resumption: Resumption, inputs: object, conversation: Conversation) -> None:
        """Record a human's decision, and add the calls that are still pending."""
        self._is_resumed = True
        notes = self.recorder.thread_notes
        waited_here = notes.awaits is not None
        conversation.expect(notes.resume(resumption[1]))
        conversation.follows = not waited_here
        notes.repeats_calls = notes.repeats_calls or not waited_here
        self.one_conversation = waited_here
        self.record_decision(resumption, inputs)

    def record_decision(self, resumption: Resumption, inputs: object) -> None:
        """Record a human's decision once, although several runs receive the input."""
        notes = self.recorder.thread_notes
        if resumption[0] is not None and inputs is not notes.last_decision_input:
            notes.last_decision_input = inputs
            self.recorder.note("observation", resumption[0])

    @shield
    def set_objective(self, inputs: object) -> None:
        """Set the objective from the run's input; a stream reports its input at the end."""
        if not self._has_objective and (objective := objective_of(inputs)) is not None:
            self._has_objective = True
            self.recorder.set_objective(objective)

    @shield
    def guess_objective(self, messages: Sequence[object]) -> None:
        if not self._has_objective and not self.recorder.objective:
            self.recorder.set_objective(last_human_text(messages) or "")
            self.recorder.thread_notes.has_guessed_objective = self._is_resumed

    @shield
    def end_root(self, output: object, span: Span, inputs: object) -> None:
        """Record the remaining results, the spans given up and the pause at the root's end."""
        if not self._has_objective:
            self.set_objective(inputs)
        if not span.conversation.is_settled:
            self.record_messages(span.conversation.results(messages_of(output)), span)
        if self.unanswered is not None:
            *_, last = messages_of(output) or (None,)
            if isinstance(last, AIMessage) and not span.conversation.has_turn(last.id):
                self.recorder.unfinished = self.unanswered  # the program answered instead
        if self.unfinished_spans or self.cancelled:
            self.record_late(ended_well=True)
        self.pause(span)

    def fail(self, error: BaseException) -> None:
        is_given_up = isinstance(error, GIVEN_UP)
        if not (is_given_up and self.began_late and not self.recorder.log.count):
            super().fail(error)  # else it was cancelled with its parent

    @shield
    def conclude(self, output: object, *_: object) -> None:
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
