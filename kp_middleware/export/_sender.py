"""The sender, which exports outbox items one at a time: to the registry, or a custom exporter."""

import logging
import random
import re
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from pydantic_core import to_json

from kp_middleware import errors
from kp_middleware.export._exporter import OwnExporter
from kp_middleware.export._registry import Registry
from kp_middleware.outbox_items import Outbox, OutboxItem, Receipt
from kp_middleware.rate_limit import LocalPace, Pace, backoff_s
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger(__name__)

_jitter: Final = random.Random().random  # noqa: S311 - guards nothing; a program may have seeded the shared one
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL fails on both: always a 500


class Sender:
    """A sender that exports due outbox items, as fast as the rate limit allows.

    A failure counts as an attempt of its item only if the previous request succeeded: while every
    request fails, the registry is to blame, and all sending pauses. The pause is shorter than the
    item's own backoff, so that one document that always fails does not delay the others.
    """

    def __init__(
        self,
        outbox: Outbox,
        registry: Registry | OwnExporter,
        *,
        pace: LocalPace,
        clock: Callable[[], float],
        jitter: Callable[[], float] = _jitter,
    ) -> None:
        self._outbox = outbox
        self._registry = registry
        self._pace = pace
        self._clock = clock
        self._jitter = jitter
        self._pending_writes: deque[Callable[[], None]] = deque()
        self._item_lock = threading.Lock()
        self._current_item: OutboxItem | None = None
        self._ended = False
        self._failed_last: int | None = None
        self._warned: set[str] = set()

    def send_due(self, stop: threading.Event | None = None) -> float | None:
        """Send the items that are due, unless another process is sending, until ``stop`` is set.

        Returns:
            The seconds until there may be more to do, infinity if the user has to act first; None
            if the outbox is empty.
        """
        try:
            self._flush_writes()
            wait_s = self._send_due(stop)
        finally:
            if self._pending_writes and not (stop and stop.is_set()):
                self._pace.settle(lambda pace, _: pace)  # the next process might send the same item
            else:
                self._pace.release(ended=bool(stop and stop.is_set()))
        due_at = self._outbox.next_due()
        return None if due_at is None else max(wait_s, due_at - self._clock())

    def abandon(self) -> bool:
        """Stop sending, and release the current item to the next process; from any thread.

        The registry's answer is discarded. False means that no request is in progress.
        """
        with self._item_lock:
            self._ended = True
            item, self._current_item = self._current_item, None
            if item is None:
                return False
            # Before the sending thread continues: it would hand over to the next process, which
            # would also count the request without an answer.
            outcome = Pace.answer_lost if self._registry.abort() else Pace.cancelled
            self._pace.settle_and_release(lambda pace, _: outcome(pace))
        self._outbox.release(item)
        return True

    def _send_due(self, stop: threading.Event | None) -> float:
        while not (self._ended or (stop and stop.is_set())):
            due_at = self._outbox.next_due()
            if due_at is None or due_at > self._clock():
                break
            if (wait_s := self._pace.take()) > 0:
                return wait_s
            if (item := self._outbox.claim(self._clock())) is None:
                break  # another process claimed it
            if stop and stop.is_set():  # with a shared log, each step takes a while
                self._enqueue_write(partial(self._outbox.release, item))
                break
            self._send(item)
        return 0.0

    def _send(self, item: OutboxItem) -> None:
        pace = self._pace.spend()
        if pace is None:
            self._enqueue_write(partial(self._outbox.release, item))  # another process is sending
            return
        with self._item_lock:
            is_over = self._ended
            self._current_item = None if is_over else item
        if is_over:
            self._pace.settle(lambda before, _: before.cancelled())
            self._enqueue_write(partial(self._outbox.release, item))
            return
        try:
            answer: Receipt | errors.RegistryError = self._registry.export(item)
        except errors.RegistryError as error:
            answer = error
        with self._item_lock:
            still_ours = self._current_item is not None
            self._current_item = None
        if still_ours:
            self._record_answer(item, answer, pace)

    def _record_answer(
        self, item: OutboxItem, answer: Receipt | errors.RegistryError, pace: Pace
    ) -> None:
        was_down = pace.failures > 0
        match answer:
            case Receipt():
                left = answer.allowance
                self._pace.settle(lambda before, now: before.answered().with_allowance(now, left))
                self._enqueue_write(partial(self._outbox.sent, item, answer), revived=was_down)
            case errors.RegistryRejectedError():
                self._pace.settle(lambda before, _: before.answered())
                words = "a trace was not sent (row %d): %s; see kp-middleware outbox"
                self._warn(f"{words} --failed", item.trace_seq, answer)
                self._enqueue_write(partial(self._outbox.rejected, item, answer), revived=was_down)
            case errors.RegistryForbiddenError():
                self._pace.settle(lambda before, now: before.forbidden(now, answer.problem))
                self._warn("nothing more is sent: %s", answer)
                self._postpone(item, answer, 0.0)
            case errors.RegistryUnavailableError(status=429):
                retry_after_s = answer.retry_after_s or 0
                wait_s = self._pace.settle(lambda before, now: before.limited(now, retry_after_s))
                self._warn("sending pauses for %.0f s; no action is needed: %s", wait_s, answer)
                self._postpone(item, answer, wait_s)
            case errors.RegistryUnavailableError():
                self._back_off(item, answer, pace)
            case _:
                raise answer

    def _back_off(
        self, item: OutboxItem, error: errors.RegistryUnavailableError, pace: Pace
    ) -> None:
        jitter, attempts, failures = self._jitter(), item.attempts + 1, pace.failures + 1
        pause_s = backoff_s(failures, jitter) / 2
        if item.trace_seq == self._failed_last:  # one document must not delay the others
            pause_s = min(pause_s, 150.0)
        self._failed_last = item.trace_seq
        pause_s = max(pause_s, error.retry_after_s or 0)
        self._pace.settle(lambda before, now: before.failed(now, pause_s, error.problem))
        if pace.answering and attempts >= 8:
            words = "a trace was not sent after %d attempts: %s; to retry: %s"
            self._warn(words, attempts, error, "kp-middleware outbox retry --failed")
            self._enqueue_write(partial(self._outbox.block, item, "retries_exhausted"))
            return
        wait_s = backoff_s(max(failures, attempts), jitter)
        self._warn("sending is paused, the queue is sent later: %s", error)
        self._postpone(item, error, max(wait_s, pause_s + wait_s / 2), counted=pace.answering)

    def _postpone(
        self, item: OutboxItem, error: errors.RegistryError, wait_s: float, *, counted: bool = False
    ) -> None:
        retry_at, postpone = self._clock() + wait_s, self._outbox.postpone
        self._enqueue_write(partial(postpone, item, error, retry_at=retry_at, counted=counted))

    def _enqueue_write(self, write: Callable[[], None], *, revived: bool = False) -> None:
        self._pending_writes.append(write)
        if revived:
            self._pending_writes.append(self._outbox.retry_now)
        self._flush_writes()

    def _flush_writes(self) -> None:
        while self._pending_writes:
            self._pending_writes[0]()
            self._pending_writes.popleft()

    def _warn(self, words: str, *facts: object) -> None:
        """Warn once for each kind of problem, and log repetitions at debug level."""
        kinds = (str(fact.problem.kind) for fact in facts if isinstance(fact, errors.RegistryError))
        kind = " ".join((words, *kinds))
        logger.log(logging.DEBUG if kind in self._warned else logging.WARNING, words, *facts)
        self._warned.add(kind)


def payload(trace: ReasoningTrace, *, score: float, agent_id: str | None) -> bytes:
    """Return the exact bytes to post: the trace and its score as UTF-8 JSON without nulls.

    U+0000 and lone surrogates, which no registry can store, become U+FFFD. ``agent_id`` is the
    registered one, or the unit can never be deleted there; None keeps the trace's own.
    """
    if not 0 <= score <= 1:
        raise ValueError(f"a score is from 0 to 1, not {score}")
    named = {} if agent_id is None else {"agent_id": agent_id}
    metadata = trace.metadata.model_copy(update={"quality_score": float(score), **named})
    document = trace.model_copy(update={"metadata": metadata}).model_dump(exclude_none=True)
    return to_json(_storable(document), inf_nan_mode="null")


def _storable(value: object) -> object:
    match value:
        case str():
            return _UNSTORABLE.sub("\ufffd", value)
        case list() | tuple():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value
