"""The live runs and their traces: one registry for all handlers of a pipeline."""

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

from langchain_core.runnables.config import var_child_runnable_config

from kp_langchain._langgraph import agent_inside
from kp_langchain._root import Root, Scope
from kp_middleware.confidence import Confidences
from kp_middleware.forks import at_fork
from kp_middleware.recording import (
    ConfidenceEstimate,
    Here,
    Recording,
    RootSpan,
    Span,
    SpanId,
    SpanTree,
    bounded_name,
    captured_recorder,
    extractors_of,
    place_here,
    register_finder,
    shield,
)

EventKwargs: TypeAlias = Mapping[str, Any]
"""A callback's keyword arguments except ``run_id``: ``parent_run_id``, ``name``, ``tags``, …"""

_lock = threading.RLock()
_runs_by_pipeline: Final[WeakValueDictionary[int, SpanTree]] = WeakValueDictionary()


def runs_of(kp: Recording) -> SpanTree:
    """Return the live runs of a pipeline, shared by its handlers."""
    with _lock:
        return _runs_by_pipeline.setdefault(id(kp), SpanTree(kp))


def parent_of(about: EventKwargs) -> int | None:
    """Return the id of the parent run, or None."""
    parent_id: UUID | None = about.get("parent_run_id")
    return None if parent_id is None else parent_id.int


def run_id_here() -> int | None:
    """Return the id of the LangChain run whose code is running here, or None."""
    manager = (var_child_runnable_config.get() or {}).get("callbacks")
    run_id: UUID | None = getattr(manager, "parent_run_id", None)
    return None if run_id is None else run_id.int


def run_here() -> Here | None:
    """Return the recorder and place of the LangChain run whose code is running here, or None."""
    run_id = run_id_here()
    if run_id is None:
        return None
    shared = (reference() for reference in _runs_by_pipeline.valuerefs())
    found = (runs.get(run_id) for runs in shared if runs is not None)
    run = next((run for run in found if run is not None), None)
    return None if run is None else Here(run.root.recorder, run.place_inside)


def _start_afresh() -> None:
    """Reset the locks in a forked child, and leave live runs to the parent."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()
    for runs in [*_runs_by_pipeline.values()]:
        runs.leave_to_the_parent()


register_finder(run_here)
at_fork(after_in_child=_start_afresh)


logger: Final = logging.getLogger("kp_middleware")


class Roots:
    """A factory of runs: in the trace of an enclosing run, or as the root of a new one."""

    def __init__(
        self, kp: Recording, *, domain: str | None, confidence: Confidences, scope: Scope
    ) -> None:
        self._runs = runs_of(kp)
        self._kp = kp
        self._domain = domain
        self._extractors = extractors_of(confidence)
        self._scope = scope
        self._has_warned = False
        self.last_trace_id: str | None = None

    def begin(self, run_id: int, about: EventKwargs, *, is_model: bool = False) -> Span | None:
        """Begin a model, a tool or a retriever; return None if its parent is unknown."""
        parent: UUID | None = about.get("parent_run_id")
        parent_id = None if parent is None else parent.int
        run = self._runs.join(run_id, parent_id)
        if run is None:
            run = self._begin_alone(run_id, parent_id, about)
            if run is None:
                return None
        root = run.root
        recorder = root.recorder
        run.after = recorder.last_step
        metadata = about.get("metadata")
        if run.parent is not None:
            run.tells, run.agent = True, run.around
            if metadata:
                if recorder.thread_id is None and run.around is None:
                    root.set_thread(metadata)
                run.agent = agent_inside(metadata, root.agent_name, run.around, root.within)
        if is_model:
            run.started_s = recorder.clock()
            if metadata:
                _name_model(run, metadata)
        return run

    @shield
    def go_on(self, over: RootSpan) -> None:
        """Make runs that outlive their root, in the background, roots of their own."""
        roots: dict[SpanId, Root] = {}
        for key, run in self._runs.outliving(over):
            recorder = self._kp.start_recording(over.recorder.framework)
            if recorder is None:
                continue
            root = roots[key] = Root(recorder, owned=True, scope="run")
            recorder.domain = self._domain
            recorder.confidence_estimate = ConfidenceEstimate(self._extractors)
            root.begin_late(run.around, over.agent_name)
        self._runs.move(over, roots)
        for root in roots.values():
            for run in self._runs.inside(root):
                if run.step_call_id is not None:
                    told = root.recorder.repeat_call(run.step_call_id, over.recorder)
                    run.after = told or run.after

    def open(self, run_id: int, parent_id: int | None, about: EventKwargs) -> Span | None:
        """Begin a run without a recorded parent as a root, unless it is known or ignored."""
        if not self._runs.is_new(run_id, parent_id):
            return None
        metadata = about.get("metadata") or {}
        outer = captured_recorder()
        if outer is None and (around := self._runs.get(run_id_here())) is not None:
            outer = around.root.recorder  # in a fallback, LangChain does not name the run around it
        # LangGraph before 1.1.5 is known by its default name alone
        is_graph = metadata.get("ls_integration", about.get("name")) in {"langgraph", "LangGraph"}
        recorder = outer or self._kp.start_recording("langgraph" if is_graph else "langchain")
        if recorder is None:
            self._runs.ignore(run_id)
            return None
        self.last_trace_id = recorder.trace_id
        root = Root(recorder, owned=outer is None, scope=self._scope)
        root.place = None if outer is None else place_here()
        if root.owned:
            recorder.domain = self._domain
            recorder.confidence_estimate = ConfidenceEstimate(self._extractors)
        root.introduce(about.get("name"), metadata, about.get("tags") or ())
        return self._runs.open(run_id, root)

    def _begin_alone(self, run_id: int, parent_id: int | None, about: EventKwargs) -> Span | None:
        if (
            parent_id is None
            or parent_id != run_id_here()  # LangSmith's own run is between
            or self._runs.is_over(parent_id)
        ):
            return self.open(run_id, parent_id, about)
        if self._runs.is_new(run_id, parent_id) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a model or tool is not recorded, because the run around it is unknown; give the "
                'handler to the outermost call: config={"callbacks": [handler]}'
            )
        return None


def _name_model(run: Span, metadata: Mapping[str, object]) -> None:
    recorder = run.root.recorder
    if (source := metadata.get("lc_source")) is not None:  # a middleware's own, not the agent's
        run.internal, run.agent = True, bounded_name(source)
    if (name := metadata.get("ls_model_name")) is not None:
        run.model = str(name)
        if recorder.model is None and not run.internal:
            recorder.model = bounded_name(name)
