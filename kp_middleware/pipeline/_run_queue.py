"""Finished runs on their way from the agents' threads to the worker, bounded by bytes."""

import threading
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, TypeAlias

from kp_middleware.recording import Recorder
from kp_middleware.traces import ReasoningTrace


class ThreadEnd(NamedTuple):
    """A thread is over: nothing follows what waits in it.

    Attributes:
        thread: The fingerprint of its id.
        success: Whether its task was done, or None where nobody says.
        confidence: How sure of it, 0 to 1, or None.
    """

    thread: str
    success: bool | None
    confidence: float | None


FinishedRun: TypeAlias = Recorder | ReasoningTrace | ThreadEnd
"""What was recorded, a trace that a user built, or the end of what was recorded before."""

_OVERHEAD_BYTES: Final = 1024

_Waiting: TypeAlias = tuple[FinishedRun, int]
"""A run and its size in bytes: a plain tuple, because the agent's thread makes it."""


class RunQueue:
    """First in, first out. A run stays counted until the worker says that it is done.

    The agent's thread takes a lock without a wait and appends; it rings for the worker only where
    that one sleeps. The lock is reentrant, because a finalizer may end a run in the middle.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._runs: deque[_Waiting] = deque()
        self._size_bytes = 0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._asleep = False
        self._in_hand = 0
        self._stuck = False
        self._unfinished = 0
        self._dropped = self._untold = 0

    def put(self, run: FinishedRun) -> bool:
        """Add a run without waiting; False if there is no room: it is dropped."""
        size_bytes = _size_bytes(run)
        with self._lock:
            if self._size_bytes + size_bytes > self._max_bytes:
                return False
            self._runs.append((run, size_bytes))
            self._size_bytes += size_bytes
            self._unfinished += 1
            asleep, self._asleep = self._asleep, False
        if asleep:
            self._bell.put(None)
        return True

    def take(self, timeout_s: float) -> FinishedRun | None:
        """The oldest run, or None if none came in time or `wake` was called."""
        if timeout_s:
            self._sleep(timeout_s)
        with self._lock:
            if not self._runs:
                return None
            run, size_bytes = self._runs.popleft()
            self._size_bytes -= size_bytes
            self._in_hand += 1
        return run

    def put_back(self, run: FinishedRun) -> None:
        """Make a run that was taken the next one again."""
        size_bytes = _size_bytes(run)
        with self._lock:
            self._runs.appendleft((run, size_bytes))
            self._size_bytes += size_bytes
            self._in_hand -= 1

    def kept(self) -> None:
        """A run that was taken is in the file, or never will be."""
        with self._changed:
            self._in_hand -= 1
            self._changed.notify_all()

    def done(self, count: int) -> None:
        """So many of the runs that were taken need no more work now."""
        with self._changed:
            self._unfinished -= count
            self._changed.notify_all()

    def begin(self) -> None:
        """The worker begins: something is unfinished until it has looked into the file."""
        with self._lock:
            self._unfinished += 1

    def drop(self) -> int:
        """Count a run that is lost; how many there are now."""
        with self._lock:
            self._dropped += 1
            self._untold += 1
            return self._dropped

    @property
    def dropped(self) -> int:
        """How many runs were lost."""
        return self._dropped

    def take_untold(self) -> int:
        """How many were lost that the file does not count yet; it shall now."""
        with self._lock:
            untold, self._untold = self._untold, 0
        return untold

    def wake(self) -> None:
        """Let the worker look again: it does not begin to sleep now, or wakes up."""
        self._bell.put(None)

    def set_stuck(self, *, stuck: bool) -> None:
        """Whether the runs cannot be kept for now, so that waiting for them is of no use."""
        with self._changed:
            self._stuck = stuck
            self._changed.notify_all()

    def wait_until_done(self, timeout_s: float) -> None:
        """Return when every run is done or none can be, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished or self._stuck, timeout_s)

    def wait_until_kept(self, patience_s: float) -> None:
        """Return when no run is in memory alone, or when none was kept for so long or can be."""
        with self._changed:
            waiting = self.waiting
            while waiting and not self._stuck and self._fewer_than(waiting, patience_s):
                waiting = self.waiting

    @property
    def waiting(self) -> int:
        """How many runs are in memory alone."""
        with self._lock:
            return len(self._runs) + self._in_hand

    def _fewer_than(self, waiting: int, timeout_s: float) -> bool:
        return self._changed.wait_for(lambda: self.waiting < waiting or self._stuck, timeout_s)

    def _sleep(self, timeout_s: float) -> None:
        """Until somebody rings, unless a run is there already."""
        with self._lock:
            self._asleep = not self._runs
            if not self._asleep:
                return
        with suppress(Empty):
            self._bell.get(timeout=timeout_s)
        self._asleep = False


def _size_bytes(run: FinishedRun) -> int:
    if isinstance(run, Recorder):
        texts = len(run.objective) + len(run.result_summary)
        return run.log.size_bytes + texts + _OVERHEAD_BYTES
    if isinstance(run, ThreadEnd):
        return _OVERHEAD_BYTES
    return len(run.model_dump_json()) + _OVERHEAD_BYTES
