"""The thread that keeps and scores finished runs."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kp_middleware.database import PASSING_TROUBLE, TROUBLE, in_words, is_damage
from kp_middleware.errors import DatabaseError, EmbedderNotReadyError
from kp_middleware.pipeline._daemon import start_daemon
from kp_middleware.pipeline._evaluation import Evaluation
from kp_middleware.pipeline._run_queue import FinishedRun, RunQueue
from kp_middleware.scoring import Embedder
from kp_middleware.settings import Settings
from kp_middleware.storage import ForkGate, Identity, RestingConnection, rescue

logger = logging.getLogger("kp_middleware")

_LOOK_AGAIN_S: Final = 1.0
_NEVER_S: Final = 3600.0
_SLOW_S: Final = 0.5
_REST_S: Final = 30.0  # after a try on an agent's thread that failed so slowly
_RESCUE_AGAIN_S: Final = 60.0
_HEAD_START_S: Final = (
    0.02  # for the agent to give its answer: two busy threads of Python wait for each other
)
_GIVE_WAY_S: Final = 0.05  # between two batches that are removed: others want to write, too
_TICK_S: Final = 0.002  # the file's instants are cut to milliseconds


class ScoringWorker:
    """Keeps every run that has ended in the file, and scores there what is not scored yet.

    Keeping goes before scoring: what is in the file, a crash cannot take. While the file cannot be
    used, runs wait in the queue; one warning says why.

    Attributes:
        trouble: Why the file cannot be used now, and what to do about it; None if it can.
    """

    def __init__(
        self,
        queue: RunQueue,
        settings: Settings,
        embedder: Embedder | None,
        *,
        on_queued: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._embedder = embedder
        self._on_queued = on_queued
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may come back here in the same thread
        self._stopping = threading.Event()
        self._turn = threading.RLock()
        self._step = ForkGate()
        self._at_work = False
        self._connection = RestingConnection(settings.db)
        self._evaluation: Evaluation | None = None
        self._file: Identity | None = None
        self._rescue_at_s = 0.0
        self._unscored = 0
        self._idle_s = _NEVER_S
        self._waiting_for_model = False
        self._in_trouble = False
        self._rest_until_s = 0.0
        self._warned = False
        self.trouble: str | None = None

    def start(self) -> None:
        """Begin to work in the background, if that is not so already."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                self._queue.begin()
                self._unscored += 1
                self._thread = start_daemon("kp-scoring", self._work)

    def stop(self, timeout_s: float) -> None:
        """Stop after the run in hand; what waits stays in the queue."""
        self._stopping.set()
        self._queue.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._thread is None or not self._thread.is_alive():
            self._close()

    def work_now(self, *, insist: bool = True) -> None:
        """Do what waits, in the caller's thread; several callers wait for one another.

        A run that ends while one is scored, in the same thread, is taken by the call around it.

        Args:
            insist: Also where it took long a moment ago to find out that the file cannot be used.
        """
        with self._turn:
            if self._at_work or (self._in_trouble and not insist and self._rests()):
                return
            self._at_work = True
            try:
                while self._go_on(0):
                    pass
                self._remove_old()
            finally:
                self._at_work = False

    def leave_to_the_parent(self) -> None:
        """In a forked child: end after the step that forked, which is the parent's to complete."""
        self._queue = RunQueue(0)
        self._stopping = threading.Event()  # the locks of the old ones may be a lost thread's
        self._stopping.set()
        self._warned = True

    def _work(self) -> None:
        wait_s = 0.0  # an earlier process may have left something
        self._stopping.wait(_HEAD_START_S)
        while not self._stopping.is_set():
            if self._go_on(wait_s):
                wait_s = 0.0
                continue
            if self._remove_old():
                wait_s = _GIVE_WAY_S
                continue
            wait_s = _LOOK_AGAIN_S if self._waiting_for_model else self._idle_s
            if self._in_trouble:
                self._stopping.wait(_LOOK_AGAIN_S)
                wait_s = 0.0

    def _go_on(self, wait_s: float) -> bool:
        """Keep the next run, else score the next; False if there was nothing to do, or no way."""
        run = self._queue.take(wait_s)
        if wait_s and run is not None:
            self._stopping.wait(_HEAD_START_S)
        began_s = time.monotonic()
        try:
            with self._step:  # what a fork interrupts may hold locks of Python or a library
                went_on = self._score_next() if run is None else self._keep(run)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker lives on
            if run is not None:
                self._queue.put_back(run)
            self._in_trouble = True
            if time.monotonic() - began_s > _SLOW_S:
                self._rest_until_s = time.monotonic() + _REST_S
            if is_damage(error) and self._rescued():
                return True
            self._warn(error)
            self._queue.set_stuck(stuck=isinstance(error, DatabaseError) or is_damage(error))
            return False
        if self._in_trouble:
            self._in_trouble = self._warned = False
            self.trouble = None
            self._queue.set_stuck(stuck=False)
        return went_on

    def _keep(self, run: FinishedRun) -> bool:
        evaluation = self._open()
        self._unscored += 1
        try:
            evaluation.keep(run)
        except PASSING_TROUBLE:
            self._unscored -= 1
            raise
        except Exception as error:
            if is_damage(error):
                self._unscored -= 1
                raise
            logger.exception("a run was lost: this is a defect of kp-middleware, please report it")
        self._queue.kept()
        evaluation.count_dropped(self._queue.take_untold())
        return True

    def _score_next(self) -> bool:
        evaluation = self._open()
        try:
            scored = evaluation.score_next()
            self._waiting_for_model = False
        except EmbedderNotReadyError as error:
            logger.debug("runs wait to be scored: %s", error)
            scored, self._waiting_for_model = False, True
        if evaluation.any_pending():
            self._on_queued()
        if not scored:
            self._queue.done(self._unscored)
            self._unscored = 0
            self._idle_s = min(evaluation.next_end_in_s() + _TICK_S, _NEVER_S)
        return scored

    def _remove_old(self) -> bool:
        """Remove a few traces that are too old; False if there are none, or not now."""
        if self._settings.retention_days is None or self._in_trouble:
            return False
        try:
            with self._step:
                return self._open().remove_old()
        except (*TROUBLE, TimeoutError) as error:
            logger.debug("old traces stay for now: %s", error)
            return False

    def _open(self) -> Evaluation:
        self._connection.open()
        if self._evaluation is None or self._file != self._connection.file:
            self._file = self._connection.file
            self._evaluation = Evaluation(self._connection, self._settings, self._embedder)
        return self._evaluation

    def _close(self) -> None:
        self._evaluation = None
        with suppress(*TROUBLE):  # a thread that still uses it opens it anew
            self._connection.close()

    def _rescued(self) -> bool:
        """Whether the file was damaged, and is no more."""
        now_s = time.monotonic()
        if now_s < self._rescue_at_s:
            return False
        self._rescue_at_s = now_s + _RESCUE_AGAIN_S
        try:
            with self._step:
                self._close()
                found = rescue(self._settings.db)
        except (*TROUBLE, TimeoutError) as error:
            self._warn(error)
            return False
        if found is not None:
            words = "%s was damaged: %d of its traces could be read and are kept; as it was: %s"
            logger.warning(words, self._settings.db, found.traces, found.aside)
        return found is not None

    def _rests(self) -> bool:
        return time.monotonic() < self._rest_until_s

    def _warn(self, error: Exception) -> None:
        if isinstance(error, TROUBLE):
            error = in_words(self._settings.db, error)
        self.trouble = str(error)
        if not self._warned:
            self._warned = True
            unknown = None if isinstance(error, PASSING_TROUBLE) else error
            logger.warning("finished runs wait: %s", error, exc_info=unknown)
