"""Background threads, and the one that stores and scores finished runs."""

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from kp_middleware.errors import DatabaseError, EmbedderNotReadyError, KnowledgePulseError
from kp_middleware.pipeline._delays import ScoringDelayedError, start_daemon
from kp_middleware.pipeline._dispatch import is_transient
from kp_middleware.pipeline._intake import Feedback, Submission, SubmittedTrace
from kp_middleware.pipeline._stages import Stages
from kp_middleware.privacy import Policy
from kp_middleware.recording import Recorder
from kp_middleware.settings import Settings
from kp_middleware.storage import DATABASE_ERRORS, Store, fork_lock, is_damage, to_database_error

logger = logging.getLogger("kp_middleware")

LOOK_AGAIN_S: Final = 1.0
"""The pause of a thread after an error, or if something is not ready."""

LAST_STEP_S: Final = 0.3
"""The time that the exit allows a thread to stop."""

TROUBLE_S: Final = 0.1
"""The time that an agent waits while the file fails."""

_PATIENCE_S: Final = 10.0  # with a worker that stores no run and reports no error
_JOIN_S: Final = 10.0  # embedding a run takes 0.1 s
_NEVER_S: Final = 3600.0
_HEAD_START_S: Final = 0.02  # for the agent to answer: busy Python threads share one lock
_TICK_S: Final = 0.002  # the file's instants are cut to milliseconds
_REPAIRED: Final = "%s was damaged: %d of its traces could be recovered; the damaged file is now %s"
_OVERHEAD_BYTES: Final = 3072
_STEP_BYTES: Final = 320  # of a dict with its texts, besides their contents


