"""The values that a program's threads hand over to ours, the queue of them, and our threads."""

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from numbers import Real
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, Self, TypeAlias

from kp_middleware.errors import KnowledgePulseError
from kp_middleware.recording import Recorder
from kp_middleware.runs import fingerprint
from kp_middleware.storage import TROUBLE, in_words
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")


class Built(NamedTuple):
    """A trace that a user built, and whose it is; None: nobody's."""

    trace: ReasoningTrace
    owner: str | None


class ThreadEnd(NamedTuple):
    """The end of a thread, named by its fingerprint: no further run follows."""

    thread: str
    success: bool | None
    confidence: float | None

    @classmethod
    def of(cls, thread_id: str | int, *, success: bool | None, confidence: float | None) -> Self:
        """Check what the program says. Raises as `KnowledgePulse.end_thread`."""
        return cls(fingerprint(str(thread_id)), *_checked(success, confidence))


class Feedback(NamedTuple):
    """Feedback on a run, given after its end; None where nothing is said of it."""

    trace_id: str
    success: bool | None
    confidence: float | None
    given_at_s: float

    @classmethod
    def of(
        cls, trace_id: str | None, *, success: bool | None, confidence: float | None
    ) -> Self | None:
        """Check what is said, now; None of no trace. Raises as `KnowledgePulse.feedback`."""
        told = _checked(success, confidence)
        if told == (None, None):
            raise ValueError("feedback needs success, confidence or both")
        if trace_id is None:
            return None
        if not isinstance(trace_id, str):
            raise TypeError(f"trace_id must be a str, got {type(trace_id).__name__}")
        return cls(trace_id, *told, time.time())


def _checked(
    success: bool | None,  # noqa: FBT001 - an outcome
    confidence: float | None,
) -> tuple[bool | None, float | None]:
    if success not in {None, True, False}:
        raise TypeError(f"success must be a bool, got {success!r}")
    said = None if success is None else bool(success)
    if confidence is None:
        return said, None
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise TypeError(f"confidence must be a number (0 to 1), got {confidence!r}")
    if not 0 <= float(confidence) <= 1:
        raise ValueError(f"confidence is from 0 to 1, this is {confidence!r}")
    return said, float(confidence)


FinishedRun: TypeAlias = Recorder | Built | ThreadEnd | Feedback
"""A recorded run, a trace that a user built, or news of those that came before."""

_OVERHEAD_BYTES: Final = 3072
_STEP_BYTES: Final = 320  # of a dict with its texts, beside what is in them
_BUILT_STEP_BYTES: Final = 1024  # of a pydantic model


class RunQueue:
    """First in, first out; bounded by bytes.

    The lock and the queue are reentrant: a finalizer may end a run in the middle.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._runs: SimpleQueue[tuple[FinishedRun, int] | None] = SimpleQueue()  # None only wakes
        self._size_bytes = 0
        self._changed = threading.Condition(threading.RLock())
        self._kept_s = -math.inf
        self._in_trouble = self._stuck = False
        self._ours_done = True
        self.asks = self.answered = 0
        """The number of requests to look into the file, and of those that were answered."""
        self.waiting = 0
        """The number of runs that are only in memory."""
        self.dropped = self.untold = 0
        """The number of runs that were lost, and of those that the file does not count yet."""

    def put(self, run: FinishedRun) -> bool:
        """Add a run without waiting; False if there is no room: it is dropped."""
        size_bytes = _size_bytes(run)
        with self._changed:
            if self._size_bytes + size_bytes > self._max_bytes:
                return False
            self._size_bytes += size_bytes
            self.waiting += 1
            self._ours_done = False
        self._runs.put((run, size_bytes))
        return True

    def take(self, timeout_s: float) -> FinishedRun | None:
        """Take the oldest run, or return None after the timeout or a call of `wake`."""
        waiting: tuple[FinishedRun, int] | None = None
        with suppress(Empty):
            waiting = self._runs.get(timeout=timeout_s) if timeout_s else None
            while waiting is None:
                waiting = self._runs.get_nowait()
        if waiting is None:
            return None
        with self._changed:
            self._size_bytes -= waiting[1]
        return waiting[0]

    def wake(self) -> None:
        """Let the worker look again: it does not begin to sleep now, or wakes up."""
        self._runs.put(None)

    def kept(self) -> None:
        """Note that a run that was taken is stored, or given up."""
        with self._changed:
            self.waiting -= 1
            self._kept_s = time.monotonic()
            self._changed.notify_all()

    def ask_to_look(self) -> None:
        """Let the worker look into the file: something is unfinished until it has."""
        with self._changed:
            self.asks += 1
        self._runs.put(None)

    def done(self, asks: int | None = None) -> None:
        """Note that the runs of this process are scored, or cannot be now.

        With the number of an ask: nothing else in the file can be scored either, as it was then.
        """
        with self._changed:
            self._ours_done = not self.waiting
            self.answered = self.answered if asks is None else asks
            self._changed.notify_all()

    def drop(self) -> int:
        """Count a run that is lost; return how many there are now."""
        with self._changed:
            self.dropped += 1
            self.untold += 1
            return self.dropped

    def told(self, count: int) -> None:
        """Note that the file now counts so many more lost runs."""
        with self._changed:
            self.untold -= count

    def meet_trouble(self, *, lasting: bool) -> None:
        """Note that runs cannot be stored now; if ``lasting``, waiting for them is no use."""
        with self._changed:
            self._in_trouble, self._stuck = True, lasting
            self._changed.notify_all()

    def end_trouble(self, *, lasting: bool = False) -> None:
        """Note that runs can be stored again; or where it is ``lasting``, are tried once more."""
        with self._changed:
            if self._stuck or not lasting:
                self._in_trouble = self._stuck = False

    def wait_until_done(self, timeout_s: float) -> None:
        """Return when every run is done or none can be, or when the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stuck or (self._ours_done and self.answered == self.asks), timeout_s
            )

    def wait_until_ours_done(self, *, patience_in_trouble_s: float) -> None:
        """Return when the runs of this process are done, or cannot be kept."""
        with self._changed:
            if self._in_trouble:
                self._changed.wait_for(lambda: self._ours_done, patience_in_trouble_s)
            else:
                self._changed.wait_for(lambda: self._ours_done or self._in_trouble)

    def wait_until_kept(
        self, since_s: float, patience_s: float, *, patience_in_trouble_s: float
    ) -> None:
        """Return when no run is in memory alone, or none can be kept, or none was for so long.

        ``since_s`` is monotonic; in trouble, a worker has failed and tries again.
        """
        with self._changed:
            while self.waiting and not self._stuck:
                most_s = patience_in_trouble_s if self._in_trouble else patience_s
                left_s = max(since_s, self._kept_s) + most_s - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)


