"""The pipeline of a process, from finished runs to the exit of the program."""

import atexit
import concurrent.futures.thread  # noqa: F401 - cannot be imported at exit
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import EllipsisType
from typing import Final, NamedTuple, Unpack

from kp_middleware import storage
from kp_middleware.core.gates import Gate
from kp_middleware.embedding import Embedder, shared_embedder
from kp_middleware.export import Exporter, OwnExporter, Registry
from kp_middleware.forks import at_fork
from kp_middleware.instants import instant
from kp_middleware.locations import unknown_variables
from kp_middleware.pipeline._delays import is_judging, join_at_exit
from kp_middleware.pipeline._intake import (
    Feedback,
    Submission,
    SubmittedTrace,
    ThreadEnd,
    checked_outcome,
)
from kp_middleware.pipeline._sending import WORTH_WAITING_S, ExporterSender, SendingWorker
from kp_middleware.pipeline._shared_log import SharedLogSync, SharedWorker
from kp_middleware.pipeline._stages import Stages
from kp_middleware.pipeline._worker import LAST_STEP_S, TROUBLE_S, ScoringWorker
from kp_middleware.recording import Recorder, shield
from kp_middleware.runs import fingerprint
from kp_middleware.settings import Settings, SettingsKeywords
from kp_middleware.traces import ReasoningTrace


class Stats(NamedTuple):
    """Counts of traces; those in the file are of all processes that share it.

    Attributes:
        recorded: All in the file.
        unscored: In the file, waiting to be scored.
        paused: Waiting for a person, or for their thread's next turn.
        scored: Scored, whatever the score.
        incomplete: Cancelled, timed out or never resumed; kept, not scored.
        failed: Could not be scored; kept.
        pending: Waiting to be sent, or being sent.
        sent: Accepted by the registry.
        rejected: Never to be accepted by the registry.
        blocked: Perhaps not clean, or given up after too many attempts.
        recalled: For which earlier runs were recalled.
        in_memory: Runs of this process that are not in the file yet.
        dropped: Runs of this process lost because the queue was full.
        swallowed: Counts by kind of recording failures in this process, hidden from the agent.
        trouble: Why the file or the shared log cannot be used, or which wrong setting stops
            sending, with the remedy; None if all is well.
    """

    recorded: int
    unscored: int
    paused: int
    scored: int
    incomplete: int
    failed: int
    pending: int
    sent: int
    rejected: int
    blocked: int
    recalled: int
    in_memory: int
    dropped: int
    swallowed: Mapping[str, int]
    trouble: str | None


logger = logging.getLogger("kp_middleware")

NO_FILE: Final = "not supported with a custom store: query your store directly"

_WHEN_CLOSED: Final = "the pipeline is closed; close it after the last run"
_WHEN_FULL: Final = "the queue is full: see kp.stats().trouble, or raise max_queue_bytes"
_EXIT_S: Final = 2.0
_LONGEST_S: Final = threading.TIMEOUT_MAX / 2  # infinity, for a thread
_LAST_REQUEST_S: Final = 1.0  # before a deadline none begins: two without an answer cost an hour


