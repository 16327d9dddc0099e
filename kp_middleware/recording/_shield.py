"""The shield, the one place that keeps failures of recording from the agent."""

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
    """A decorator that swallows and counts failures of recording, and logs the first of a kind."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self.told: set[str] = set()
        self._renew_lock()
        at_fork(after_in_child=self._renew_lock)  # a thread that the child lost may hold it

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """Wrap a function so that it returns None instead of raising an `Exception`."""
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
        self._lock = threading.RLock()  # a finalizer may reenter in the same thread

    def count(self, kind: str) -> bool:
        """Count a failure, and return whether it is the first of its kind."""
        with self._lock:
            self.failures[kind] += 1
            return self.failures[kind] == 1

    def tell(self, level: int, words: str) -> None:
        """Log what this process has not been told yet."""
        if words not in self.told:
            self.told.add(words)
            logger.log(level, "%s", words)

    def swallow(self, what: str, error: Exception, told: str = "a step was not recorded") -> None:
        """Count a failure of recording, and log the first of its kind."""
        kind = f"{what}: {type(error).__name__}"
        if self.count(kind):
            words = "%s (%s); more of this kind are counted, not logged"
            logger.warning(words, told, kind, exc_info=error)


shield = Shield()
