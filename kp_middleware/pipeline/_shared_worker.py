"""The thread that speaks with the shared log."""

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from kp_middleware.core.gates import Gate
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.export import OwnExporter, Registry
from kp_middleware.pipeline._lifecycle import start_daemon
from kp_middleware.pipeline._shared_exchange import Exchange
from kp_middleware.settings import Settings
from kp_middleware.sharing import load
from kp_middleware.storage import TROUBLE, SqliteStore, in_words, no_fork

logger = logging.getLogger("kp_middleware")

_EVERY_S: Final = 1.0
_LONGEST_S: Final = 60.0
_LAST_STEP_S: Final = 0.3
_luck: Final = random.Random().random  # noqa: S311 - spreads attempts; a program may have seeded the shared one


class SharedWorker:
    """The thread ``kp-shared``: one process of a file at a time ships for all.

    ``trouble`` says why the shared log cannot be used now, and what to do.
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
