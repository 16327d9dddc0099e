"""The current run and the place in it, by context and not by thread."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from kp_middleware.forks import at_fork
from kp_middleware.recording._shield import shield

if TYPE_CHECKING:
    from kp_middleware.recording._recorder import Recorder

P = ParamSpec("P")
R = TypeVar("R")


class Place(NamedTuple):
    """The place of a step: its inner agent, or None for the run's own; the call id around it."""

    agent: str | None = None
    parent: str | None = None


class Here(NamedTuple):
    """The current run and the place in it; no place means the run's own agent."""

    recorder: "Recorder"
    place: Place | None = None


Finder: TypeAlias = Callable[[], Here | None]

_current: ContextVar["Recorder | None"] = ContextVar("kp_middleware_recorder", default=None)
_place: ContextVar[Place | None] = ContextVar("kp_middleware_place", default=None)
_finders: list[Finder] = []


def current_recorder() -> "Recorder | None":
    """Return the recorder of the current run, or None."""
    recorder = captured_recorder()
    if recorder is None and (found := _found()) is not None:
        return found.recorder
    return recorder


def captured_recorder() -> "Recorder | None":
    """Return the recorder of the current captured function, or None, without calling finders."""
    recorder = _current.get()
    return None if recorder is None or recorder.finished else recorder


def place_here() -> Place | None:
    """Return the place of the running code; None means the run's own agent."""
    place = _place.get()
    if place is None and _finders and (found := _found()) is not None:
        return found.place
    return place


def register_finder(finder: Finder) -> None:
    """Register an adapter's finder of the current run, used outside captured functions."""
    _finders.append(shield(finder))


class inside:  # noqa: N801 - a context manager, quicker than one by a generator
    """Make this the current run for the duration of the block, in this context only."""

    def __init__(self, recorder: "Recorder | None", place: Place | None = None) -> None:
        self._recorder, self._place = recorder, place

    def __enter__(self) -> None:
        self._tokens = _current.set(self._recorder), _place.set(self._place)

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):  # a generator or coroutine may be closed from another context
            _current.reset(self._tokens[0])
            _place.reset(self._tokens[1])


def _found() -> Here | None:
    return next((found for finder in _finders if (found := finder()) is not None), None)


def _be_nowhere() -> None:
    """Clear the current run in a forked child: the run and its notes are the parent's."""
    _current.set(None)
    _place.set(None)


at_fork(after_in_child=_be_nowhere)


def propagate_context(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it runs in the context of now, wherever it is called.

    Each call gets its own copy of the context, so that calls can run concurrently.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from contextvars import ContextVar
    >>> name = ContextVar("name", default="nobody")
    >>> token = name.set("somebody")
    >>> with ThreadPoolExecutor() as pool:
    ...     pool.submit(name.get).result(), pool.submit(propagate_context(name.get)).result()
    ('nobody', 'somebody')
    """
    context = copy_context()

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(function, *args, **kwargs)

    @wraps(function)
    async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
        body: Any = function(*args, **kwargs)
        return await asyncio.create_task(body, context=context.copy())

    called = inspect.getattr_static(type(function), "__call__", None)  # of a callable object
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    return cast(Callable[P, R], call_async) if is_async else call
