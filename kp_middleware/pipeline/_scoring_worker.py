"""The thread that keeps and scores finished runs."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kp_middleware.database import PASSING_TROUBLE
from kp_middleware.errors import DatabaseError, EmbedderNotReadyError
from kp_middleware.pipeline._daemon import start_daemon
from kp_middleware.pipeline._evaluation import Evaluation
from kp_middleware.pipeline._run_queue import FinishedRun, RunQueue
from kp_middleware.scoring import Embedder
from kp_middleware.settings import Settings
from kp_middleware.storage import ForkGate, RestingConnection

logger = logging.getLogger("kp_middleware")

_LOOK_AGAIN_S: Final = 1.0
_NEVER_S: Final = 3600.0
_HEAD_START_S: Final = (
    0.02  # for the agent to give its answer: two busy threads of Python wait for each other
)
_TICK_S: Final = 0.002  # the file's instants are cut to milliseconds


class ScoringWorker:
    """Keeps every run that has ended in the file, and scores there what is not scored yet.

    Keeping goes before scoring: what is in the file, a crash cannot take. While the file cannot be
    used, runs wait in the queue; one warning says why.
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
        self._evaluation: Evaluation | None = None
        self._unscored = 0
        self._idle_s = _NEVER_S
        self._waiting_for_model = False
        self._in_trouble = False
        self._warned = False

    def start(self) -> None:
        """Begin to work in the background, if that is not so already."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                self._thread = start_daemon("kp-scoring", self._work)

    def stop(self, timeout_s: float) -> None:
        """Stop after the run in hand; what waits stays in the queue."""
        self._stopping.set()
        self._queue.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._thread is None or not self._thread.is_alive():
            self._close()

    def work_now(self) -> None:
        """Do what waits, in the caller's thread; several callers wait for one another.

        A run that ends while one is scored, in the same thread, is taken by the call around it.
        """
        with self._turn:
            if self._at_work:
                return
            self._at_work = True
            try:
                while self._go_on(0):
                    pass
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
            wait_s = _LOOK_AGAIN_S if self._waiting_for_model else self._idle_s
            if self._in_trouble:
                self._stopping.wait(_LOOK_AGAIN_S)
                wait_s = 0.0

    def _go_on(self, wait_s: float) -> bool:
        """Keep the next run, else score the next; False if there was nothing to do, or no way."""
        run = self._queue.take(wait_s)
        if wait_s and run is not None:
            self._stopping.wait(_HEAD_START_S)
        try:
            with self._step:  # what a fork interrupts may hold locks of Python or a library
                went_on = self._score_next() if run is None else self._keep(run)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker lives on
            if run is not None:
                self._queue.put_back(run)
            self._in_trouble = True
            self._warn(error)
            self._queue.set_stuck(stuck=isinstance(error, DatabaseError))
            return False
        if self._in_trouble:
            self._in_trouble = self._warned = False
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
        except Exception:
            logger.exception("a run was lost: this is a defect of kp-middleware, please report it")
        self._queue.kept()
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

    def _open(self) -> Evaluation:
        if self._evaluation is None:
            connection = RestingConnection(self._settings.db)
            connection.open()
            self._evaluation = Evaluation(connection, self._settings, self._embedder)
        return self._evaluation

    def _close(self) -> None:
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is not None:
            with suppress(*PASSING_TROUBLE):  # a thread that still uses it opens it anew
                evaluation.close()

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            unknown = None if isinstance(error, PASSING_TROUBLE) else error
            logger.warning("finished runs wait: %s", error, exc_info=unknown)
