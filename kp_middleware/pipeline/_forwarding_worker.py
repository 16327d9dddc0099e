"""The thread that sends what is in the outbox."""

import logging
import threading
import time
from contextlib import closing
from typing import Final

from kp_middleware import locations
from kp_middleware.forwarding import Forwarder, Registry
from kp_middleware.pipeline._daemon import start_daemon
from kp_middleware.pipeline._shared_pace import SharedPace
from kp_middleware.settings import Settings
from kp_middleware.storage import OutboxTable, PacingTable, RestingConnection

logger = logging.getLogger("kp_middleware")

_AT_MOST_S: Final = 3600.0  # then we look again, whatever the clock did


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
            with (
                closing(RestingConnection(self._settings.db)) as connection,
                closing(self._registry),
            ):
                outbox = OutboxTable(
                    connection,
                    registry=self._settings.registry_url,
                    agent_id=self._settings.agent_id,
                )
                pace = _shared_pace(self._registry)
                self._forward(Forwarder(outbox, self._registry, pace=pace, clock=time.time))
        except Exception:
            logger.warning("nothing is sent for now", exc_info=True)
        finally:
            self._thread = None
            self._idle.set()

    def _forward(self, forwarder: Forwarder) -> None:
        while not self._stopping.is_set():
            self._idle.clear()  # or a program could end in the midst of a request
            self._wake.clear()
            more_in_s = forwarder.forward_due(self._stopping)
            if more_in_s is None or more_in_s > 0:
                if not self._wake.is_set():
                    self._idle.set()
                self._wake.wait(_AT_MOST_S if more_in_s is None else min(more_in_s, _AT_MOST_S))


def _shared_pace(registry: Registry) -> SharedPace:
    table = PacingTable(
        locations.pacing_file(),
        registry=registry.url.rstrip("/"),
        agent_id=registry.agent_id,
        key_hash=registry.key_hash,
    )
    return SharedPace(table, longest_request_s=registry.timeout_s)
