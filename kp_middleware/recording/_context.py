"""The shield between recording's errors and the agent, and the current run of a context."""

import asyncio
import inspect
import logging
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from kp_middleware.forks import at_fork

if TYPE_CHECKING:
    from kp_middleware.recording._recorder import Recorder

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("kp_middleware")


class Shield:
    """A decorator that swallows and counts failures of recording, and logs the first of a kind."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self.logged: set[str] = set()
        self._renew_lock()
        at_fork(after_in_child=self._renew_lock)  # a thread that the child lost may hold it

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Wrap a function so that it returns None instead of raising an `Exception`."""
        name = getattr(function, "__qualname__", type(function).__qualname__)

        @wraps(function)
        def shielded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - recording must never break the agent
                self.swallow(name, error)
                return None

        return shielded

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()  # a finalizer may reenter in the same thread

    def count(self, kind: str) -> bool:
        """Count a failure, and return True if it is the first of its kind."""
        with self._lock:
            self.failures[kind] += 1
            return self.failures[kind] == 1

    def log_once(self, level: int, message: str) -> None:
        if message not in self.logged:
            self.logged.add(message)
            logger.log(level, "%s", message)

    def swallow(
        self, kind: str, error: BaseException, effect: str = "a step was not recorded"
    ) -> None:
        """Count a failure of recording, and log the first of its kind."""
        kind = f"{kind}: {type(error).__name__}"
        if self.count(kind):
            message = "%s (%s); further cases are counted, not logged"
            logger.warning(message, effect, kind, exc_info=error)


shield = Shield()


class Place(NamedTuple):
    """The place of a step: its inner agent, if any, and the id of the tool call around it."""

    agent: str | None = None
    parent: str | None = None


class CurrentRun(NamedTuple):
    """The current run and the place in it; no place means the run's own agent."""

    recorder: "Recorder"
    place: Place | None = None


Finder: TypeAlias = Callable[[], CurrentRun | None]

_current: ContextVar[CurrentRun | None] = ContextVar("kp_middleware_current_run", default=None)
_finders: list[Finder] = []


def current_recorder() -> "Recorder | None":
    """Return the recorder of the current run, or None."""
    recorder = captured_recorder()
    if recorder is None and (run := _find_run()) is not None:
        return run.recorder
    return recorder


def captured_recorder() -> "Recorder | None":
    """Return the recorder of the current captured function, or None, without calling finders."""
    current = _current.get()
    return None if current is None or current.recorder.finished else current.recorder


def current_place() -> Place | None:
    """Return the place of the current code; None means the run's own agent."""
    current = _current.get()
    if (current is None or current.place is None) and _finders:
        current = _find_run()
    return None if current is None else current.place


def register_finder(finder: Finder) -> None:
    """Register an adapter's finder of the current run, used outside captured functions."""
    _finders.append(shield(finder))


class inside:  # noqa: N801 - a context manager, quicker than one by a generator
    """Make this the current run for the duration of the block, in this context only."""

    def __init__(self, recorder: "Recorder | None", place: Place | None = None) -> None:
        self._current = None if recorder is None else CurrentRun(recorder, place)

    def __enter__(self) -> None:
        self._token = _current.set(self._current)

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):  # a generator or coroutine may be closed in another context
            _current.reset(self._token)


def _find_run() -> CurrentRun | None:
    return next((run for finder in _finders if (run := finder()) is not None), None)


at_fork(after_in_child=lambda: _current.set(None))  # the run belongs to the parent


def is_kind(check: Callable[[object], bool], function: object) -> bool:
    """Apply one of inspect's checks to a function, or to the `__call__` of an object."""
    return check(function) or check(inspect.getattr_static(type(function), "__call__", None))


def propagate_context(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function to run in the current context, wherever it is called.

    Each call gets its own copy of the context, so calls can run concurrently.

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

    is_async = is_kind(inspect.iscoroutinefunction, function)
    return cast(Callable[P, R], call_async) if is_async else call
