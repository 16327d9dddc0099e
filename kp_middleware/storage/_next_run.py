"""The next work on the runs of a store: the order of scoring, and removal by age."""

import math
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kp_middleware.instants import instant
from kp_middleware.storage._store import Store

if TYPE_CHECKING:
    from kp_middleware.runs import RecordedRun

_luck: Final = random.Random().random  # noqa: S311 - no secret; a program may have seeded the shared one
_MOMENT_S: Final = 1.0
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_MOST_OF_OURS: Final = 10_000  # beyond, the file still knows of them
_MOST_REMEMBERED: Final = 16  # documents in memory at once: 20 KB each, 1 MiB at most


class NextRun:
    """Ours first, in their order; then those that others have left.

    What another process has recorded it is about to score itself, and a run that two embed is work
    in vain. So we come to its runs only when they have waited for a moment under our eyes; where
    we meet another process all the same, we go on at another place. What waits when we begin may
    be a dead process's: that we do at once.
    """

    def __init__(
        self,
        store: Store,
        *,
        luck: Callable[[], float] = _luck,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._luck = luck
        self._steady = steady
        self._ours: dict[int, RecordedRun | None] = {}
        self._looked_s = -math.inf
        self._seen_until = self._left_until = 0
        self._from = 0

    def add(self, written: Mapping[int, "RecordedRun | None"]) -> None:
        """Add runs that this process has just written; some are remembered, not to be read."""
        for seq, run in written.items():
            self._ours.pop(seq, None)
            self._ours[seq] = run if len(self._ours) < _MOST_REMEMBERED else None
            if len(self._ours) > _MOST_OF_OURS:
                del self._ours[next(iter(self._ours))]

    def ours(self) -> int | None:
        """Return the next run of this process that waits, or None."""
        while self._ours:
            seq, run = next(iter(self._ours.items()))
            if run is not None or self._store.is_recorded(seq):
                return seq
            del self._ours[seq]
        return None

    def remembered(self, seq: int) -> "RecordedRun | None":
        """Return a run as it was written, if it waits since."""
        return self._ours.get(seq)

    def done(self, seq: int) -> None:
        self._ours.pop(seq, None)

    def oldest(self, *, at_once: bool = False) -> int | None:
        """Return the next run that waits, or None; ``at_once`` includes others' newest."""
        now_s = self._steady()
        if at_once or now_s >= self._looked_s + _MOMENT_S:
            newest, is_first = self._store.last_recorded() or 0, self._looked_s == -math.inf
            self._left_until = newest if is_first or at_once else self._seen_until
            self._seen_until, self._looked_s = newest, now_s
        seq = self.ours()
        if seq is None:
            seq = self._store.next_recorded(self._from, self._left_until)
        if seq is None and self._from:
            self._from = 0
            seq = self._store.next_recorded(0, self._left_until)
        return seq

    def go_elsewhere(self) -> None:
        """Continue at a random place: another process has scored this run first."""
        first = self._store.next_recorded(0, self._left_until)
        if first is not None:
            self._from = first + int(self._luck() * (self._left_until - first))

    def in_s(self) -> float:
        """Return the seconds until there may be a run to score; infinity if none waits."""
        if self._store.last_recorded() is None:
            return math.inf
        return max(0.0, self._looked_s + _MOMENT_S - self._steady())


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
        latest = self._began_at + (self._steady() - self._begun_s) + _DAY_S
        oldest = min(self._clock(), latest) - self._days * _DAY_S
        if self._store.prune(instant(max(0.0, oldest))):
            return True
        self._next_s = self._steady() + _HOUR_S
        return False
