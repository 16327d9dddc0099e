"""Which run are we in? The one whose body is running here, by context and not by thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kp_middleware.forks import at_fork
from kp_middleware.recording._limits import Limits
from kp_middleware.recording._shield import shield
from kp_middleware.recording._step_log import Place

if TYPE_CHECKING:
    from kp_middleware.recording._recorder import Recorder


class Here(NamedTuple):
    """The run that we are in, and where in it; no place means the run's own agent."""

    recorder: "Recorder"
    place: Place | None = None


Finder: TypeAlias = Callable[[], Here | None]
"""Finds the run that we are in by a framework's own means, or None."""

_current: ContextVar[Here | None] = ContextVar("kp_middleware_here", default=None)
_finders: list[Finder] = []


def current_trace() -> "Recorder":
    """The recorder of the run we are in; outside any run, one that ignores everything.

    >>> current_trace().thought("nobody listens, nothing breaks")
    """
    return current_recorder() or _nobody()


def current_recorder() -> "Recorder | None":
    """The recorder of the run we are in, or None."""
    recorder = captured_recorder()
    if recorder is not None:
        return recorder
    found = _found()
    return None if found is None else found.recorder


def place_here() -> Place | None:
    """Where in its run the code is that runs here."""
    here = _current.get()
    if here is None or here.place is None or here.recorder.finished:
        here = _found() or here
    return None if here is None else here.place


def captured_recorder() -> "Recorder | None":
    """The recorder of the captured function that we are in, or None; no framework is asked."""
    here = _current.get()
    return None if here is None or here.recorder.finished else here.recorder


def register_finder(finder: Finder) -> None:
    """Let an adapter say which of its runs we are in; asked where no captured function is."""
    _finders.append(shield(finder))


@contextmanager
def inside(recorder: "Recorder | None", place: Place | None = None) -> Iterator[None]:
    """Make this the current run while the block runs, and only here."""
    token = _current.set(None if recorder is None else Here(recorder, place))
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator or coroutine may be closed from another context
            _current.reset(token)


def _found() -> Here | None:
    return next((found for finder in _finders if (found := finder()) is not None), None)


@cache
def _nobody() -> "Recorder":
    from kp_middleware.recording._recorder import Recorder  # which asks where it is

    recorder = Recorder(lambda _: None, Limits(), framework="none")
    recorder.finish()  # what comes after the end of a run is dropped
    return recorder


def _be_nowhere() -> None:
    """In a forked child: the run that we were in is the parent's, and so are its notes."""
    _current.set(None)


at_fork(after_in_child=_be_nowhere)
