"""The thread that keeps and scores finished runs, also while their file cannot be used."""

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from kp_middleware.core.gates import Gate
from kp_middleware.embedding import Embedder
from kp_middleware.errors import DatabaseError, EmbedderNotReadyError
from kp_middleware.export import OwnExporter
from kp_middleware.pipeline._endings import JudgeNotReadyError
from kp_middleware.pipeline._lifecycle import start_daemon
from kp_middleware.pipeline._queue import FinishedRun, RunQueue
from kp_middleware.pipeline._sending import destination
from kp_middleware.pipeline._steps import Stages
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    PASSING_TROUBLE,
    TROUBLE,
    Rescue,
    Store,
    in_words,
    is_damage,
    no_fork,
)

logger = logging.getLogger("kp_middleware")

_RESCUE_AGAIN_S: Final = 60.0


class FileTrouble:
    """The worker's state while its file cannot be used; ``words`` say why, and what to do."""

    def __init__(
        self,
        queue: RunQueue,
        db: Path,
        mend: Callable[[], Rescue | None],
        *,
        is_silent: bool = False,
    ) -> None:
        self._queue = queue
        self._db = db
        self._mend = mend
        self._said = is_silent
        self._rescue_at_s = 0.0
        self.is_there = False
        self.words: str | None = None

    def meet(self, error: BaseException) -> bool:
        """Say what is wrong, once; True if it could be mended at once."""
        self.is_there = True
        if is_damage(error) and self._rescued():
            return True
        self._warn(error)
        self._queue.meet_trouble(lasting=isinstance(error, DatabaseError) or is_damage(error))
        return False

    def end(self) -> None:
        """Clear the trouble: the file can be used again."""
        if self.is_there:
            self.is_there = self._said = False
            self.words = None
            self._queue.end_trouble()

    def _rescued(self) -> bool:
        """Repair a damaged file; return whether anything was repaired."""
        now_s = time.monotonic()
        if now_s < self._rescue_at_s:
            return False
        self._rescue_at_s = now_s + _RESCUE_AGAIN_S
        try:
            found = self._mend()
        except (*TROUBLE, TimeoutError) as error:
            self._warn(error)
            return False
        if found is not None:
            words = "%s was damaged: %d of its traces could be read and are kept; as it was: %s"
            logger.warning(words, self._db, found.traces, found.aside)
        return found is not None

    def _warn(self, error: BaseException) -> None:
        if isinstance(error, TROUBLE):
            error = in_words(self._db, error)
        self.words = str(error)
        if not self._said:
            self._said = True
            unknown = None if isinstance(error, PASSING_TROUBLE) else error
            logger.warning("finished runs wait: %s", error, exc_info=unknown)


_LOOK_AGAIN_S: Final = 1.0
_MOMENT_S: Final = 0.1  # that an agent waits in trouble
_NEVER_S: Final = 3600.0
_HEAD_START_S: Final = (
    0.02  # for the agent to give its answer: two busy threads of Python wait for each other
)
_GIVE_WAY_S: Final = 0.05  # between two batches that are removed: others want to write, too
_TICK_S: Final = 0.002  # the file's instants are cut to milliseconds


