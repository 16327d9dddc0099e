"""The choice of the run to score next."""

import math
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from kp_middleware.storage import TraceStore

_luck: Final = random.Random().random  # noqa: S311 - no secret; a program may have seeded the shared one
_MOMENT_S: Final = 1.0
_MOST_OF_OURS: Final = 10_000  # beyond, the file still knows of them


class NextRun:
    """Ours first, in their order; then those that others have left.

    What another process has recorded it is about to score itself, and a run that two embed is work
    in vain. So we come to its runs only when they have waited for a moment under our eyes; where
    we meet another process all the same, we go on at another place. What waits when we begin may
    be a dead process's: that we do at once.

    Args:
        store: Of the file.
        luck: From 0 to 1, the other place.
        steady: Seconds, of a clock that nobody sets.
    """

    def __init__(
        self,
        store: TraceStore,
        *,
        luck: Callable[[], float] = _luck,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._luck = luck
        self._steady = steady
        self._ours: deque[int] = deque(maxlen=_MOST_OF_OURS)
        self._looked_s = -math.inf
        self._seen_until = self._left_until = 0
        self._from = 0

    def add(self, seq: int) -> None:
        """Add a run that this process has just written."""
        self._ours.append(seq)

    def newest_of_ours(self) -> int | None:
        """Return the newest run of this process that waits, or None."""
        while self._ours and not self._store.is_recorded(self._ours[-1]):
            self._ours.pop()
        return self._ours[-1] if self._ours else None

    def oldest(self, *, at_once: bool = False) -> int | None:
        """Return the next run that waits, or None; ``at_once`` includes others' newest."""
        self._look(at_once=at_once)
        while self._ours and not self._store.is_recorded(self._ours[0]):
            self._ours.popleft()
        return self._ours[0] if self._ours else self._of_others()

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

    def _look(self, *, at_once: bool) -> None:
        now_s = self._steady()
        is_first = self._looked_s == -math.inf
        if now_s < self._looked_s + _MOMENT_S and not at_once:
            return
        newest = self._store.last_recorded() or 0
        self._left_until = newest if is_first or at_once else self._seen_until
        self._seen_until, self._looked_s = newest, now_s

    def _of_others(self) -> int | None:
        seq = self._store.next_recorded(self._from, self._left_until)
        if seq is None and self._from:
            self._from = 0
            seq = self._store.next_recorded(0, self._left_until)
        return seq
