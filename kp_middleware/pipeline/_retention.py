"""Retention: remove old traces, a few at a time, while there is nothing else to do."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from kp_middleware.database import Connection
from kp_middleware.instants import instant
from kp_middleware.storage import Pruning

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0


class Retention:
    """Removes traces that are too old, once an hour.

    A clock that jumps forward while we run makes nothing older than a day more than it is.

    Args:
        connection: Of the file.
        days: How old a trace becomes; None means any age.
        clock: Epoch seconds; may be set while we run.
        steady: Seconds, of a clock that nobody sets.
    """

    def __init__(
        self,
        connection: Connection,
        days: float | None,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pruning = Pruning(connection)
        self._days = days
        self._clock = clock
        self._steady = steady
        self._begun_s, self._began_at = steady(), clock()
        self._next_s = self._begun_s
        self._batches: Iterator[int] = iter(())

    def remove_some(self) -> bool:
        """Remove a few, in one short transaction; False if there is nothing to remove now."""
        if self._days is None or self._steady() < self._next_s:
            return False
        if next(self._batches, None) is not None:
            return True
        before = instant(max(0.0, self._now() - self._days * _DAY_S))
        self._batches = self._pruning.batches(self._pruning.doomed(before=before))
        if next(self._batches, None) is not None:
            return True
        self._next_s = self._steady() + _HOUR_S
        return False

    def _now(self) -> float:
        latest = self._began_at + (self._steady() - self._begun_s) + _DAY_S
        return min(self._clock(), latest)
