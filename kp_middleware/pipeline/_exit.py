"""The end of the program: what is under way has a moment, and no finished run is left in memory."""

import atexit
import concurrent.futures.thread  # noqa: F401 - what the worker loads at the end needs it loaded before
import os
import sys
import time
import weakref
from typing import TYPE_CHECKING, Final

from kp_middleware.forks import at_fork
from kp_middleware.pipeline._daemon import wait_for_ends

if TYPE_CHECKING:
    from kp_middleware.pipeline._workers import Workers

_EXIT_S: Final = 2.0
_LAST_STEP_S: Final = 10.0  # loading the model takes a second or two, embedding a run 0.1

_open: "weakref.WeakSet[Workers]" = weakref.WeakSet()
_promised: Final[set[int]] = set()
_asked: Final[list[bool]] = []


def close_at_exit(workers: "Workers") -> None:
    """End them when this process ends, unless they are gone by then."""
    _open.add(workers)
    _promise_for_multiprocessing()
    _promise_after_fork()  # a fork server's child imports a program before it knows whose it is


def still_open() -> "list[Workers]":
    """Return the workers of this process, closed or not."""
    return list(_open)


def may_be_killed_here() -> bool:
    """Return whether this is a daemonic child, which ``with Pool()`` kills after its last job."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().daemon


@atexit.register
def _close_all() -> None:
    since_s = time.monotonic()
    for workers in still_open():
        workers.end(since_s, _EXIT_S)
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
