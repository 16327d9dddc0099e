"""Our threads, and the one that takes finished runs, keeps and scores them, also in trouble."""

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from kp_middleware.errors import DatabaseError, EmbedderNotReadyError, KnowledgePulseError
from kp_middleware.pipeline._dispatch import passes
from kp_middleware.pipeline._intake import Built, FinishedRun
from kp_middleware.pipeline._steps import JudgeNotReadyError, Stages
from kp_middleware.privacy import Policy
from kp_middleware.recording import Recorder
from kp_middleware.settings import Settings
from kp_middleware.storage import DATABASE_ERRORS, Store, fork_lock, is_damage, to_database_error

logger = logging.getLogger("kp_middleware")

LOOK_AGAIN_S: Final = 1.0
"""The time a thread waits where it is in trouble, or something is not ready."""

LAST_STEP_S: Final = 0.3
"""The time the program's end waits for a thread that is told to stop."""

MOMENT_S: Final = 0.1
"""The time that an agent waits in trouble."""

_PATIENCE_S: Final = 10.0  # with a worker that keeps no run for so long, and does not say why
_NEVER_S: Final = 3600.0
_HEAD_START_S: Final = (
    0.02  # for the agent to give its answer: two busy threads of Python wait for each other
)
_GIVE_WAY_S: Final = 0.05  # between two batches that are removed: others want to write, too
_TICK_S: Final = 0.002  # the file's instants are cut to milliseconds
_RESCUE_AGAIN_S: Final = 60.0
_MENDED: Final = "%s was damaged: %d of its traces could be read and are kept; as it was: %s"
_OVERHEAD_BYTES: Final = 3072
_STEP_BYTES: Final = 320  # of a dict with its texts, beside what is in them
_BUILT_STEP_BYTES: Final = 1024  # of a pydantic model


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

    def start(self) -> bool:
        """Begin to work in the background, or look again soon; False if no thread can start."""
        self._wake.set()
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                with suppress(RuntimeError):  # Python 3.12.0 to 3.12.2 start none at the very end
                    self._thread = start_daemon(self._name, self._run, ends=self._ends)
            return self._thread is not None

    def stop(self, timeout_s: float) -> bool:
        """Stop after the step in hand; return whether it has ended by then."""
        self._stopping.set()
        self._wake.set()
        thread = self._thread  # it takes itself off when it ends
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _work(self) -> None:
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
        told = to_database_error(self._db, error) if isinstance(error, DATABASE_ERRORS) else error
        if self.trouble is None:
            unknown = None if isinstance(told, KnowledgePulseError) else error
            logger.warning("%s: %s", self._words, told, exc_info=unknown)
        self.trouble = str(told)


def _size_bytes(run: FinishedRun) -> int:
    match run:
        case Recorder():
            log, texts = run.log, len(run.objective) + len(run.result_summary)
            steps_bytes = log.size_bytes + log.kept * _STEP_BYTES
            return steps_bytes + run.later_bytes + texts + _OVERHEAD_BYTES
        case Built():
            steps_bytes = len(run.trace.steps) * _BUILT_STEP_BYTES
            return len(run.trace.model_dump_json()) + steps_bytes + _OVERHEAD_BYTES
    return _OVERHEAD_BYTES


