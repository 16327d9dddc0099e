"""Finished runs on their way from the agents' threads to the worker, bounded by bytes."""

import threading
from collections import deque
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


class _Waiting(NamedTuple):
    run: FinishedRun
    size_bytes: int


class RunQueue:
    """First in, first out. A run stays counted until the worker says that it is done."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._runs: deque[_Waiting] = deque()
        self._size_bytes = 0
        self._changed = threading.Condition()
        self._in_hand = 0
        self._stuck = False
        self._unfinished = 0

    def put(self, run: FinishedRun) -> bool:
        """Add a run without waiting; False if there is no room: it is dropped."""
        size_bytes = _size_bytes(run)
        with self._changed:
            if self._size_bytes + size_bytes > self._max_bytes:
                return False
            self._runs.append(_Waiting(run, size_bytes))
            self._size_bytes += size_bytes
            self._unfinished += 1
            self._changed.notify_all()
        return True

    def take(self, timeout_s: float) -> FinishedRun | None:
        """The oldest run, or None if none came in time or `wake` was called."""
        with self._changed:
            if not self._runs:
                self._changed.wait(timeout_s)
            if not self._runs:
                return None
            waiting = self._runs.popleft()
            self._size_bytes -= waiting.size_bytes
            self._in_hand += 1
        return waiting.run

    def put_back(self, run: FinishedRun) -> None:
        """Make a run that was taken the next one again."""
        waiting = _Waiting(run, _size_bytes(run))
        with self._changed:
            self._runs.appendleft(waiting)
            self._size_bytes += waiting.size_bytes
            self._in_hand -= 1

    def kept(self) -> None:
        """A run that was taken is in the file, or never will be."""
        with self._changed:
            self._in_hand -= 1

    def done(self, count: int) -> None:
        """So many of the runs that were taken need no more work now."""
        with self._changed:
            self._unfinished -= count
            self._changed.notify_all()

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self._changed:
            self._changed.notify_all()

    def set_stuck(self, *, stuck: bool) -> None:
        """Whether the runs cannot be kept for now, so that waiting for them is of no use."""
        with self._changed:
            self._stuck = stuck
            self._changed.notify_all()

    def wait_until_done(self, timeout_s: float) -> None:
        """Return when every run is done or none can be, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished or self._stuck, timeout_s)

    @property
    def waiting(self) -> int:
        """How many runs are in memory alone."""
        with self._changed:
            return len(self._runs) + self._in_hand


def _size_bytes(run: FinishedRun) -> int:
    if isinstance(run, Recorder):
        texts = len(run.objective) + len(run.result_summary)
        return run.log.size_bytes + texts + _OVERHEAD_BYTES
    if isinstance(run, ThreadEnd):
        return _OVERHEAD_BYTES
    return len(run.model_dump_json()) + _OVERHEAD_BYTES