class Pipeline:
    """Takes finished runs from the agents' threads; starts its own threads with the first."""

    _default_lock = threading.Lock()
    _scorer: ScoringWorker
    _waits: bool | None  # whether a run's end waits until it is stored; None: not started yet

    def __init__(
        self,
        *,
        embedder: Embedder | EllipsisType | None = ...,
        gate: Gate | None = None,
        exporter: Exporter | None = None,
        store: storage.Store | None = None,
        **settings: Unpack[SettingsKeywords],
    ) -> None:
        usable = self.settings = Settings(**settings)
        _report_settings(usable)
        if isinstance(embedder, str):
            raise TypeError("embedder must be an Embedder or None; set names in KP_EMBEDDER")
        if gate is not None and not callable(getattr(gate, "decide", None)):
            raise TypeError('gate must be a Gate or None; threshold takes "top 10%"')
        if embedder is ...:
            embedder = shared_embedder(usable.embedder, threads=usable.embedder_threads)
        self._limits = usable.limits
        self._store = storage.SqliteStore.at(usable.db) if store is None else store
        if usable.shared is not None and not isinstance(self._store, storage.SqliteStore):
            raise TypeError(NO_FILE)
        self._embedder = embedder
        self._gate = gate
        self._exporter = None if exporter is None else OwnExporter(exporter)
        self._exporter_senders: list[Callable[[], ExporterSender]] = []
        self._closed = False
        self._create_workers()
        _open.add(self)
        _register_finalizer()

    @property
    def closed(self) -> bool:
        """True if the pipeline is closed and records nothing more."""
        return self._closed

    def start_recording(self, framework: str) -> Recorder | None:
        """Return a recorder for one run of a framework, or None if recording is off.

        When the recorder is finished, its run goes through the pipeline.
        """
        if not self.settings.enabled or is_judging.get():
            return None
        if self._closed:
            self._drop()
            return None
        return Recorder(self._take, self._limits, framework=framework)

    def submit(self, trace: ReasoningTrace, *, owner: str | None = None) -> None:
        """Submit a trace that you built yourself.

        Args:
            trace: The trace.
            owner: Owner of the run, such as a customer's id: it is recalled for nobody else. Only a
                fingerprint is stored.

        Raises:
            TypeError: If it is not a ReasoningTrace.
        """
        if not isinstance(trace, ReasoningTrace):
            raise TypeError(f"expected a ReasoningTrace, got {type(trace).__name__}")
        if self.settings.enabled:
            self._take(SubmittedTrace(trace, owner))

    def end_thread(
        self, thread_id: str | int, *, success: bool | None = None, confidence: float | None = None
    ) -> None:
        """End a thread: its paused runs become one trace, which is scored.

        Args:
            thread_id: The one in LangGraph's ``configurable``.
            success: Whether its task was done; None keeps the outcome of its last run; if that run
                waits for a person, the trace is incomplete.
            confidence: How sure you are, 0 to 1; None keeps that of the last run.

        Raises:
            ValueError: If the confidence is not from 0 to 1.
            TypeError: If confidence is not a number, or success not a bool.
        """
        end = ThreadEnd(fingerprint(str(thread_id)), *checked_outcome(success, confidence))
        if self.settings.enabled:
            self._take(end)

    def feedback(
        self, trace_id: str | None, *, success: bool | None = None, confidence: float | None = None
    ) -> None:
        """Report a run's actual outcome, minutes or months after its end.

        The run is scored and decided again in the background. If it clears now, it is sent; if it
        no longer clears and has not been sent, it stays local. Nothing is sent twice.

        Args:
            trace_id: ``current_trace().trace_id`` inside the run, or the ``trace_id`` of a
                LangChain handler. None, if nothing was recorded, is ignored.
            success: Whether its task was done; None means as stored.
            confidence: How sure you are, 0 to 1; None means what the agent stated, or otherwise
                what ``success`` suggests.

        Raises:
            ValueError: If the confidence is not from 0 to 1, or both are None.
            TypeError: If the id is not a string, confidence not a number, or success not a bool: a
                non-empty string would count as a success.
        """
        feedback = Feedback.of(trace_id, success=success, confidence=confidence)
        if self.settings.enabled and feedback is not None:
            self._take(feedback)

    @shield
    def _take(self, submission: Submission) -> None:
        """Queue a submission, and no more: this is the agent's thread."""
        if self._closed or not self._scorer.put(submission):
            self._drop()
            return
        if self._waits is None:
            if not self._scorer.start():
                raise RuntimeError("cannot start a thread; the next run tries again")
            process = sys.modules.get("multiprocessing.process")
            # ``with Pool()`` kills its daemonic children after their last job
            is_killed = process is not None and process.current_process().daemon
            self._waits = self.settings.sync or is_killed
        if self.settings.sync:
            self._scorer.wait_until_own_runs_done()
        elif self._waits:
            self._scorer.wait_until_stored(time.monotonic())

    def _drop(self) -> None:
        if self._scorer.drop() == 1:
            why = _WHEN_CLOSED if self._closed else _WHEN_FULL
            logger.warning("a run was dropped: %s; further cases are counted, not logged", why)

    def flush(self, timeout_s: float = 5.0) -> storage.Backlog:
        """Wait until recorded runs are scored and cleared runs are sent, or until the timeout.

        The registry takes 30 traces a minute unless it says otherwise: for 40, allow a minute.
        Returns at once if waiting is useless: without a key or with a refused one, while a model is
        being downloaded, if the file cannot be opened, or if the registry allows no request until a
        minute after the timeout.

        Returns:
            The unfinished work.
        """
        timeout_s = min(timeout_s, _LONGEST_S)
        is_used = self.settings.sync or self._waits is not None
        if timeout_s and not self._closed and (is_used or any(self._backlog())):
            self._scorer.start()
            self._scorer.request_check()  # another process may have left runs
        deadline = time.monotonic() + timeout_s
        self._scorer.wait_until_done(timeout_s)
        if self._shared is not None:
            self._shared.wait_until_shipped(deadline)
        self._start_senders()  # an earlier process may have left some
        for sender in self._senders:
            sender.wait_until_idle(deadline, until=deadline + WORTH_WAITING_S)
        if self._shared is not None:
            self._shared.wait_until_shipped(deadline)
        return self._backlog()

    def stats(self) -> Stats:
        """Return the counts of runs by state. Never raises; quick (30 ms for 100,000 runs)."""
        counts = storage.Counts()
        workers = (self._scorer, *self._senders, self._shared)
        trouble = next((one.trouble for one in workers if one and one.trouble), None)
        if trouble is None and self._sender is None:
            trouble = _settings_trouble(self.settings)
        try:
            counts = self._store.counts()
        except storage.DATABASE_ERRORS as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                trouble = trouble or str(storage.to_database_error(self.settings.db, error))
        in_memory, swallowed = self._scorer.waiting, dict(shield.failures)
        return Stats(*counts, in_memory, self._scorer.dropped, swallowed, trouble)

    def close(self, timeout_s: float = 5.0) -> None:
        """Flush, then stop; the next process finishes the rest. Idempotent.

        Exceeds the timeout only while finished runs are being written to the file.
        """
        self._end(time.monotonic(), min(timeout_s, _LONGEST_S))

    def _end(self, since_s: float, timeout_s: float) -> None:
        """Stop within the timeout, counted from ``since_s``, unless runs are still being stored."""
        if self._closed:
            return
        self._closed = True
        try:
            self._finish(since_s, timeout_s)
        except BaseException:  # Ctrl-C, or another signal's handler: end at once
            self._finish(time.monotonic(), 0.0)
            raise

    def _finish(self, since_s: float, timeout_s: float) -> None:
        deadline = since_s + timeout_s
        last_start = deadline - min(_LAST_REQUEST_S, timeout_s / 2)
        self._scorer.retry()
        for until in (last_start, deadline):
            self._scorer.wait_until_done(until - time.monotonic())
            if self._shared is not None:
                self._shared.wait_until_shipped(until)
            for sender in self._senders:
                sender.wait_until_idle(until)
                sender.finish()
        self._scorer.wait_until_stored(since_s, patience_in_trouble_s=timeout_s)
        self._scorer.stop(max(TROUBLE_S, deadline - time.monotonic()))
        for sender in self._senders:
            sender.stop(max(0.0, deadline - time.monotonic()))
        if self._shared is not None:
            self._shared.stop(LAST_STEP_S)
        if self._scorer.waiting:
            why = self._scorer.trouble or f"{self.settings.db}: run kp-middleware doctor"
            words = "finished runs that could not be stored and are lost: %d; %s"
            logger.warning(words, self._scorer.waiting, why)

    def _create_workers(self) -> None:
        """Create an empty queue and the workers, without starting a thread.

        After a fork, queued runs stay with the parent.
        """
        settings, store = self.settings, self._store
        self._waits = None
        exporter: Registry | OwnExporter | None = self._exporter
        if settings.visibility == "private" or settings.problems:
            exporter = None
        elif exporter is None and settings.api_key is not None:
            key = settings.api_key
            exporter = Registry(settings.registry_url, key, agent_id=settings.agent_id)
        self._sender = None if exporter is None else SendingWorker(store, settings, exporter)
        self._shared: SharedWorker | None = None
        if settings.shared is not None and isinstance(store, storage.SqliteStore):
            create_sync = partial(
                SharedLogSync, settings=settings, gate=self._gate, exporter=exporter
            )
            self._shared = SharedWorker(store, settings.db, create_sync, on_due=self._start_sending)
        own, embedder = self._exporter, self._embedder
        self._scorer = ScoringWorker(
            store,
            settings,
            partial(Stages, settings=settings, embedder=embedder, gate=self._gate, exporter=own),
            destination=settings.registry_url if own is None else own.url,
            on_queued=self._start_sending if self._shared is None else self._shared.start,
            on_step=self._start_senders,
        )
        self._senders: list[SendingWorker] = [make() for make in self._exporter_senders]
        if self._sender is not None:
            self._senders.append(self._sender)

    def _start_sending(self) -> None:
        if self._sender is not None:
            self._sender.start()

    def _start_senders(self) -> None:
        if self._shared is not None:
            self._shared.start()
        for sender in self._senders:
            if sender is not self._sender:
                sender.start()

    def _backlog(self) -> storage.Backlog:
        """Return the backlog of memory and file; an unreadable file counts as empty."""
        in_memory = self._scorer.waiting  # first: a run on its way to the file may count twice
        try:
            if isinstance(self._store, storage.SqliteStore):
                unscored, unsent = self._store.unfinished()
            else:
                counts = self._store.counts()
                unscored, unsent = counts.unscored, counts.pending
        except storage.DATABASE_ERRORS:
            unscored, unsent = storage.Backlog()
        return storage.Backlog(in_memory + unscored, unsent)


