"""The thread that sends what is in the outbox."""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from kp_middleware import locations
from kp_middleware.database import PASSING_TROUBLE, TROUBLE, in_words
from kp_middleware.export import Forwarder, Registry
from kp_middleware.pipeline._daemon import start_daemon
from kp_middleware.pipeline._shared_pace import SharedPace
from kp_middleware.settings import Settings
from kp_middleware.storage import Database, OutboxTable, PacingTable

logger = logging.getLogger("kp_middleware")

_AT_MOST_S: Final = 3600.0  # then we look again, whatever the clock did
_LOOK_AGAIN_S: Final = 1.0
_LAST_STEP_S: Final = 0.3


class ForwardingWorker:
    """Sends what is in the outbox: only where there is a key.

    While the file cannot be used, nothing more is sent; one warning says why.

    Attributes:
        trouble: Why nothing is sent now, and what to do about it; None if all is well.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._forwarder: Forwarder | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may come back here in the same thread
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._resting = threading.Condition()
        self._next_at: float | None = math.inf
        self.trouble: str | None = None

    def start(self) -> None:
        """Look into the outbox, in the background."""
        with self._resting:
            self._next_at = None
            self._wake.set()
        with self._starting:
            if self._thread is None:
                with suppress(RuntimeError):  # Python 3.12.0 to 3.12.2 start none at the very end
                    self._thread = start_daemon("kp-forwarding", self._work)

    def stop(self, timeout_s: float) -> None:
        """Stop after the trace in hand; the others stay in the outbox.

        A trace that the registry says nothing to until the time is over is given back: the next
        process sends it at once.
        """
        self._stopping.set()
        self._wake.set()
        thread = self._thread  # it takes itself off when it ends
        if thread is None:
            return
        thread.join(timeout_s)
        if thread.is_alive() and not self._given_back():
            thread.join(_LAST_STEP_S)

    def wait_until_idle(self, timeout_s: float) -> None:
        """Return when nothing can be sent now, or when the time is over."""
        with self._resting:
            self._resting.wait_for(
                lambda: self._thread is None or self._next_at is not None, timeout_s
            )

    def wait_until_sent(self, deadline: float, look: Callable[[], None] = lambda: None) -> None:
        """Return when all is sent, nothing more can be by then, or the time is over.

        Args:
            deadline: On the monotonic clock.
            look: Called about once a second meanwhile.
        """
        while (left_s := deadline - time.monotonic()) > 0:
            with self._resting:
                may_end = partial(self._rests_until_after, deadline)
                if self._resting.wait_for(may_end, min(left_s, _LOOK_AGAIN_S)):
                    return
            look()

    def _rests_until_after(self, deadline: float) -> bool:
        return self._thread is None or (self._next_at is not None and self._next_at > deadline)

    def _rest_until(self, next_at: float | None) -> None:
        """Tell who waits when the next is sent, on the monotonic clock; None: one is just now."""
        with self._resting:
            self._next_at = next_at
            self._resting.notify_all()

    def _given_back(self) -> bool:
        try:
            return self._forwarder is not None and self._forwarder.give_back()
        except TROUBLE as error:
            logger.debug("the trace in hand is sent when its lease has ended: %s", error)
            return True

    def _work(self) -> None:
        try:
            with (
                closing(Database(self._settings.db)) as connection,
                closing(self._registry),
            ):
                outbox = OutboxTable(
                    connection,
                    registry=self._settings.registry_url,
                    agent_id=self._settings.agent_id,
                )
                pace = shared_pace(self._registry, self._settings.db)
                self._forwarder = Forwarder(outbox, self._registry, pace=pace, clock=time.time)
                self._go_on(self._forwarder)
        except Exception:
            words = (
                "nothing is sent until the next run: a defect of kp-middleware, please report it"
            )
            logger.warning(words, exc_info=True)
        finally:
            self._thread = None
            self._rest_until(math.inf)

    def _go_on(self, forwarder: Forwarder) -> None:
        while not self._stopping.is_set():
            self._rest_until(None)  # or a program could end in the midst of a request
            self._wake.clear()
            try:
                more_in_s = forwarder.forward_due(self._stopping)
            except TROUBLE as error:
                self._wait_for_the_file(error)
                continue
            self.trouble = None
            self._wait(more_in_s)
        with suppress(*TROUBLE):
            forwarder.forward_due(self._stopping)  # what is answered is written, our turn is over

    def _wait(self, more_in_s: float | None) -> None:
        if more_in_s is not None and more_in_s <= 0:
            return
        wait_s = math.inf if more_in_s is None else more_in_s
        with self._resting:
            if not self._wake.is_set():
                self._rest_until(time.monotonic() + wait_s)
        self._wake.wait(min(wait_s, _AT_MOST_S))

    def _wait_for_the_file(self, error: Exception) -> None:
        words = in_words(self._settings.db, error)
        if self.trouble is None:
            unknown = None if isinstance(error, PASSING_TROUBLE) else error
            logger.warning("nothing is sent for now: %s", words, exc_info=unknown)
        self.trouble = str(words)
        self._rest_until(math.inf)
        self._stopping.wait(_LOOK_AGAIN_S)


def shared_pace(registry: Registry, db: Path) -> SharedPace:
    """What all who send with this key on this machine go by."""

    def table(path: Path) -> PacingTable:
        return PacingTable(
            path,
            registry=registry.url.rstrip("/"),
            agent_id=registry.agent_id,
            key_hash=registry.key_hash,
        )

    usual, beside = map(table, locations.pacing_files(db))
    return SharedPace(
        usual,
        beside=beside,
        longest_request_s=registry.timeout_s,
    )
