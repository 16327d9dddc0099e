"""The pipeline of a process: a queue, a thread that scores, one that sends, and their figures."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from kp_middleware.core.gates import Gate
from kp_middleware.embedding import Embedder
from kp_middleware.export import Exporter, OwnExporter, Receipt, Registry
from kp_middleware.forks import at_fork
from kp_middleware.locations import unknown_variables
from kp_middleware.pipeline._lifecycle import close_at_exit, may_be_killed_here, still_open
from kp_middleware.pipeline._queue import FinishedRun, RunQueue
from kp_middleware.pipeline._sending import MoreExporter, SendingWorker
from kp_middleware.pipeline._shared_worker import SharedWorker
from kp_middleware.pipeline._worker import ScoringWorker
from kp_middleware.recording import shield
from kp_middleware.runs import ExportedRun
from kp_middleware.settings import Settings
from kp_middleware.storage import TROUBLE, Backlog, Counts, SqliteStore, Store, in_words


class Stats(NamedTuple):
    """Counts of traces; those of the file are of all processes that share it.

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
        blocked: Not certainly clean, or given up after too many attempts.
        in_memory: Runs of this process that are not in the file yet.
        dropped: Runs of this process that are lost, because too many waited.
        swallowed: Failures of recording in this process, kept from the agent: counts by kind.
        trouble: Why the file cannot be used now, or nothing be sent because a setting is wrong, and
            what to do about it; None if all is well.
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
    in_memory: int
    dropped: int
    swallowed: Mapping[str, int]
    trouble: str | None


logger = logging.getLogger("kp_middleware")


def tell_once(settings: Settings) -> None:
    """Log what is wrong in one line, and variables that nobody reads in another."""
    if wrong := settings_trouble(settings):
        shield.tell(logging.ERROR if settings.problems else logging.WARNING, wrong)
    if unknown := unknown_variables(Settings.model_fields):
        told = "; ".join(f"{name} is no setting: {remedy}" for name, remedy in unknown.items())
        shield.tell(logging.WARNING, told)


def settings_trouble(settings: Settings) -> str | None:
    """Say why nothing is sent, and what to do; None if all is well."""
    if not settings.problems:
        return settings.unused_login and f"nothing is sent: {settings.unused_login}"
    told = "; ".join(map(str, settings.problems))
    return f"runs are recorded, and nothing is sent until this is corrected: {told}"


_MOMENT_S: Final = 0.1
_CLOSED: Final = "the pipeline is closed, which should come after the last run"
_TOO_MANY: Final = "too many wait to be scored: see kp.stats().trouble, or raise max_queue_bytes"
_PATIENCE_S: Final = 10.0  # with a worker that keeps no run for so long, and does not say why


