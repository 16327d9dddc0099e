"""Empties the outbox, one parcel at a time."""

import logging
import random
import threading
from collections.abc import Callable
from typing import Final, Protocol

from kp_middleware.errors import (
    RegistryError,
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.forwarding._pace import Pace, backoff_s
from kp_middleware.forwarding._pace_keeper import PaceKeeper
from kp_middleware.parcels import Parcel, Receipt

logger = logging.getLogger(__name__)

_MOST_ATTEMPTS: Final = 8


class Outbox(Protocol):
    """The rows that wait. Several methods, because each is one transition of the same row."""

    def claim(self, now: float, /) -> Parcel | None:
        """The next row that is due, ours until its lease ends, or None."""

    def next_due(self) -> float | None:
        """When the next row is due or its lease ends, in epoch seconds; None: nothing waits."""

    def sent(self, parcel: Parcel, receipt: Receipt, /) -> None:
        """It arrived."""

    def rejected(self, parcel: Parcel, error: RegistryRejectedError, /) -> None:
        """It will never be accepted."""

    def postpone(
        self, parcel: Parcel, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        """It is due again at ``retry_at``, epoch seconds; ``counted`` adds one to its attempts.

        A ``RegistryForbiddenError`` or a 429 was a 4xx answer: the next idempotency key is another.
        """

    def block(self, parcel: Parcel, reason: str, /) -> None:
        """It is not tried again by itself."""


class Submitter(Protocol):
    """Takes a parcel to the registry: a ``Registry``."""

    def submit(self, parcel: Parcel, /) -> Receipt:
        """Post it, or raise the ``RegistryError`` that says what to do."""


class Forwarder:
    """Sends what is due, as fast as the pace allows.

    A failure counts against its row only if the answer before it was a sensible one. While nothing
    succeeds, the registry is to blame: all sending pauses, and no row uses up its attempts. The
    pause is shorter than the row's own wait: a document the registry chokes on holds up no other.

    Args:
        outbox: The rows.
        registry: Where they go.
        pace: What we may ask of the registry, and what all who share it have asked.
        clock: Epoch seconds.
        luck: A number from 0 to 1, another each time.
    """

    def __init__(
        self,
        outbox: Outbox,
        registry: Submitter,
        *,
        pace: PaceKeeper,
        clock: Callable[[], float],
        luck: Callable[[], float] = random.random,  # noqa: S311 - guards nothing
    ) -> None:
        self._outbox = outbox
        self._registry = registry
        self._pace = pace
        self._clock = clock
        self._luck = luck
        self._said: set[str] = set()

    def forward_due(self, stop: threading.Event | None = None) -> float | None:
        """Send what is due and allowed now, unless another process is sending.

        Args:
            stop: Once set, no further parcel is begun; None: nothing stops it.

        Returns:
            In how many seconds there may be more to do; None if nothing waits.

        Raises:
            DatabaseError: As the outbox does. Nothing the registry does raises.
        """
        try:
            wait_s = self._send_due(stop)
        finally:
            self._pace.release()
        due_at = self._outbox.next_due()
        return None if due_at is None else max(wait_s, due_at - self._clock())

    def _send_due(self, stop: threading.Event | None) -> float:
        while self._any_due() and not (stop and stop.is_set()):
            wait_s = self._pace.take()
            if wait_s > 0:
                return wait_s
            parcel = self._outbox.claim(self._clock())
            if parcel is None:
                break  # another process claimed it
            self._send(parcel)
        return 0.0

    def _any_due(self) -> bool:
        due_at = self._outbox.next_due()
        return due_at is not None and due_at <= self._clock()

    def _send(self, parcel: Parcel) -> None:
        pace = self._pace.spend()
        if pace is None:
            error = RegistryUnavailableError("not sent yet: another process is sending")
            self._outbox.postpone(parcel, error, retry_at=self._clock(), counted=False)
            return
        try:
            receipt = self._registry.submit(parcel)
        except RegistryRejectedError as error:
            self._reject(parcel, error)
        except RegistryForbiddenError as error:
            self._stop(parcel, error)
        except RegistryUnavailableError as error:
            if error.status == 429:
                self._slow_down(parcel, error)
            else:
                self._put_off(parcel, error, pace)
        else:
            self._pace.settle(_answered)
            self._outbox.sent(parcel, receipt)

    def _reject(self, parcel: Parcel, error: RegistryRejectedError) -> None:
        self._pace.settle(_answered)
        self._outbox.rejected(parcel, error)
        self._say("a trace stays local, the first is row %d: %s", parcel.trace_seq, error)

    def _stop(self, parcel: Parcel, error: RegistryForbiddenError) -> None:
        self._pace.settle(Pace.forbidden)
        self._outbox.postpone(parcel, error, retry_at=self._clock(), counted=False)
        self._say("nothing more is sent: %s", error)

    def _slow_down(self, parcel: Parcel, error: RegistryUnavailableError) -> None:
        retry_after_s = error.retry_after_s or 0
        wait_s = self._pace.settle(lambda before, now: before.limited(now, retry_after_s))
        self._outbox.postpone(parcel, error, retry_at=self._clock() + wait_s, counted=False)
        self._say("sending pauses for %.0f s: %s", wait_s, error)

    def _put_off(self, parcel: Parcel, error: RegistryUnavailableError, pace: Pace) -> None:
        luck, counted = self._luck(), pace.answering
        attempts, failures = parcel.attempts + 1, pace.failures + 1
        pause_s = max(backoff_s(failures, luck) / 2, error.retry_after_s or 0)
        self._pace.settle(lambda before, now: before.failed(now, pause_s))
        if counted and attempts >= _MOST_ATTEMPTS:
            self._outbox.block(parcel, "retries_exhausted")
            self._say("a trace stays local after %d attempts: %s", attempts, error)
            return
        retry_at = self._clock() + pause_s + backoff_s(max(failures, attempts), luck) / 2
        self._outbox.postpone(parcel, error, retry_at=retry_at, counted=counted)
        self._say("the registry is in trouble, what waits is sent later: %s", error)

    def _say(self, words: str, *facts: object) -> None:
        """Warn once for each kind of trouble: the outbox knows the rest."""
        logger.log(logging.DEBUG if words in self._said else logging.WARNING, words, *facts)
        self._said.add(words)


def _answered(pace: Pace, _now: float) -> Pace:
    return pace.answered()