def _size_bytes(run: FinishedRun) -> int:
    """Estimate the memory that it takes."""
    match run:
        case Recorder():
            log, texts = run.log, len(run.objective) + len(run.result_summary)
            steps_bytes = log.size_bytes + log.kept * _STEP_BYTES
            return steps_bytes + run.later_bytes + texts + _OVERHEAD_BYTES
        case Built():
            steps_bytes = len(run.trace.steps) * _BUILT_STEP_BYTES
            return len(run.trace.model_dump_json()) + steps_bytes + _OVERHEAD_BYTES
    return _OVERHEAD_BYTES


LOOK_AGAIN_S: Final = 1.0
"""The time a thread waits where it is in trouble, or something is not ready."""

LAST_STEP_S: Final = 0.3
"""The time the program's end waits for a thread that is told to stop."""

_ending: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


def start_daemon(name: str, work: Callable[[], None], *, ends: bool = False) -> threading.Thread:
    """Begin to work in the background; the program's end waits for what ``ends`` soon."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    if ends:
        _ending.add(thread)
    thread.start()
    return thread


def wait_for_ends(timeout_s: float) -> None:
    """Wait for the threads that were told to end.

    A daemon thread that Python stops inside the embedding model's library aborts the program.
    """
    deadline = time.monotonic() + timeout_s
    for thread in list(_ending):
        thread.join(max(0.0, deadline - time.monotonic()))


class Worker:
    """A thread that begins where there is work, and is told to look again or to stop.

    ``trouble`` says why it cannot work now, and what to do about it; None if all is well. It is
    logged once, after ``words`` that say what follows from it.
    """

    def __init__(self, name: str, db: Path, words: str, *, ends: bool = False) -> None:
        self._name = name
        self._db = db
        self._words = words
        self._ends = ends
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may come back here in the same thread
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._changed = threading.Condition()
        self.trouble: str | None = None

    @property
    def is_working(self) -> bool:
        """True while its thread lives."""
        return self._thread is not None

    def start(self) -> None:
        """Begin to work in the background, or look again soon."""
        self._wake.set()
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                with suppress(RuntimeError):  # Python 3.12.0 to 3.12.2 start none at the very end
                    self._thread = start_daemon(self._name, self._run, ends=self._ends)

    def stop(self, timeout_s: float) -> bool:
        """Stop after the step in hand; return whether it has ended by then."""
        self._stopping.set()
        self._wake.set()
        thread = self._thread  # it takes itself off when it ends
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _work(self) -> None:
        """Work until it is told to stop."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self._work()
        except KnowledgePulseError as error:
            self._say(error)
        except Exception:
            words = "%s until the next run: this is a defect of kp-middleware, please report it"
            logger.warning(words, self._words, exc_info=True)
        finally:
            with self._changed:
                self._thread = None
                self._changed.notify_all()

    def _say(self, error: BaseException) -> None:
        """Say what is wrong, once; of an unknown error also where it came from."""
        told = in_words(self._db, error) if isinstance(error, TROUBLE) else error
        if self.trouble is None:
            unknown = None if isinstance(told, KnowledgePulseError) else error
            logger.warning("%s: %s", self._words, told, exc_info=unknown)
        self.trouble = str(told)