class Pipeline:
    """Take finished runs from the agents' threads; no thread is started before the first."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        embedder: Embedder | None,
        gate: Gate | None,
        exporter: Exporter | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._embedder = embedder
        self._gate = gate
        self._exporter = None if exporter is None else OwnExporter(exporter)
        self._more: list[MoreExporter] = []
        self._waits: bool | None  # whether a run's end does; None: nothing is started
        self._start_afresh()
        self.closed = False
        close_at_exit(self)

    @shield
    def submit(self, run: FinishedRun) -> None:
        """Put a run on the queue, and no more: this is the agent's thread."""
        if self.closed or not self._queue.put(run):
            self.drop()
            return
        if self._waits is False:
            return
        if self._waits is None:
            self._scorer.start()
            self._waits = self._settings.sync or may_be_killed_here()
        if self._settings.sync:
            self._scorer.wait_until_ours_done()
        elif self._waits:
            self._queue.wait_until_kept(
                time.monotonic(), _PATIENCE_S, patience_in_trouble_s=_MOMENT_S
            )

    def drop(self) -> None:
        """Count a run that is not recorded; the first is logged."""
        if self._queue.drop() == 1:
            why = _CLOSED if self.closed else _TOO_MANY
            logger.warning("a run was dropped: %s; more are counted, not logged", why)

    def flush(self, timeout_s: float) -> Backlog:
        """Wait until all is scored and sent, or the time is over; return the backlog."""
        if timeout_s and (self._settings.sync or self._scorer.is_started or any(self._backlog())):
            self._scorer.look_again()  # another process may have left it
        deadline = time.monotonic() + timeout_s
        self._queue.wait_until_done(timeout_s)
        self._wait_until_shared(deadline)
        self._start_more()  # an earlier process may have left some
        for sender in self._all_senders():
            sender.wait_until_sent(deadline)
        self._wait_until_shared(deadline)
        return self._backlog()

    def stats(self) -> Stats:
        """Return how many runs were recorded, scored, sent and lost."""
        counts = Counts()
        trouble = self._scorer.trouble or next(
            filter(None, (sender.trouble for sender in self._all_senders())), None
        )
        trouble = trouble or (None if self._sender else settings_trouble(self._settings))
        try:
            counts = self._store.counts()
        except TROUBLE as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                trouble = trouble or str(in_words(self._settings.db, error))
        in_memory, swallowed = self._queue.waiting, dict(shield.failures)
        return Stats(*counts, in_memory, self._queue.dropped, swallowed, trouble)

    def end(self, since_s: float, timeout_s: float) -> None:
        """Stop within the timeout, counted from ``since_s``, unless runs are still being stored."""
        if self.closed:
            return
        self.closed = True
        deadline = since_s + timeout_s
        self._scorer.try_again()
        self._queue.wait_until_done(deadline - time.monotonic())
        self._wait_until_shared(deadline)
        for sender in self._all_senders():
            sender.wait_until_idle(max(0.0, deadline - time.monotonic()))
        self._queue.wait_until_kept(since_s, _PATIENCE_S, patience_in_trouble_s=timeout_s)
        self._scorer.stop(max(_MOMENT_S, deadline - time.monotonic()))
        for sender in self._all_senders():
            sender.stop(0.0)
        if self._shared is not None:
            self._shared.stop()
        if self._queue.waiting:
            why = self._scorer.trouble or f"{self._settings.db}: kp-middleware doctor looks into it"
            words = "finished runs that could not be kept, and are lost: %d; %s"
            logger.warning(words, self._queue.waiting, why)

    def start_in_a_child(self) -> None:
        """Start in a forked child, with an empty queue: the parent keeps its runs."""
        self._scorer.leave_to_the_parent()
        self._start_afresh()

    def _wait_until_shared(self, deadline: float) -> None:
        if self._shared is not None:
            self._shared.wait_until_shipped(deadline)

    def _start_afresh(self) -> None:
        """Create an empty queue and the workers, without starting a thread."""
        self._waits = None
        self._queue = RunQueue(self._settings.max_queue_bytes)
        self._sender = self._make_sender()
        self._shared = self._make_shared()
        self._scorer = ScoringWorker(
            self._queue,
            self._store,
            self._settings,
            self._embedder,
            self._gate,
            self._exporter,
            on_queued=self._start_sending if self._shared is None else self._shared.start,
            on_step=self._start_more,
        )
        self._more_senders = [one.worker(self._store, self._settings) for one in self._more]

    def _make_sender(self) -> SendingWorker | None:
        exporter = self._destination()
        return None if exporter is None else SendingWorker(self._store, self._settings, exporter)

    def _destination(self) -> Registry | OwnExporter | None:
        """Return where runs go; None if this program sends none."""
        settings = self._settings
        if settings.visibility == "private" or settings.problems:
            return None
        if self._exporter is not None or settings.api_key is None:
            return self._exporter
        return Registry(settings.registry_url, settings.api_key, agent_id=settings.agent_id)

    def _make_shared(self) -> SharedWorker | None:
        if self._settings.shared is None:
            return None
        if not isinstance(self._store, SqliteStore):
            raise TypeError("shared reads the file: a store of your own has none")
        return SharedWorker(
            self._store,
            self._settings,
            self._gate,
            self._destination(),
            on_due=self._start_sending,
        )

    def add_exporter(
        self,
        exporter: Callable[[ExportedRun], Receipt | None],
        *,
        send: Literal["cleared", "all"],
        name: str | None,
        since: str,
    ) -> None:
        """Give the runs of the file to one more exporter; see `KnowledgePulse.add_exporter`."""
        if send not in {"cleared", "all"}:
            raise ValueError(f'send is "cleared" or "all", this is {send!r}')
        named: Any = name or getattr(exporter, "name", None)
        own = OwnExporter(exporter, named if isinstance(named, str) else None)
        if not isinstance(self._store, SqliteStore):
            raise TypeError("add_exporter reads the file: a store of your own has none")
        if any(one.exporter.url == own.url for one in self._more):
            raise ValueError(f"there is an {own.url} already: give each a name of its own")
        if self._settings.visibility != "private" and not self._settings.problems:
            more = MoreExporter(own, send, since)
            self._more.append(more)
            self._more_senders.append(more.worker(self._store, self._settings))

    def _start_more(self) -> None:
        if self._shared is not None:
            self._shared.start()
        for sender in self._more_senders:
            sender.start()

    def _all_senders(self) -> list[SendingWorker]:
        return [*self._more_senders, *([] if self._sender is None else [self._sender])]

    def _start_sending(self) -> None:
        if self._sender is not None:
            self._sender.start()

    def _backlog(self) -> Backlog:
        """Return the backlog of memory and file; an unreadable file counts as empty."""
        try:
            unscored, unsent = self._store.unfinished()
        except TROUBLE:
            unscored, unsent = Backlog()
        return Backlog(self._queue.waiting + unscored, unsent)


def _start_afresh_in_the_child() -> None:
    """Restart the workers after a fork, which copies locks but no threads."""
    for pipeline in still_open():
        pipeline.start_in_a_child()


at_fork(after_in_child=_start_afresh_in_the_child)