class Worker(ABC):
    """A thread that starts on demand, and can be woken and stopped.

    ``trouble`` is why it cannot work now, with the remedy, or None. It is logged once, after its
    ``consequence``.
    """

    def __init__(
        self, name: str, db: Path, consequence: str, *, join_s: float | None = None
    ) -> None:
        self._name = name
        self._db = db
        self._consequence = consequence
        self._join_s = join_s
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may re-enter in the same thread
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.trouble: str | None = None

    def start(self) -> bool:
        """Start the thread or wake it; False if no thread can start."""
        self._wake.set()
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                with suppress(RuntimeError):  # Python 3.12.0 to 3.12.2 start none at the very end
                    self._thread = start_daemon(self._name, self._run, join_s=self._join_s)
            return self._thread is not None

    def finish(self) -> None:
        """Begin no further step."""
        self._stopping.set()
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Stop after the current step; return whether the thread has ended."""
        self.finish()
        thread = self._thread  # it sets this to None when it ends
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    @abstractmethod
    def _work(self) -> None:
        """Work until `stop` is called; run on the thread."""

    def _run(self) -> None:
        try:
            self._work()
        except KnowledgePulseError as error:
            self._report(error)
        except Exception:
            text = "%s until the next run: this is a bug in kp-middleware, please report it"
            logger.warning(text, self._consequence, exc_info=True)
        finally:
            with self._starting:  # else a thread that ends at once would still be set by `start`
                self._thread = None
            with self._changed:
                self._changed.notify_all()

    def _report(self, error: BaseException) -> None:
        """Log an error once, an unknown one with its traceback."""
        known = to_database_error(self._db, error) if isinstance(error, DATABASE_ERRORS) else error
        if self.trouble is None:
            unknown = None if isinstance(known, KnowledgePulseError) else error
            logger.warning("%s: %s", self._consequence, known, exc_info=unknown)
        self.trouble = str(known)


def _size_bytes(submission: Submission) -> int:
    match submission:
        case Recorder():
            log, texts = submission.log, len(submission.objective) + len(submission.result_summary)
            steps_bytes = log.size_bytes + log.kept * _STEP_BYTES
            return steps_bytes + submission.later_bytes + texts + _OVERHEAD_BYTES
        case SubmittedTrace():
            steps_bytes = len(submission.trace.steps) * 1024  # of a pydantic model
            return len(submission.trace.model_dump_json()) + steps_bytes + _OVERHEAD_BYTES
    return _OVERHEAD_BYTES


class ScoringWorker(Worker):
    """Stores finished runs, then scores them.

    Storing comes before scoring: a crash cannot take what is in the file. While the file cannot be
    used, runs wait in the queue; one warning says why.

    ``on_step`` is called after each step that did something, ``on_queued`` if an item is due.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        create_stages: Callable[..., Stages],
        *,
        destination: str,
        on_queued: Callable[[], object],
        on_step: Callable[[], object],
    ) -> None:
        super().__init__("kp-scoring", settings.db, "finished runs wait", join_s=_JOIN_S)
        self._settings = settings
        self._create_stages = create_stages
        self._destination = destination
        self._on_queued, self._on_step = on_queued, on_step
        self._store = store.clone()
        self._stages: Stages | None = None
        self._opened: Hashable = None
        self._rescue_at_s = 0.0
        # The lock and the queue are reentrant: a finalizer may end a run in the middle.
        self._queue: SimpleQueue[tuple[Submission, int] | None] = SimpleQueue()  # None only wakes
        self._size_bytes = 0
        self._stored_at_s = -math.inf
        self._in_trouble = self._is_blocked = False
        self._own_runs_done = True
        self._requested_checks = self._finished_checks = 0  # requests to check the file
        self._reported_dropped = 0  # already counted in the file
        self.waiting = 0  # runs that are only in memory
        self.dropped = 0

    def put(self, submission: Submission) -> bool:
        """Queue a submission without waiting; False if the queue is full."""
        size_bytes = _size_bytes(submission)
        with self._lock:  # quicker than its condition
            if self._size_bytes + size_bytes > self._settings.max_queue_bytes:
                return False
            self._size_bytes += size_bytes
            self.waiting += 1
            self._own_runs_done = False
        self._queue.put((submission, size_bytes))
        return True

    def drop(self) -> int:
        with self._changed:
            self.dropped += 1
            return self.dropped

    def request_check(self) -> None:
        """Request a check of the file, for which `wait_until_done` waits."""
        with self._changed:
            self._requested_checks += 1
        self._queue.put(None)

    def wait_until_done(self, timeout_s: float) -> None:
        """Wait until every run is scored or none can be, or until the timeout."""
        with self._changed:
            self._changed.wait_for(self._is_done, timeout_s)

    def _is_done(self) -> bool:
        is_over = self._is_blocked or self._thread is None
        return is_over or (self._own_runs_done and self._finished_checks == self._requested_checks)

    def wait_until_own_runs_done(self) -> None:
        """Wait until the runs of this process are scored, or cannot be stored."""
        if threading.current_thread() is self._thread:
            return  # a run ended while scoring
        self._wake.set()
        with self._changed:
            if self._in_trouble:
                self._changed.wait_for(lambda: self._own_runs_done, TROUBLE_S)
            else:
                self._changed.wait_for(
                    lambda: self._own_runs_done or self._in_trouble or self._thread is None
                )

    def wait_until_stored(
        self, since_s: float, *, patience_in_trouble_s: float = TROUBLE_S
    ) -> None:
        """Wait until every run is stored, none can be, or none was for too long.

        ``since_s`` is monotonic.
        """
        with self._changed:
            while self.waiting and not self._is_blocked and self._thread is not None:
                most_s = patience_in_trouble_s if self._in_trouble else _PATIENCE_S
                left_s = max(since_s, self._stored_at_s) + most_s - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def retry(self) -> None:
        """Retry at once, and check for runs left by other processes."""
        if self._is_blocked:
            self._end_trouble()
        if self._thread is not None:
            self.request_check()
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        self._stopping.set()
        self._queue.put(None)
        has_ended = super().stop(timeout_s)
        if has_ended:
            self._close()
        return has_ended

    def abandon_in_child(self) -> None:
        """End in a forked child: the parent completes the work."""
        self._lock = threading.RLock()  # a thread that was not forked may hold the old one
        self._changed = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._stopping.set()
        self.trouble = "left to the parent"  # so that nothing is logged here

    def _work(self) -> None:
        taken: Submission | None = None
        wait_s = 0.0  # an earlier process may have left runs
        head_start_s = 0.0 if self._settings.sync else _HEAD_START_S
        self._stopping.wait(head_start_s)
        while not self._stopping.is_set():
            if taken is None:
                taken = self._take(wait_s)
                if taken is not None and wait_s:
                    self._stopping.wait(head_start_s)
            try:
                with fork_lock:  # a fork would copy locks held by Python or a library
                    stages = self._open()
                    wait_s = self._keep(taken, stages) if taken else self._score_next(stages)
            except BaseException as error:  # noqa: BLE001 - the worker survives anything
                wait_s = 0.0
                if not self._repair(error):
                    self._wake.wait(LOOK_AGAIN_S)
                    self._wake.clear()
                continue
            taken = None
            if self.trouble is not None:
                self.trouble = None
                self._end_trouble()

    def _take(self, timeout_s: float) -> Submission | None:
        """Take the oldest submission, or return None after the timeout or when it is woken."""
        waiting: tuple[Submission, int] | None = None
        with suppress(Empty):
            waiting = self._queue.get(timeout=timeout_s) if timeout_s else None
            while waiting is None:
                waiting = self._queue.get_nowait()
        if waiting is not None:
            with self._changed:
                self._size_bytes -= waiting[1]
        return waiting and waiting[0]

    def _done(self, check: int | None = None) -> None:
        """Record that the runs of this process are scored, or cannot be now.

        ``check`` is the number of the check that found nothing else to score in the file.
        """
        with self._changed:
            self._own_runs_done = not self.waiting
            self._finished_checks = self._finished_checks if check is None else check
            self._changed.notify_all()

    def _end_trouble(self) -> None:
        with self._changed:
            self._in_trouble = self._is_blocked = False

    def _keep(self, submission: Submission, stages: Stages) -> float:
        """Store a submission; return how long to wait for the next one: 0."""
        if lost := self.dropped - self._reported_dropped:
            self._store.count_dropped(lost)
            self._reported_dropped += lost
        try:
            stages.keep(submission)
        except Exception as error:
            if is_transient(error):
                raise
            what = "feedback" if isinstance(submission, Feedback) else "a run"
            text = "%s was lost: this is a bug in kp-middleware, or in your own store"
            logger.exception(text, what)
            self.drop()
        with self._changed:
            self.waiting -= 1
            self._stored_at_s = time.monotonic()
            self._changed.notify_all()
        self._on_step()
        return 0.0

    def _score_next(self, stages: Stages) -> float:
        """Score the next run; only those of this process while agents wait for them.

        Return the seconds until there is more to do.
        """
        check, scored, left_in_s, ready_in_s = self._requested_checks, False, math.inf, _NEVER_S
        try:
            if (ours := stages.next.pick_own()) is not None:
                stages.score(ours)
                scored = True
            else:
                self._done()
                if self._settings.sync and check == self._finished_checks:
                    scored = stages.intake.end()
                else:
                    scored = stages.score_next()
                    left_in_s = stages.next.seconds_until_next()
        except EmbedderNotReadyError as error:
            logger.debug("runs wait to be scored: %s", error)
            self._done()
            ready_in_s, scored = LOOK_AGAIN_S, stages.intake.end()
        except ScoringDelayedError:
            left_in_s, scored = LOOK_AGAIN_S, stages.intake.end()
        if stages.dispatch.sends and stages.dispatch.outbox.any_pending():
            self._on_queued()
        if scored:
            self._on_step()
            return 0.0
        if left_in_s == math.inf:
            self._done(check)
        with suppress(*DATABASE_ERRORS, TimeoutError):  # old traces are removed later
            if self._settings.retention_days is not None and stages.remove_old():
                return 0.05  # between two pruned batches, to let others write
        return min(left_in_s, ready_in_s, stages.intake.next_end_in_s + _TICK_S)

    def _repair(self, error: BaseException) -> bool:
        """Report an error once; return True if it was damage that could be repaired."""
        is_damaged, now_s = is_damage(error), time.monotonic()
        if is_damaged and now_s >= self._rescue_at_s:
            self._rescue_at_s = now_s + 60.0
            redactor = Policy.from_settings(self._settings).redactor
            try:
                with fork_lock:
                    self._close()
                    rescue = self._store.repair(destination=self._destination, redactor=redactor)
            except Exception as why:  # noqa: BLE001 - the thread must live on
                self._report(why)
            else:
                if rescue is not None:
                    logger.warning(_REPAIRED, self._db, rescue.traces, rescue.damaged_copy)
                    return True
        self._report(error)
        with self._changed:  # if it lasts, waiting is useless
            self._in_trouble, self._is_blocked = (
                True,
                isinstance(error, DatabaseError) or is_damaged,
            )
            self._changed.notify_all()
        return False

    def _open(self) -> Stages:
        opened = self._store.open()
        if self._stages is None or self._opened != opened:
            self._opened = opened
            self._stages = self._create_stages(self._store, on_ready=lambda: self._queue.put(None))
        return self._stages

    def _close(self) -> None:
        self._stages = None
        with suppress(*DATABASE_ERRORS):  # a thread that still uses it opens it again
            self._store.close()
