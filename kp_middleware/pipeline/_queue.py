"""Finished runs, and late events about them, on their way to the worker."""

import math
import threading
import time
from collections import deque
from contextlib import suppress
from numbers import Real
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, Self, TypeAlias

from kp_middleware.recording import Recorder
from kp_middleware.runs import fingerprint
from kp_middleware.traces import ReasoningTrace


class ThreadEnd(NamedTuple):
    """The end of a thread: no further run follows.

    Attributes:
        thread: The fingerprint of its id.
        success: Whether its task was done, or None where nobody says.
        confidence: How sure of it, 0 to 1, or None.
    """

    thread: str
    success: bool | None
    confidence: float | None

    @classmethod
    def of(cls, thread_id: str | int, *, success: bool | None, confidence: float | None) -> Self:
        """Check what the program says. Raises as `KnowledgePulse.end_thread`."""
        sure = _checked_confidence(confidence)
        return cls(fingerprint(str(thread_id)), _checked_success(success), sure)


class Feedback(NamedTuple):
    """Feedback on a run, given after its end.

    Attributes:
        trace_id: Of the run's trace.
        success: Whether its task was done, or None where nothing is said of it.
        confidence: How sure of it, 0 to 1, or None where nothing is said of it.
        given_at_s: Epoch seconds.
    """

    trace_id: str
    success: bool | None
    confidence: float | None
    given_at_s: float

    @classmethod
    def of(
        cls, trace_id: str | None, *, success: bool | None, confidence: float | None
    ) -> Self | None:
        """Check what is said, now; None of no trace. Raises as `KnowledgePulse.feedback`."""
        said, sure = _checked_success(success), _checked_confidence(confidence)
        if success is None and confidence is None:
            raise ValueError("feedback needs success, confidence or both")
        if trace_id is None:
            return None
        if not isinstance(trace_id, str):
            raise TypeError(f"trace_id must be a str, got {type(trace_id).__name__}")
        return cls(trace_id, said, sure, time.time())


def _checked_success(success: bool | None) -> bool | None:  # noqa: FBT001 - its only argument
    if success not in {None, True, False}:
        raise TypeError(f"success must be a bool, got {success!r}")
    return None if success is None else bool(success)


def _checked_confidence(confidence: float | None) -> float | None:
    if confidence is None:
        return None
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise TypeError(f"confidence must be a number (0 to 1), got {confidence!r}")
    if not 0 <= float(confidence) <= 1:
        raise ValueError(f"confidence is from 0 to 1, this is {confidence!r}")
    return float(confidence)


class Owned(NamedTuple):
    """A trace that a user built, with its owner."""

    trace: ReasoningTrace
    owner: str


FinishedRun: TypeAlias = Recorder | ReasoningTrace | Owned | ThreadEnd | Feedback
"""What was recorded, a trace that a user built, or what is told of those that came before."""

_OVERHEAD_BYTES: Final = 3072
_STEP_BYTES: Final = 320  # of a dict with its texts, beside what is in them
_BUILT_STEP_BYTES: Final = 1024  # of a pydantic model

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
        self._kept_s = -math.inf
        self._in_trouble = self._stuck = False
        self._unfinished = 0
        self._looks = 0
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
        """Take the oldest run, or return None after the timeout or a call of `wake`."""
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
        """Note that a run that was taken is stored, or given up."""
        with self._changed:
            self._in_hand -= 1
            self._kept_s = time.monotonic()
            self._changed.notify_all()

    def done(self, count: int) -> None:
        """Note that so many of the runs that were taken are finished."""
        with self._changed:
            self._unfinished -= count
            self._changed.notify_all()

    def ask_to_look(self) -> None:
        """Let the worker look into the file: something is unfinished until it has."""
        with self._lock:
            self._unfinished += 1
            self._looks += 1
        self._bell.put(None)

    def take_looks(self) -> int:
        """Return how often `ask_to_look` was called, and reset the count."""
        with self._lock:
            looks, self._looks = self._looks, 0
        return looks

    def drop(self) -> int:
        """Count a run that is lost; return how many there are now."""
        with self._lock:
            self._dropped += 1
            self._untold += 1
            return self._dropped

    @property
    def dropped(self) -> int:
        """The number of runs that were lost."""
        return self._dropped

    @property
    def untold(self) -> int:
        """The number of lost runs that the file does not count yet."""
        return self._untold

    def told(self, count: int) -> None:
        """Note that the file now counts so many more lost runs."""
        with self._lock:
            self._untold -= count

    def wake(self) -> None:
        """Let the worker look again: it does not begin to sleep now, or wakes up."""
        self._bell.put(None)

    def meet_trouble(self, *, lasting: bool) -> None:
        """Note that runs cannot be stored now; if ``lasting``, waiting for them is no use."""
        with self._changed:
            self._in_trouble, self._stuck = True, lasting
            self._changed.notify_all()

    def end_trouble(self) -> None:
        """Note that runs can be stored again."""
        with self._changed:
            self._in_trouble = self._stuck = False

    def wait_until_done(self, timeout_s: float) -> None:
        """Return when every run is done or none can be, or when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished or self._stuck, timeout_s)

    def wait_until_kept(
        self, since_s: float, patience_s: float, *, patience_in_trouble_s: float
    ) -> None:
        """Return when no run is in memory alone, or none can be kept, or none was for so long.

        Args:
            since_s: Monotonic seconds: what was before does not count.
            patience_s: With a worker that may only be slow.
            patience_in_trouble_s: With one that has failed and tries again.
        """
        with self._changed:
            while self.waiting and not self._stuck:
                most_s = patience_in_trouble_s if self._in_trouble else patience_s
                left_s = max(since_s, self._kept_s) + most_s - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    @property
    def waiting(self) -> int:
        """The number of runs that are only in memory."""
        with self._lock:
            return len(self._runs) + self._in_hand

    def _sleep(self, timeout_s: float) -> None:
        """Sleep until there is a run, a call of `wake`, or the timeout."""
        with self._lock:
            self._asleep = not self._runs
            if not self._asleep:
                return
        with suppress(Empty):
            self._bell.get(timeout=timeout_s)
        self._asleep = False


def _size_bytes(run: FinishedRun) -> int:
    """Estimate the memory that a run takes."""
    if isinstance(run, Recorder):
        texts = len(run.objective) + len(run.result_summary)
        noted_bytes = run.log.size_bytes + run.later_bytes
        return noted_bytes + run.log.kept * _STEP_BYTES + texts + _OVERHEAD_BYTES
    if isinstance(run, ThreadEnd | Feedback):
        return _OVERHEAD_BYTES
    if isinstance(run, Owned):
        run = run.trace
    steps = len(run.steps) * _BUILT_STEP_BYTES
    return len(run.model_dump_json()) + steps + _OVERHEAD_BYTES
