"""The thread that speaks with the shared log: it ships, asks, hands over and pulls."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

import numpy as np

from kp_middleware.core.evaluation import Evaluation, Run, Terms, evaluate
from kp_middleware.core.formula import DEFAULT_PROFILE, PROFILES, Nearest, Shape, Weights
from kp_middleware.core.gates import Gate, gate_of
from kp_middleware.errors import KnowledgePulseError, SharedLogError
from kp_middleware.export import OwnExporter, Registry
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._lifecycle import start_daemon
from kp_middleware.pipeline._reevaluate import WarnOnce
from kp_middleware.pipeline._sending import destination
from kp_middleware.pipeline._sharing import VERSION, Candidate, Documents
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.sharing import (
    Decided,
    Known,
    Link,
    LogChangedError,
    LoggedVector,
    Place,
    Pod,
    PostgresLog,
    SharedOutbox,
    SharedRun,
    beat,
    item_states,
    load,
)
from kp_middleware.storage import TROUBLE, Asking, SharedRuns, SqliteStore, in_words, no_fork
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

_EVERY_S: Final = 1.0
_PULL_S: Final = 30.0
_BEAT_S: Final = 30.0
_LEASE_S: Final = 30.0
_LONGEST_S: Final = 60.0
_LAST_STEP_S: Final = 0.3
_AT_ONCE: Final = 100
_MOST_BYTES: Final = 4_000_000
_REFUSED: Final = ("22", "23", "54")  # classes of SQLSTATE: this row, not the server
_luck: Final = random.Random().random  # noqa: S311 - spreads attempts; a program may have seeded the shared one


class Exchange:
    """One pass: what waits in the file goes to the log, and what is there comes here.

    Args:
        store: Of the runs; of this thread alone.
        settings: Of the pipeline.
        gate: The user's own, or None.
        exporter: Where runs go; None if this program sends none.
    """

    def __init__(
        self,
        store: SqliteStore,
        settings: Settings,
        gate: Gate | None,
        exporter: Registry | OwnExporter | None,
    ) -> None:
        url = settings.shared
        assert url is not None  # noqa: S101 - or there is no such thread
        self._store = store
        self._runs: SharedRuns = store.shared_runs()
        policy = Policy.of(settings)
        pod = self._runs.pod()
        self.link = Link(url.get_secret_value(), pod)
        self._log = PostgresLog(self.link, pod, newest=settings.cache_size)
        self._items: SharedOutbox | None = None
        own = exporter if isinstance(exporter, OwnExporter) else None
        if isinstance(exporter, Registry):
            self._items = self._log.outbox(exporter.url, exporter.agent_id, exporter.key_hash)
            self._log = PostgresLog(self.link, pod, newest=settings.cache_size, items=self._items)
        self._pod = pod
        self._settings = settings
        self._gate = gate or gate_of(settings)
        self._documents = Documents(settings, policy, pod)
        self._dispatch = Dispatch(store, settings, policy, own)
        self._outbox = store.outbox(destination(settings, own), settings.agent_id)
        self._profiles = {
            **PROFILES,
            **{
                name: one if isinstance(one, Weights) else Weights(**one)
                for name, one in settings.profiles.items()
            },
        }
        self._warn_once = WarnOnce()
        self._pull_at_s = self._beat_at_s = 0.0

    def run(self) -> bool:
        """Do what there is to do; return whether more is left that can be done at once.

        Raises:
            SharedLogError: If the log cannot be used now.
            DatabaseError, sqlite3.Error: If the file cannot be used now.
        """
        if not self._runs.take_lease(_LEASE_S):
            return False
        try:
            asking = self._runs.asking(_AT_ONCE)
            if asking or time.monotonic() >= self._pull_at_s:
                self._pull()
            self._decide(asking)
            seqs = self._runs.to_ship(_AT_ONCE)
            self._ship(seqs)
            self._hand_over()
        except LogChangedError:
            logger.warning("%s is not the log it was: what is missing is shipped again", self._log)
            self._begin_anew()
            return True
        self._beat()
        return len(asking) == _AT_ONCE or len(seqs) == _AT_ONCE

    def waits(self) -> bool:
        """Return whether anything waits for the log."""
        return any(self._runs.unshared()[:2])

    def any_due(self) -> bool:
        """Return whether there is something to send: for this agent, of any host."""
        if self._items is None:
            return self._dispatch.any_pending()
        return self._items.next_due() is not None

    def close(self) -> None:
        """Let another process ship."""
        with suppress(*TROUBLE):
            self._runs.release_lease()
        self.link.close()

    def _beat(self) -> None:
        """Tell the other hosts now and then that we are here, and how it goes."""
        if time.monotonic() < self._beat_at_s:
            return
        to_ship, asking, since = self._runs.unshared()
        place = self._runs.place() or Place()
        told = f"{self._gate.name}, {self._settings.embedder}"
        beat(self.link, Pod(self._pod, VERSION, told, place.seq, to_ship + asking, since))
        self._beat_at_s = time.monotonic() + _BEAT_S

    def _pull(self) -> None:
        place, before = self._runs.place(), None
        while place != before or before is None:
            before = place
            vectors, place = self._log.pull(place)
            if place != before:
                self._runs.pulled(vectors, place)
        self._pull_at_s = time.monotonic() + _PULL_S

    def _begin_anew(self) -> None:
        there: dict[str, int] = {}
        after = 0
        while known := self._runs.in_log(after, 1000):
            after = known[-1][0]
            there |= self._log.places([id_ for _, id_ in known])
        self._runs.begin_anew(there)

    def _ship(self, seqs: Sequence[int]) -> None:
        with no_fork():
            rows = [(seq, row) for seq in seqs if (row := self._row(seq)) is not None]
        batch: list[tuple[int, SharedRun]] = []
        size = 0
        for seq, row in rows:
            size += len(row.body or "") + len(row.vector or b"")
            if size > _MOST_BYTES and batch:
                self._ship_some(batch)
                batch, size = [], 0
            batch.append((seq, row))
        if batch:
            self._ship_some(batch)

    def _ship_some(self, rows: Sequence[tuple[int, SharedRun]]) -> None:
        try:
            places = self._log.ship([row for _, row in rows])
        except SharedLogError as error:
            if (error.sqlstate or "")[:2] not in _REFUSED:
                raise
            if len(rows) == 1:
                logger.warning("trace %d is not shared: %s", rows[0][0], error)
                self._runs.keep_here(rows[0][0])
                return
            middle = len(rows) // 2
            self._ship_some(rows[:middle])
            self._ship_some(rows[middle:])
        else:
            self._runs.shipped(places)

    def _row(self, seq: int) -> SharedRun | None:
        found = self._runs.run(seq, self._pod)
        if found is None:
            return None
        run, document = found
        body = None
        if document is not None and self._documents.are_redacted:
            trace = ReasoningTrace.model_validate_json(document)
            redacted = self._documents.redacted(trace, run.score)
            body = None if isinstance(redacted, str) else redacted[0]
        shared, redactor = self._documents.shared(document, body)
        return replace(run, body=shared, redactor=redactor)

    def _decide(self, asking: Sequence[Asking]) -> None:
        with no_fork():
            found = [one for asks in asking if (one := self._candidate(asks)) is not None]
        if not found:
            return
        candidates = {one.trace.id: one for one in found}
        decided: dict[str, Evaluation] = {}

        def judge(known: Known) -> list[Decided]:
            decided.update((id_, run.evaluation) for id_, run in known.answered.items())
            fresh = [one for id_, one in candidates.items() if id_ not in known.answered]
            return [self._judged(one, known, decided) for one in fresh]

        first = min(one.asking.place for one in found)
        places = self._log.decide([*candidates], Place(first), judge)
        for id_, evaluation in decided.items():
            self._settle(candidates[id_], evaluation, places[id_])

    def _candidate(self, asking: Asking) -> Candidate | None:
        """Read and redact a run that asks; None if it cannot be read."""
        stored, ending = self._store.stored(asking.seq), self._store.ending(asking.seq)
        trace = ReasoningTrace.model_validate_json(stored.document)
        trace = trace.ended(success=ending.success, confidence=ending.confidence)
        metadata = trace.metadata
        delivery = self._dispatch.blocking_reason(metadata.visibility, ending, metadata.created_at)
        redacted = self._documents.redacted(trace, 0.0)
        body, counts = (None, "{}") if isinstance(redacted, str) else redacted
        run = Run(
            Shape(stored.steps, trace.shape.types, stored.tools, stored.recoveries),
            ending.confidence,
            ending.success,
            None if asking.similarity is None else Nearest(asking.nearest or "", asking.similarity),
            asking.embedder,
            p_success=ending.p_success(asking.p_success),
            is_stated=ending.is_stated,
        )
        return Candidate(
            asking,
            trace,
            ending,
            body,
            counts,
            redacted if isinstance(redacted, str) else "",
            self._runs.facts(asking.seq),
            delivery,
            run,
        )

    def _judged(self, one: Candidate, known: Known, decided: dict[str, Evaluation]) -> Decided:
        domain = one.trace.metadata.task_domain
        run = replace(one.run, nearest=nearest(one.run.nearest, one.asking, known.newer))
        weights = self._profiles.get(domain, self._profiles[DEFAULT_PROFILE])
        evaluation = evaluate(run, known.history(domain), Terms(weights, self._gate, self._warn))
        leaves = evaluation.verdict.decision == "forward"
        if leaves and one.delivery is not None:
            verdict = evaluation.verdict.staying(one.delivery)
            leaves, evaluation = False, evaluation._replace(verdict=verdict)
        row = self._documents.row(one, evaluation)
        item = self._documents.item(one, row.score) if leaves and self._items else None
        known.add(row)
        decided[row.id] = evaluation
        return Decided(row, item)

    def _settle(self, one: Candidate, evaluation: Evaluation, place: int) -> None:
        """Write a decision to the file, with the outbox item that stands in the log, too."""
        seq, verdict = one.asking.seq, evaluation.verdict
        with self._store.transaction():
            if not self._runs.decide(seq):
                return  # its trace was removed, or another process was first
            self._store.save_evaluation(
                seq, evaluation, took_ms=one.asking.took_ms, p_success=one.run.p_success
            )
            self._runs.shipped({one.trace.id: place})
            if verdict.decision == "forward" and "delivery" not in verdict.reason.args:
                self._queue(one, evaluation.score.value)

    def _queue(self, one: Candidate, score: float) -> None:
        item = self._documents.item(one, score)
        if item is None:
            self._outbox.add_blocked(
                one.asking.seq, one.why_not, redactor=Policy.of(self._settings).redactor
            )
            return
        counts: Mapping[str, int] = {}
        self._outbox.add(one.asking.seq, item.body, redactor=item.redactor, redactions=counts)
        if self._items is not None:
            self._runs.handed_over([one.asking.seq])

    def _hand_over(self) -> None:
        """Hand over what was queued here, and note what became of what the other hosts send."""
        if self._items is None:
            return
        if left := self._runs.to_hand_over(_AT_ONCE):
            self._items.add([item for _, item in left])
            self._runs.handed_over([seq for seq, _ in left])
        if gone := self._runs.open_items("cancelled", _AT_ONCE):
            self._items.cancel(gone)
            self._runs.cancelled(gone)
        if waiting := self._runs.open_items("pending", 5 * _AT_ONCE):
            self._runs.note(item_states(self.link, waiting))

    def _warn(self, error: BaseException) -> None:
        self._warn_once.warn("a run stays here, the gate failed", error)


def nearest(here: Nearest | None, asking: Asking, newer: Sequence[LoggedVector]) -> Nearest | None:
    """Return the nearest run of those known here and those that other hosts have appended since."""
    if asking.vector is None:
        return here
    others = [
        one
        for one in newer
        if one.seq > asking.place
        and one.embedder == asking.embedder
        and len(one.vector) == len(asking.vector)
    ]
    if not others:
        return here
    rows = np.frombuffer(b"".join(one.vector for one in others), "<f4").reshape(len(others), -1)
    similarities = rows @ np.frombuffer(asking.vector, "<f4")
    at = int(similarities.argmax())
    found = Nearest(others[at].id, min(1.0, max(-1.0, float(similarities[at]))))
    return found if here is None or found.similarity > here.similarity else here


class SharedWorker:
    """The thread ``kp-shared``: one process of a file at a time ships for all.

    Args:
        store: Of the runs.
        settings: Of the pipeline.
        gate: The user's own, or None.
        exporter: Where runs go; None if this program sends none.
        on_due: Called when any host has something to send.

    Attributes:
        trouble: Why the shared log cannot be used now, and what to do; None if all is well.
    """

    def __init__(
        self,
        store: SqliteStore,
        settings: Settings,
        gate: Gate | None,
        exporter: Registry | OwnExporter | None,
        *,
        on_due: Callable[[], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._gate = gate
        self._exporter = exporter
        self._on_due = on_due
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may come back here in the same thread
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._changed = threading.Condition()
        self._asked = self._done = 0
        self._failures = 0
        self.trouble: str | None = None

    def start(self) -> None:
        """Begin to work in the background, or look again soon."""
        self._wake.set()
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                with suppress(RuntimeError):  # Python 3.12.0 to 3.12.2 start none at the very end
                    self._thread = start_daemon("kp-shared", self._work)

    def wait_until_shipped(self, deadline: float) -> None:
        """Return when all that waits in the file is in the log, or the time is over."""
        with self._changed:
            self._asked += 1
            asked = self._asked
        self.start()
        with self._changed:
            self._changed.wait_for(
                lambda: self._done >= asked or self._thread is None,
                max(0.0, deadline - time.monotonic()),
            )

    def stop(self) -> None:
        """Stop after the exchange in hand, which a silent server may keep for some seconds."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_LAST_STEP_S)

    def _work(self) -> None:
        try:
            with no_fork():
                load()
            with closing(self._store.apart()) as store:
                self._go_on(store)
        except KnowledgePulseError as error:
            self._say(str(error))
        except Exception:
            words = "nothing is shared until the next run: a defect of kp-middleware, report it"
            logger.warning(words, exc_info=True)
        finally:
            with self._changed:
                self._thread = None
                self._changed.notify_all()

    def _go_on(self, store: SqliteStore) -> None:
        exchange: Exchange | None = None
        while not self._stopping.is_set():
            self._wake.clear()
            asked = self._asked
            try:
                if exchange is None:
                    exchange = Exchange(store, self._settings, self._gate, self._exporter)
                more = exchange.run()
                waits = exchange.waits()
                if exchange.any_due():
                    self._on_due()
            except TROUBLE as error:
                self._fail(error)
                continue
            self.trouble, self._failures = None, 0
            if not waits:
                with self._changed:
                    self._done = asked
                    self._changed.notify_all()
            if not more:
                self._rest(_LAST_STEP_S if waits else _EVERY_S)
        if exchange is not None:
            exchange.close()

    def _rest(self, seconds: float) -> None:
        """Wait a moment in any case, so that single runs are shipped together."""
        self._stopping.wait(min(seconds, 0.02))
        self._wake.wait(seconds)

    def _fail(self, error: Exception) -> None:
        self._say(str(in_words(self._settings.db, error)))
        wait_s = min(2.0**self._failures, _LONGEST_S) * _luck()
        self._failures += 1
        self._stopping.wait(max(wait_s, _LAST_STEP_S))

    def _say(self, words: str) -> None:
        if self.trouble is None:
            logger.warning("runs are kept, and nothing is shared for now: %s", words)
        self.trouble = words