class ScoringWorker:
    """Keeps every run that has ended in the file, and scores there what is not scored yet.

    Keeping goes before scoring: what is in the file, a crash cannot take. While the file cannot be
    used, runs wait in the queue; one warning says why.
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
        self._queue = queue
        self._settings = settings
        self._embedder = embedder
        self._gate = gate
        self._exporter = exporter
        self._on_queued, self._on_step = on_queued, on_step
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may come back here in the same thread
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._store = store.apart()
        self._evaluation: Stages | None = None
        self._opened: Hashable = None
        self._idle_s = _NEVER_S
        self._trouble = FileTrouble(queue, settings.db, self._rescue)

    @property
    def trouble(self) -> str | None:
        """The reason the file cannot be used now, with a remedy; None if it can."""
        return self._trouble.words

    def start(self) -> None:
        """Begin to work in the background, if that is not so already."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                if not self._settings.sync:
                    self._queue.ask_to_look()
                self._thread = start_daemon("kp-scoring", self._work, ends=True)

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    def look_again(self) -> None:
        """Look in the background for runs that other processes have left in the file."""
        self.start()
        self._queue.ask_to_look()

    def wait_until_ours_done(self) -> None:
        """Wait until the runs of this process are scored; a run that ends in scoring does not."""
        if threading.current_thread() is not self._thread:
            self._again.set()
            self._queue.wait_until_ours_done(patience_in_trouble_s=_MOMENT_S)

    def try_again(self) -> None:
        """Try at once to keep what could not be kept, and look at what others have left."""
        self._queue.hope()
        if self._thread is not None:
            self._queue.ask_to_look()
        self._again.set()

    def stop(self, timeout_s: float) -> None:
        """Stop after the run in hand; what waits stays in the queue."""
        self._stopping.set()
        self._again.set()
        self._queue.wake()
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._thread is None or not self._thread.is_alive():
            self._close()

    def leave_to_the_parent(self) -> None:
        """End after the current step in a forked child: the parent completes the work."""
        self._queue = RunQueue(0)
        self._stopping = threading.Event()  # the locks of the old ones may be a lost thread's
        self._stopping.set()
        self._trouble = FileTrouble(self._queue, self._settings.db, self._rescue, is_silent=True)

    def _work(self) -> None:
        wait_s = 0.0  # an earlier process may have left something
        self._give_a_head_start()
        while not self._stopping.is_set():
            if self._go_on(wait_s):
                wait_s = 0.0
            elif self._remove_old():
                wait_s = _GIVE_WAY_S
            else:
                wait_s = self._idle_s
                if self._trouble.is_there:
                    self._again.wait(_LOOK_AGAIN_S)
                    self._again.clear()
                    wait_s = 0.0

    def _give_a_head_start(self) -> None:
        if not self._settings.sync:
            self._stopping.wait(_HEAD_START_S)

    def _go_on(self, wait_s: float) -> bool:
        """Keep the next run, else score the next; False if there was nothing to do, or no way."""
        run = self._queue.take(wait_s)
        if run is None:
            return self._attempt(self._score_next)
        if wait_s:
            self._give_a_head_start()
        return self._attempt(partial(self._keep, run), run)

    def _attempt(self, step: Callable[[], bool], run: FinishedRun | None = None) -> bool:
        """Run a step, and return whether it did something; if it fails, requeue its run."""
        try:
            with no_fork():  # what a fork interrupts may hold locks of Python or a library
                went_on = step()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker lives on
            if run is not None:
                self._queue.put_back(run)
            return self._trouble.meet(error)
        self._trouble.end()
        if went_on:
            self._on_step()
        return went_on

    def _keep(self, run: FinishedRun) -> bool:
        evaluation = self._open()
        if untold := self._queue.untold:
            self._store.count_dropped(untold)
            self._queue.told(untold)
        try:
            evaluation.keep(run)
        except PASSING_TROUBLE:
            raise
        except Exception as error:
            if is_damage(error):
                raise
            logger.exception("a run was lost: this is a defect of kp-middleware, please report it")
            self._queue.drop()
        self._queue.kept()
        return True

    def _score_next(self) -> bool:
        """Score the next run; ours alone where agents wait for them and nobody asks for all."""
        evaluation, asks = self._open(), self._queue.asks
        scored, left_in_s, looks_in_s = False, math.inf, _NEVER_S
        try:
            scored = evaluation.score_ours()
            if not scored:
                self._queue.ours_done()
                if self._settings.sync and asks == self._queue.answered:
                    scored = evaluation.end_overdue()
                else:
                    scored = evaluation.score_next()
                    left_in_s = evaluation.next.in_s()
        except EmbedderNotReadyError as error:
            logger.debug("runs wait to be scored: %s", error)
            self._queue.ours_done()
            looks_in_s = _LOOK_AGAIN_S
        except JudgeNotReadyError:
            left_in_s = _LOOK_AGAIN_S
        if evaluation.dispatch.any_pending():
            self._on_queued()
        if not scored:
            if left_in_s == math.inf:
                self._queue.all_done(asks)
            self._idle_s = min(left_in_s, looks_in_s, evaluation.intake.next_end_in_s() + _TICK_S)
        return scored

    def _remove_old(self) -> bool:
        """Remove a few traces that are too old; False if there are none, or not now."""
        if self._settings.retention_days is None or self._trouble.is_there:
            return False
        try:
            with no_fork():
                return self._open().remove_old()
        except (*TROUBLE, TimeoutError) as error:
            logger.debug("old traces stay for now: %s", error)
            return False

    def _open(self) -> Stages:
        opened = self._store.open()
        if self._evaluation is None or self._opened != opened:
            self._opened = opened
            self._evaluation = Stages(
                self._store,
                self._settings,
                self._embedder,
                self._gate,
                self._exporter,
                on_answer=self._queue.wake,
            )
        return self._evaluation

    def _close(self) -> None:
        self._evaluation = None
        with suppress(*TROUBLE):  # a thread that still uses it opens it anew
            self._store.close()

    def _rescue(self) -> Rescue | None:
        with no_fork():
            self._close()
            return self._store.repair(
                destination=destination(self._settings, self._exporter),
                redactor=Policy.of(self._settings).redactor,
            )
