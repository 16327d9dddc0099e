"""Which run are we in? The one whose body is running here, by context and not by thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple, TypeAlias

from kp_middleware.forks import at_fork
from kp_middleware.recording._limits import Limits
from kp_middleware.recording._place import CURRENT_PLACE, PLACE_FINDERS, Place
from kp_middleware.recording._recorder import Recorder
from kp_middleware.recording._shield import shield


class Here(NamedTuple):
    """The run that we are in, and where in it; no place means the run's own agent."""

    recorder: Recorder
    place: Place | None = None


Finder: TypeAlias = Callable[[], Here | None]
"""Finds the run that we are in by a framework's own means, or None."""

_current: ContextVar[Recorder | None] = ContextVar("kp_middleware_recorder", default=None)
_finders: list[Finder] = []


def current_trace() -> Recorder:
    """The recorder of the run we are in; outside any run, one that ignores everything.

    >>> current_trace().thought("nobody listens, nothing breaks")
    """
    return current_recorder() or _nobody()


def current_recorder() -> Recorder | None:
    """The recorder of the run we are in, or None."""
    recorder = captured_recorder()
    if recorder is not None:
        return recorder
    found = _found()
    return None if found is None else found.recorder


def captured_recorder() -> Recorder | None:
    """The recorder of the captured function that we are in, or None; no framework is asked."""
    recorder = _current.get()
    return None if recorder is None or recorder.finished else recorder


def register_finder(finder: Finder) -> None:
    """Let an adapter say which of its runs we are in; asked where no captured function is."""
    _finders.append(shield(finder))


@contextmanager
def inside(recorder: Recorder | None, place: Place | None = None) -> Iterator[None]:
    """Make this the current run while the block runs, and only here."""
    token, place_token = _current.set(recorder), CURRENT_PLACE.set(place)
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator or coroutine may be closed from another context
            _current.reset(token)
            CURRENT_PLACE.reset(place_token)


def _found() -> Here | None:
    return next((found for finder in _finders if (found := finder()) is not None), None)


def _place_found() -> Place | None:
    found = _found()
    return None if found is None else found.place


@cache
def _nobody() -> Recorder:
    recorder = Recorder(lambda _: None, Limits(), framework="none")
    recorder.finish()  # what comes after the end of a run is dropped
    return recorder


def _be_nowhere() -> None:
    """In a forked child: the run that we were in is the parent's, and so are its notes."""
    _current.set(None)
    CURRENT_PLACE.set(None)


PLACE_FINDERS.append(_place_found)
at_fork(after_in_child=_be_nowhere)