def since_text(since: datetime) -> str:
    """Format an instant as in the file; without a time zone it is local time."""
    return instant(since.astimezone(UTC).timestamp())


def _report_settings(settings: Settings) -> None:
    if wrong := _settings_trouble(settings):
        shield.log_once(logging.ERROR if settings.problems else logging.WARNING, wrong)
    if unknown := unknown_variables(Settings.model_fields):
        problems = "; ".join(f"{name} is not a setting: {fix}" for name, fix in unknown.items())
        shield.log_once(logging.WARNING, problems)


def _settings_trouble(settings: Settings) -> str | None:
    """Return why nothing is sent, with the remedy; None if all is well."""
    if not settings.problems:
        return settings.unused_login and f"nothing is sent: {settings.unused_login}"
    text = "; ".join(map(str, settings.problems))
    return f"runs are recorded, and nothing is sent until this is corrected: {text}"


_open: Final[weakref.WeakSet[Pipeline]] = weakref.WeakSet()
_registered: Final[set[int]] = set()
_forks_watched: Final[list[bool]] = []


@atexit.register
def _close_all() -> None:
    since_s = time.monotonic()
    for pipeline in list(_open):
        with suppress(KeyboardInterrupt, SystemExit):  # a second signal: the program ends anyway
            pipeline._end(since_s, _EXIT_S)  # noqa: SLF001 - our own
    join_at_exit()


