"""The live runs of every pipeline: its handlers share them, so that a run is one trace in each."""

import threading
from typing import TYPE_CHECKING, Final
from uuid import UUID
from weakref import WeakValueDictionary

from langchain_core.runnables.config import var_child_runnable_config

from kp_langchain._runs import Runs
from kp_middleware.forks import at_fork
from kp_middleware.recording import Here, register_finder

if TYPE_CHECKING:
    from kp_langchain._roots import Recording

_lock = threading.RLock()
_runs_by_pipeline: Final[WeakValueDictionary[int, Runs]] = WeakValueDictionary()


def runs_of(kp: "Recording") -> Runs:
    """The live runs that a pipeline records: the same as long as one of its handlers lives."""
    with _lock:
        return _runs_by_pipeline.setdefault(id(kp), Runs(kp))


def run_id_here() -> UUID | None:
    """Of the LangChain run whose code is running here, or None."""
    manager = (var_child_runnable_config.get() or {}).get("callbacks")
    return getattr(manager, "parent_run_id", None)


def run_here() -> Here | None:
    """Where we are in the LangChain run whose code is running here, or None."""
    run_id = run_id_here()
    if run_id is None:
        return None
    shared = (reference() for reference in _runs_by_pipeline.valuerefs())
    found = (runs.get(run_id) for runs in shared if runs is not None)
    run = next((run for run in found if run is not None), None)
    return None if run is None else Here(run.root.recorder, run.place_inside)


def _start_afresh() -> None:
    """In a forked child: what runs is the parent's, and a thread that it lost may hold locks."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()
    for runs in [*_runs_by_pipeline.values()]:
        runs.leave_to_the_parent()


register_finder(run_here)
at_fork(after_in_child=_start_afresh)
