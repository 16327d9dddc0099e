"""Threads of ours, and what those have in common that begin where there is work."""

import logging
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from kp_middleware.errors import KnowledgePulseError
from kp_middleware.storage import TROUBLE, in_words

logger = logging.getLogger("kp_middleware")

LOOK_AGAIN_S: Final = 1.0
"""How long a thread waits where it is in trouble, or something is not ready."""

LAST_STEP_S: Final = 0.3
"""How long the program's end waits for a thread that is told to stop."""

_ending: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


def start_daemon(name: str, work: Callable[[], None], *, ends: bool = False) -> threading.Thread:
    """Begin to work in the background; the program's end waits for what ``ends`` soon."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    if ends:
        _ending.add(thread)
    thread.start()
    return thread


def wait_for_ends(timeout_s: float) -> None:
    """Wait for the threads that were told to end.

    A daemon thread that Python stops inside the embedding model's library aborts the program.
    """
    deadline = time.monotonic() + timeout_s
    for thread in list(_ending):
        thread.join(max(0.0, deadline - time.monotonic()))


class Worker:
    """A thread that begins where there is work, and is told to look again or to stop.

    ``trouble`` says why it cannot work now, and what to do about it; None if all is well. It is
    logged once, after ``words`` that say what follows from it.
    """

    def __init__(self, name: str, db: Path, words: str, *, ends: bool = False) -> None:
        self._name = name
        self._db = db
        self._words = words
        self._ends = ends
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()  # a finalizer may come back here in the same thread
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._changed = threading.Condition()
        self.trouble: str | None = None

    def start(self) -> None:
        """Begin to work in the background, or look again soon."""
        self._wake.set()
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                with suppress(RuntimeError):  # Python 3.12.0 to 3.12.2 start none at the very end
                    self._thread = start_daemon(self._name, self._run, ends=self._ends)

    def stop(self, timeout_s: float) -> bool:
        """Stop after the step in hand; return whether it has ended by then."""
        self._stopping.set()
        self._wake.set()
        thread = self._thread  # it takes itself off when it ends
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _work(self) -> None:
        """Work until it is told to stop."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self._work()
        except KnowledgePulseError as error:
            self._say(error)
        except Exception:
            words = "%s until the next run: this is a defect of kp-middleware, please report it"
            logger.warning(words, self._words, exc_info=True)
        finally:
            with self._changed:
                self._thread = None
                self._changed.notify_all()

    def _say(self, error: BaseException) -> None:
        """Say what is wrong, once; of an unknown error also where it came from."""
        told = in_words(self._db, error) if isinstance(error, TROUBLE) else error
        if self.trouble is None:
            unknown = None if isinstance(told, KnowledgePulseError) else error
            logger.warning("%s: %s", self._words, told, exc_info=unknown)
        self.trouble = str(told)
