"""The one place where our own failures are kept from the agent."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from kp_middleware.forks import at_fork

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("kp_middleware")


class Shield:
    """Swallows failures of recording: counted by kind, each kind logged once."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._renew_lock()
        at_fork(after_in_child=self._renew_lock)  # or a lost thread may hold it

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Wrap a function so that it returns None where it would have raised."""
        name = getattr(function, "__qualname__", type(function).__qualname__)

        @wraps(function)
        def shielded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the agent never pays for being watched
                self.swallow(name, error)
                return None

        return shielded

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()  # a finalizer may come back here in the same thread

    def count(self, kind: str) -> bool:
        """Count a failure; whether it is the first of its kind."""
        with self._lock:
            self.failures[kind] += 1
            return self.failures[kind] == 1

    def swallow(self, what: str, error: Exception) -> None:
        """Count a failure of ours, and log the first of its kind."""
        kind = f"{what}: {type(error).__name__}"
        if self.count(kind):
            logger.warning(
                "a step was not recorded (%s); more of this kind are counted, not logged",
                kind,
                exc_info=error,
            )


shield = Shield()
"""Of this process: the decorator, the recorder and every adapter use it."""
