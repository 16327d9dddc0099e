"""The thread that keeps and scores finished runs, also while their file cannot be used."""

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final

from kp_middleware.core.gates import Gate
from kp_middleware.embedding import Embedder
from kp_middleware.errors import DatabaseError, EmbedderNotReadyError
from kp_middleware.export import OwnExporter
from kp_middleware.pipeline._endings import JudgeNotReadyError
from kp_middleware.pipeline._steps import Stages
from kp_middleware.pipeline._threads import LOOK_AGAIN_S, FinishedRun, RunQueue, Worker
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.storage import PASSING_TROUBLE, TROUBLE, Store, is_damage, no_fork

logger = logging.getLogger("kp_middleware")

_MOMENT_S: Final = 0.1  # that an agent waits in trouble
_NEVER_S: Final = 3600.0
_HEAD_START_S: Final = (
    0.02  # for the agent to give its answer: two busy threads of Python wait for each other
)
_GIVE_WAY_S: Final = 0.05  # between two batches that are removed: others want to write, too
_TICK_S: Final = 0.002  # the file's instants are cut to milliseconds
_RESCUE_AGAIN_S: Final = 60.0


class ScoringWorker(Worker):
    """Keeps every run that has ended in the file, and scores there what is not scored yet.

    Keeping goes before scoring: what is in the file, a crash cannot take. While the file cannot be
    used, runs wait in the queue; one warning says why.

    ``on_step`` is called after each step that did something, ``on_queued`` where an item waits.
    """

    def __init__(
        self,
        queue: RunQueue,
        store: Store,
        settings: Settings,
        embedder: Embedder | None,
        gate: Gate | None,
        exporter: OwnExporter | None,
        *,
        on_queued: Callable[[], None],
        on_step: Callable[[], None],
    ) -> None:
        super().__init__("kp-scoring", settings.db, "finished runs wait", ends=True)
        self._queue = queue
        self._settings = settings
        self._embedder = embedder
        self._gate = gate
        self._exporter = exporter
        self._on_queued, self._on_step = on_queued, on_step
        self._store = store.apart()
        self._stages: Stages | None = None
        self._opened: Hashable = None
        self._rescue_at_s = 0.0

    def start(self) -> None:
        """Begin to work in the background, if that is not so already."""
        if self._thread is None:
            if not self._settings.sync:
                self._queue.ask_to_look()
            super().start()

    def wait_until_ours_done(self) -> None:
        """Wait until the runs of this process are scored; a run that ends in scoring does not."""
        if threading.current_thread() is not self._thread:
            self._wake.set()
            self._queue.wait_until_ours_done(patience_in_trouble_s=_MOMENT_S)

    def try_again(self) -> None:
        """Try at once to keep what could not be kept, and look at what others have left."""
        self._queue.end_trouble(lasting=True)
        if self._thread is not None:
            self._queue.ask_to_look()
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Stop after the run in hand; what waits stays in the queue."""
        self._stopping.set()
        self._queue.wake()
        has_ended = super().stop(timeout_s)
        if has_ended:
            self._close()
        return has_ended

    def leave_to_the_parent(self) -> None:
        """End after the current step in a forked child: the parent completes the work."""
        self._queue = RunQueue(0)
        self._stopping = threading.Event()  # the locks of the old ones may be a lost thread's
        self._stopping.set()
        self.trouble = "left to the parent"  # so that none is logged here

    def _work(self) -> None:
        run: FinishedRun | None = None
        wait_s = 0.0  # an earlier process may have left something
        head_start_s = 0.0 if self._settings.sync else _HEAD_START_S
        self._stopping.wait(head_start_s)
        while not self._stopping.is_set():
            if run is None:
                run = self._queue.take(wait_s)
                if run is not None and wait_s:
                    self._stopping.wait(head_start_s)
            try:
                with no_fork():  # what a fork interrupts may hold locks of Python or a library
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
                self._queue.end_trouble()

    def _keep(self, run: FinishedRun, stages: Stages) -> float:
        """Write a run; return how long to wait for the next one, which is no time."""
        if untold := self._queue.untold:
            self._store.count_dropped(untold)
            self._queue.told(untold)
        try:
            stages.keep(run)
        except PASSING_TROUBLE:
            raise
        except Exception as error:
            if is_damage(error):
                raise
            logger.exception("a run was lost: this is a defect of kp-middleware, please report it")
            self._queue.drop()
        self._queue.kept()
        self._on_step()
        return 0.0

    def _score_next(self, stages: Stages) -> float:
        """Score the next run; ours alone where agents wait for them and nobody asks for all.

        Return how long there is nothing more to do.
        """
        asks, scored, left_in_s, looks_in_s = self._queue.asks, False, math.inf, _NEVER_S
        try:
            if (ours := stages.next.ours()) is not None:
                stages.score(ours)
                scored = True
            else:
                self._queue.done()
                if self._settings.sync and asks == self._queue.answered:
                    scored = stages.end_overdue()
                else:
                    scored = stages.score_next()
                    left_in_s = stages.next.in_s()
        except EmbedderNotReadyError as error:
            logger.debug("runs wait to be scored: %s", error)
            self._queue.done()
            looks_in_s = LOOK_AGAIN_S
        except JudgeNotReadyError:
            left_in_s = LOOK_AGAIN_S
        if stages.dispatch.any_pending():
            self._on_queued()
        if scored:
            self._on_step()
            return 0.0
        if left_in_s == math.inf:
            self._queue.done(asks)
        with suppress(*TROUBLE, TimeoutError):  # old traces stay for now
            if self._settings.retention_days is not None and stages.remove_old():
                return _GIVE_WAY_S
        return min(left_in_s, looks_in_s, stages.intake.next_end_in_s() + _TICK_S)

    def _is_mended(self, error: BaseException) -> bool:
        """Say what is wrong, once; True if the file was damaged and could be repaired at once."""
        is_damaged, now_s = is_damage(error), time.monotonic()
        if is_damaged and now_s >= self._rescue_at_s:
            self._rescue_at_s = now_s + _RESCUE_AGAIN_S
            try:
                if self._is_rescued():
                    return True
            except (*TROUBLE, TimeoutError) as why:
                self._say(why)
        self._say(error)
        self._queue.meet_trouble(lasting=isinstance(error, DatabaseError) or is_damaged)
        return False

    def _is_rescued(self) -> bool:
        with no_fork():
            self._close()
            settings, own = self._settings, self._exporter
            rescue = self._store.repair(
                destination=settings.registry_url if own is None else own.url,
                redactor=Policy.of(settings).redactor,
            )
        if rescue is not None:
            words = "%s was damaged: %d of its traces could be read and are kept; as it was: %s"
            logger.warning(words, self._db, rescue.traces, rescue.aside)
        return rescue is not None

    def _open(self) -> Stages:
        opened = self._store.open()
        if self._stages is None or self._opened != opened:
            self._opened = opened
            self._stages = Stages(
                self._store,
                self._settings,
                self._embedder,
                self._gate,
                self._exporter,
                on_answer=self._queue.wake,
            )
        return self._stages

    def _close(self) -> None:
        self._stages = None
        with suppress(*TROUBLE):  # a thread that still uses it opens it anew
            self._store.close()
