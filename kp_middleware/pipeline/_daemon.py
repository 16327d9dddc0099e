"""Threads that keep no program from ending, but for the step in hand."""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

_ending: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


def start_daemon(name: str, work: Callable[[], None], *, ends: bool = False) -> threading.Thread:
    """Begin to work in the background.

    Args:
        name: Of the thread.
        work: What it does.
        ends: Whether it ends soon when it is told to: then the end of the program waits for it.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    if ends:
        _ending.add(thread)
    thread.start()
    return thread


def wait_for_ends(timeout_s: float) -> None:
    """Wait for the threads that were told to end.

    Python stops daemon threads wherever they are; inside a library of C++, such as the embedding
    model's, that aborts the whole program.
    """
    deadline = time.monotonic() + timeout_s
    for thread in list(_ending):
        thread.join(max(0.0, deadline - time.monotonic()))