def _finish_sending(**_: object) -> None:
    """Begin no request: Celery kills a child a second later, and may hang if its signal waits."""
    for pipeline in list(_open):
        for sender in pipeline._senders:  # noqa: SLF001 - our own
            sender.finish()


def _register_finalizer(forked: object = None) -> None:
    """Close also at the end of a child of multiprocessing, which does not run ``atexit``.

    A child drops its parent's finalizers, and calls this again after the fork.
    """
    if (celery := sys.modules.get("celery.signals")) is not None:
        celery.worker_process_shutdown.connect(_finish_sending, weak=False)
    util, process = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.process"))
    if util is None or process is None:
        return
    if not _forks_watched:
        _forks_watched.append(True)  # a child inherits this, and the registration
        util.register_after_fork(_close_all, _register_finalizer)
    is_child = process.parent_process() is not None
    if is_child and (forked is not None or os.getpid() not in _registered):
        _registered.add(os.getpid())
        util.Finalize(None, _close_all, exitpriority=0)


def _restart_in_child() -> None:
    """Restart the workers after a fork, which copies locks but no threads."""
    Pipeline._default_lock = threading.Lock()  # noqa: SLF001 - our own
    _register_finalizer()  # a fork server's child imports the program before it knows its parent
    for pipeline in list(_open):
        pipeline._scorer.abandon_in_child()  # noqa: SLF001 - our own
        pipeline._create_workers()  # noqa: SLF001


at_fork(after_in_child=_restart_in_child)