class ScoringWorker(Worker):
    """Keeps every run that has ended in the file, and scores there what is not scored yet.

    Keeping goes before scoring: what is in the file, a crash cannot take. While the file cannot be
    used, runs wait in the queue; one warning says why.

    ``on_step`` is called after each step that did something, ``on_queued`` where an item waits.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        make: Callable[..., Stages],
        *,
        destination: str,
        on_queued: Callable[[], object],
        on_step: Callable[[], object],
    ) -> None:
        super().__init__("kp-scoring", settings.db, "finished runs wait", ends=True)
        self._settings = settings
        self._make = make
        self._destination = destination
        self._on_queued, self._on_step = on_queued, on_step
        self._store = store.clone()
        self._stages: Stages | None = None
        self._opened: Hashable = None
        self._rescue_at_s = 0.0
        # The lock and the queue are reentrant: a finalizer may end a run in the middle.
        self._runs: SimpleQueue[tuple[FinishedRun, int] | None] = SimpleQueue()  # None only wakes
        self._size_bytes = 0
        self._kept_s = -math.inf
        self._in_trouble = self._stuck = False
        self._ours_done = True
        self._asks = self._answered = 0  # requests to look into the file
        self._told = 0  # of those that were dropped, as the file knows
        self.waiting = 0  # runs that are only in memory
        self.dropped = 0

    def put(self, run: FinishedRun) -> bool:
        """Add a run without waiting; False if there is no room: it is dropped."""
        size_bytes = _size_bytes(run)
        with self._changed:
            if self._size_bytes + size_bytes > self._settings.max_queue_bytes:
                return False
            self._size_bytes += size_bytes
            self.waiting += 1
            self._ours_done = False
        self._runs.put((run, size_bytes))
        return True

    def drop(self) -> int:
        with self._changed:
            self.dropped += 1
            return self.dropped

    def ask_to_look(self) -> None:
        """Ask for a look into the file: something is unfinished until that was answered."""
        with self._changed:
            self._asks += 1
        self._runs.put(None)

    def wait_until_done(self, timeout_s: float) -> None:
        """Return when every run is done or none can be, or when the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stuck or (self._ours_done and self._answered == self._asks), timeout_s
            )

    def wait_until_ours_done(self) -> None:
        """Return when the runs of this process are done, or cannot be kept."""
        if threading.current_thread() is self._thread:
            return  # a run ends in scoring
        self._wake.set()
        with self._changed:
            if self._in_trouble:
                self._changed.wait_for(lambda: self._ours_done, MOMENT_S)
            else:
                self._changed.wait_for(lambda: self._ours_done or self._in_trouble)

    def wait_until_kept(self, since_s: float, *, patience_in_trouble_s: float = MOMENT_S) -> None:
        """Return when no run is in memory alone, or none can be kept, or none was for long.

        ``since_s`` is monotonic; in trouble, it has failed and tries again.
        """
        with self._changed:
            while self.waiting and not self._stuck:
                most_s = patience_in_trouble_s if self._in_trouble else _PATIENCE_S
                left_s = max(since_s, self._kept_s) + most_s - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def try_again(self) -> None:
        """Try at once to keep what could not be kept, and look at what others have left."""
        if self._stuck:
            self._end_trouble()
        if self._thread is not None:
            self.ask_to_look()
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        self._stopping.set()
        self._runs.put(None)
        has_ended = super().stop(timeout_s)
        if has_ended:
            self._close()
        return has_ended

    def leave_to_the_parent(self) -> None:
        """End after the current step in a forked child: the parent completes the work."""
        self._changed = threading.Condition()  # the locks of the old ones may be a lost thread's
        self._stopping = threading.Event()
        self._stopping.set()
        self.trouble = "left to the parent"  # so that none is logged here

    def _work(self) -> None:
        run: FinishedRun | None = None
        wait_s = 0.0  # an earlier process may have left something
        head_start_s = 0.0 if self._settings.sync else _HEAD_START_S
        self._stopping.wait(head_start_s)
        while not self._stopping.is_set():
            if run is None:
                run = self._take(wait_s)
                if run is not None and wait_s:
                    self._stopping.wait(head_start_s)
            try:
                with fork_lock:  # what a fork interrupts may hold locks of Python or a library
                    stages = self._open()
                    wait_s = self._score_next(stages) if run is None else self._keep(run, stages)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the worker lives on
                wait_s = 0.0
                if not self._is_mended(error):
                    self._wake.wait(LOOK_AGAIN_S)
                    self._wake.clear()
                continue
            run = None
            if self.trouble is not None:
                self.trouble = None
                self._end_trouble()

    def _take(self, timeout_s: float) -> FinishedRun | None:
        """Take the oldest run, or return None after the timeout or when it is woken."""
        waiting: tuple[FinishedRun, int] | None = None
        with suppress(Empty):
            waiting = self._runs.get(timeout=timeout_s) if timeout_s else None
            while waiting is None:
                waiting = self._runs.get_nowait()
        if waiting is not None:
            with self._changed:
                self._size_bytes -= waiting[1]
        return waiting and waiting[0]

    def _done(self, asks: int | None = None) -> None:
        """Note that the runs of this process are scored, or cannot be now.

        With the number of an ask: nothing else in the file can be scored either, as it was then.
        """
        with self._changed:
            self._ours_done = not self.waiting
            self._answered = self._answered if asks is None else asks
            self._changed.notify_all()

    def _end_trouble(self) -> None:
        with self._changed:
            self._in_trouble = self._stuck = False

    def _keep(self, run: FinishedRun, stages: Stages) -> float:
        """Write a run; return how long to wait for the next one, which is no time."""
        if lost := self.dropped - self._told:
            self._store.count_dropped(lost)
            self._told += lost
        try:
            stages.keep(run)
        except Exception as error:
            if passes(error):
                raise
            logger.exception("a run was lost: this is a defect of kp-middleware, please report it")
            self.drop()
        with self._changed:
            self.waiting -= 1
            self._kept_s = time.monotonic()
            self._changed.notify_all()
        self._on_step()
        return 0.0

    def _score_next(self, stages: Stages) -> float:
        """Score the next run; ours alone where agents wait for them and nobody asks for all.

        Return how long there is nothing more to do.
        """
        asks, scored, left_in_s, looks_in_s = self._asks, False, math.inf, _NEVER_S
        try:
            if (ours := stages.next.pick_own()) is not None:
                stages.score(ours)
                scored = True
            else:
                self._done()
                if self._settings.sync and asks == self._answered:
                    scored = stages.intake.end()
                else:
                    scored = stages.score_next()
                    left_in_s = stages.next.seconds_until_next()
        except EmbedderNotReadyError as error:
            logger.debug("runs wait to be scored: %s", error)
            self._done()
            looks_in_s = LOOK_AGAIN_S
        except JudgeNotReadyError:
            left_in_s = LOOK_AGAIN_S
        if stages.dispatch.sends and stages.dispatch.outbox.any_pending():
            self._on_queued()
        if scored:
            self._on_step()
            return 0.0
        if left_in_s == math.inf:
            self._done(asks)
        with suppress(*DATABASE_ERRORS, TimeoutError):  # old traces stay for now
            if self._settings.retention_days is not None and stages.remove_old():
                return _GIVE_WAY_S
        return min(left_in_s, looks_in_s, stages.intake.next_end_in_s() + _TICK_S)

    def _is_mended(self, error: BaseException) -> bool:
        """Say what is wrong, once; True if the file was damaged and could be repaired at once."""
        is_damaged, now_s = is_damage(error), time.monotonic()
        if is_damaged and now_s >= self._rescue_at_s:
            self._rescue_at_s = now_s + _RESCUE_AGAIN_S
            redactor = Policy.from_settings(self._settings).redactor
            try:
                with fork_lock:
                    self._close()
                    rescue = self._store.repair(destination=self._destination, redactor=redactor)
            except (*DATABASE_ERRORS, TimeoutError) as why:
                self._say(why)
            else:
                if rescue is not None:
                    logger.warning(_MENDED, self._db, rescue.traces, rescue.damaged_copy)
                    return True
        self._say(error)
        with self._changed:  # where it lasts, waiting is no use
            self._in_trouble, self._stuck = True, isinstance(error, DatabaseError) or is_damaged
            self._changed.notify_all()
        return False

    def _open(self) -> Stages:
        opened = self._store.open()
        if self._stages is None or self._opened != opened:
            self._opened = opened
            self._stages = self._make(self._store, on_answer=lambda: self._runs.put(None))
        return self._stages

    def _close(self) -> None:
        self._stages = None
        with suppress(*DATABASE_ERRORS):  # a thread that still uses it opens it anew
            self._store.close()
