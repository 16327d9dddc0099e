"""Threads, forks and the end of the process."""

import atexit
import concurrent.futures.thread  # noqa: F401 - what the worker loads at the end needs it loaded before
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kp_middleware.forks import at_fork

if TYPE_CHECKING:
    from kp_middleware.pipeline._pipeline import Pipeline


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


_EXIT_S: Final = 2.0
_LAST_STEP_S: Final = 10.0  # loading the model takes a second or two, embedding a run 0.1

_open: "weakref.WeakSet[Pipeline]" = weakref.WeakSet()
_promised: Final[set[int]] = set()
_asked: Final[list[bool]] = []


def close_at_exit(pipeline: "Pipeline") -> None:
    """End it when this process ends, unless it is gone by then."""
    _open.add(pipeline)
    _promise_for_multiprocessing()
    _promise_after_fork()  # a fork server's child imports a program before it knows whose it is


def still_open() -> "list[Pipeline]":
    """Return the pipelines of this process, closed or not."""
    return list(_open)


def may_be_killed_here() -> bool:
    """Return whether this is a daemonic child, which ``with Pool()`` kills after its last job."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().daemon


@atexit.register
def _close_all() -> None:
    since_s = time.monotonic()
    for pipeline in still_open():
        pipeline.end(since_s, _EXIT_S)
    wait_for_ends(_LAST_STEP_S)


def _promise_for_multiprocessing(_: object = None) -> None:
    """Register a multiprocessing finalizer: its children do not run ``atexit``."""
    util, process = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.process"))
    if util is None or process is None or process.parent_process() is None:
        return
    if os.getpid() not in _promised:
        _promised.add(os.getpid())
        util.Finalize(None, _close_all, exitpriority=0)


def _promise_after_fork() -> None:
    """Register the finalizer again after a fork: a child drops those of its parent."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _asked:
        _asked.append(True)  # a child inherits this, and what was asked for
        util.register_after_fork(_close_all, _promise_for_multiprocessing)


at_fork(after_in_child=_promise_after_fork)
