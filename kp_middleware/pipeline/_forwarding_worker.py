"""The thread that sends what is in the outbox."""

import logging
import threading
import time
from contextlib import closing
from typing import Final

from kp_middleware.database import connect
from kp_middleware.forwarding import Forwarder, Pace, Registry
from kp_middleware.pipeline._daemon import start_daemon
from kp_middleware.settings import Settings
from kp_middleware.storage import OutboxTable

logger = logging.getLogger("kp_middleware")

_NEVER_S: Final = 3600.0


class ForwardingWorker:
    """Sends what is in the outbox: only where there is a key."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may come back here in the same thread
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._idle = threading.Event()

    def start(self) -> None:
        """Look into the outbox, in the background."""
        self._idle.clear()
        self._wake.set()
        with self._starting:
            if self._thread is None:
                self._thread = start_daemon("kp-forwarding", self._work)

    def stop(self, timeout_s: float) -> None:
        """Stop after the trace in hand; the others stay in the outbox."""
        self._stopping.set()
        self._wake.set()
        thread = self._thread  # it takes itself off when it ends
        if thread is not None:
            thread.join(timeout_s)

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
        except Exception:
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
