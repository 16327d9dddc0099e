"""The removal of traces that are too old."""

import time
from collections.abc import Callable
from typing import Final

from kp_middleware.instants import instant
from kp_middleware.storage._store import Store

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0


class Retention:
    """Removes traces that are too old, once an hour.

    A clock that jumps forward while we run makes nothing older than a day more than it is.
    """

    def __init__(
        self,
        store: Store,
        days: float | None,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._days = days
        self._clock = clock
        self._steady = steady
        self._begun_s, self._began_at = steady(), clock()
        self._next_s = self._begun_s

    def remove_some(self) -> bool:
        """Remove a few, in one short transaction; False if there is nothing to remove now."""
        if self._days is None or self._steady() < self._next_s:
            return False
        if self._store.prune(instant(max(0.0, self._now() - self._days * _DAY_S))):
            return True
        self._next_s = self._steady() + _HOUR_S
        return False

    def _now(self) -> float:
        latest = self._began_at + (self._steady() - self._begun_s) + _DAY_S
        return min(self._clock(), latest)
