"""Daemon threads, some of which the exit waits for."""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

_joined: Final[weakref.WeakKeyDictionary[threading.Thread, float]] = weakref.WeakKeyDictionary()


def start_daemon(
    name: str, work: Callable[[], None], *, join_s: float | None = None
) -> threading.Thread:
    """Start a daemon thread; the exit waits up to ``join_s`` for it."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    if join_s is not None:
        _joined[thread] = join_s
    thread.start()
    return thread


def join_at_exit() -> None:
    """Wait for the threads that were started with ``join_s``.

    A daemon thread that Python stops inside the embedding model's library aborts the program.
    """
    started = time.monotonic()
    for thread, join_s in list(_joined.items()):
        thread.join(max(0.0, started + join_s - time.monotonic()))
