"""The current run: the one whose body is running, by context and not by thread."""

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
    """The current run and the place in it; no place means the run's own agent."""

    recorder: Recorder
    place: Place | None = None


Finder: TypeAlias = Callable[[], Here | None]
"""A function that returns the current run by a framework's own means, or None."""

_current: ContextVar[Recorder | None] = ContextVar("kp_middleware_recorder", default=None)
_finders: list[Finder] = []


def current_trace() -> Recorder:
    """Return the recorder of the current run; outside any run, one that ignores everything.

    >>> current_trace().thought("nobody listens, nothing breaks")
    """
    return current_recorder() or _nobody()


def current_recorder() -> Recorder | None:
    """Return the recorder of the current run, or None."""
    recorder = captured_recorder()
    if recorder is not None:
        return recorder
    found = _found()
    return None if found is None else found.recorder


def captured_recorder() -> Recorder | None:
    """Return the recorder of the current captured function, or None, without calling finders."""
    recorder = _current.get()
    return None if recorder is None or recorder.finished else recorder


def register_finder(finder: Finder) -> None:
    """Register an adapter's finder of the current run, used outside captured functions."""
    _finders.append(shield(finder))


@contextmanager
def inside(recorder: Recorder | None, place: Place | None = None) -> Iterator[None]:
    """Make this the current run for the duration of the block, in this context only."""
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
    recorder.finish()  # a finished recorder drops every note
    return recorder


def _be_nowhere() -> None:
    """Clear the current run in a forked child: the run and its notes are the parent's."""
    _current.set(None)
    CURRENT_PLACE.set(None)


PLACE_FINDERS.append(_place_found)
at_fork(after_in_child=_be_nowhere)
