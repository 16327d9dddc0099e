"""The two daemon threads of a process: one scores, one sends; each starts when it is needed."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

from kp_middleware.database import TROUBLE, connect
from kp_middleware.forwarding import Forwarder, Pace, Registry
from kp_middleware.pipeline._evaluation import Evaluation
from kp_middleware.pipeline._run_queue import FinishedRun, RunQueue
from kp_middleware.scoring import Embedder
from kp_middleware.settings import Settings
from kp_middleware.storage import OutboxTable

logger = logging.getLogger("kp_middleware")

_LOOK_AGAIN_S: Final = 1.0
_NEVER_S: Final = 3600.0


class Backlog(NamedTuple):
    """What is not done yet; falsy when all is.

    Attributes:
        unscored: Runs that are not scored: they wait in memory, or in the file for the model.
        unsent: Traces in the outbox that are not sent.
    """

    unscored: int
    unsent: int

    def __bool__(self) -> bool:
        return any(self)


class ScoringWorker:
    """Takes runs off the queue, keeps them in the file and scores them there.

    While the file cannot be used, runs wait in the queue; one warning says why.
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
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        self._evaluation: Evaluation | None = None
        self._waiting_for_model = False
        self._warned = False

    def start(self) -> None:
        """Begin to work in the background, if that is not so already."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                self._thread = _daemon("kp-scoring", self._work)

    def stop(self, timeout_s: float) -> None:
        """Stop after the run in hand; what waits stays in the queue."""
        self._stopping.set()
        self._queue.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)

        self._close()

    def work_now(self) -> None:
        """Do what waits, in the caller's thread; several callers wait for one another."""
        with self._turn:
            while (run := self._queue.take(0)) is not None and self._finish(run):
                pass

    @property
    def waiting_for_model(self) -> bool:
        """Whether recorded runs wait in the file until the model is there."""
        return self._waiting_for_model

    def _work(self) -> None:
        self._catch_up()
        while not self._stopping.is_set():
            run = self._queue.take(_LOOK_AGAIN_S if self._waiting_for_model else _NEVER_S)
            if run is not None and not self._finish(run):
                self._stopping.wait(_LOOK_AGAIN_S)
            elif run is None and self._waiting_for_model:
                self._catch_up()

    def _catch_up(self) -> None:
        """Score what this process or an earlier one left ``recorded``."""
        try:
            self._score_all(self._open())
        except TROUBLE as error:
            self._warn(error)

    def _finish(self, run: FinishedRun) -> bool:
        """Keep a run and score it; False puts it back, because the file cannot be used now."""
        try:
            evaluation = self._open()
            evaluation.keep(run)
        except TROUBLE as error:
            self._warn(error)
            self._queue.put_back(run)
            return False
        except Exception:
            logger.exception("a run was lost: this is a defect of kp-middleware, please report it")
        else:
            self._score_all(evaluation)
        self._queue.done()
        return True

    def _score_all(self, evaluation: Evaluation) -> None:
        try:
            self._waiting_for_model = not evaluation.score_all()
            if evaluation.any_pending():
                self._on_queued()
        except TROUBLE as error:
            self._warn(error)  # the runs are safe in the file, and scored with the next one

    def _open(self) -> Evaluation:
        if self._evaluation is None:
            connection = connect(self._settings.db)
            self._evaluation = Evaluation(connection, self._settings, self._embedder)
            self._evaluation.queue_cleared()
        return self._evaluation

    def _close(self) -> None:
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is not None:
            evaluation.close()

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("finished runs wait: %s", error)


class ForwardingWorker:
    """Sends what is in the outbox: only where there is a key."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._idle = threading.Event()

    def start(self) -> None:
        """Look into the outbox, in the background."""
        self._idle.clear()
        self._wake.set()
        with self._starting:
            if self._thread is None:
                self._thread = _daemon("kp-forwarding", self._work)

    def stop(self, timeout_s: float) -> None:
        """Stop after the trace in hand; the others stay in the outbox."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def wait_until_idle(self, timeout_s: float) -> None:
        """Return when nothing can be sent now, or when the time is over."""
        if self._thread is not None:
            self._idle.wait(timeout_s)

    def _work(self) -> None:
        try:
            with closing(connect(self._settings.db)) as connection, closing(self._registry):
                outbox = OutboxTable(
                    connection,
                    registry=self._settings.registry_url,
                    agent_id=self._settings.agent_id,
                )
                forwarder = Forwarder(outbox, self._registry, pace=Pace(), clock=time.time)
                self._forward(forwarder)
        except TROUBLE:
            logger.warning("nothing is sent for now", exc_info=True)
        finally:
            self._thread = None
            self._idle.set()

    def _forward(self, forwarder: Forwarder) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            more_in_s = forwarder.forward_due(self._stopping)
            if more_in_s is None or more_in_s > 0:
                if not self._wake.is_set():
                    self._idle.set()
                self._wake.wait(_NEVER_S if more_in_s is None else more_in_s)


def _daemon(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
