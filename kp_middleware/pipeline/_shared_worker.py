"""The thread that speaks with the shared log."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from kp_middleware.core.gates import Gate
from kp_middleware.export import OwnExporter, Registry
from kp_middleware.pipeline._shared_exchange import Exchange
from kp_middleware.pipeline._threads import LAST_STEP_S, Worker
from kp_middleware.settings import Settings
from kp_middleware.sharing import load
from kp_middleware.storage import TROUBLE, SqliteStore, no_fork

_EVERY_S: Final = 1.0
_LONGEST_S: Final = 60.0
_luck: Final = random.Random().random  # noqa: S311 - spreads attempts; a program may have seeded the shared one


class SharedWorker(Worker):
    """The thread ``kp-shared``: one process of a file at a time ships for all."""

    def __init__(
        self,
        store: SqliteStore,
        settings: Settings,
        gate: Gate | None,
        exporter: Registry | OwnExporter | None,
        *,
        on_due: Callable[[], None],
    ) -> None:
        words = "runs are kept, and nothing is shared for now"
        super().__init__("kp-shared", settings.db, words)
        self._store = store
        self._settings, self._gate, self._exporter = settings, gate, exporter
        self._on_due = on_due
        self._asked = self._done = 0

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

    def _work(self) -> None:
        with no_fork():
            load()
        exchange: Exchange | None = None
        failures = 0
        with closing(self._store.apart()) as store:
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
                    self._say(error)
                    wait_s = min(2.0**failures, _LONGEST_S) * _luck()
                    failures += 1
                    self._stopping.wait(max(wait_s, LAST_STEP_S))
                    continue
                self.trouble, failures = None, 0
                if not waits:
                    with self._changed:
                        self._done = asked
                        self._changed.notify_all()
                if not more:
                    self._stopping.wait(0.02)  # so that single runs are shipped together
                    self._wake.wait(LAST_STEP_S if waits else _EVERY_S)
            if exchange is not None:
                exchange.close()
