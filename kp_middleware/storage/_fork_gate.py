"""What keeps a fork from finding an SQLite file of ours open."""

import sqlite3
import threading
import time
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Final
from weakref import WeakValueDictionary

from kp_middleware.forks import at_fork

_FORK_WAITS_S: Final = 3.0  # the first step imports much, which a child could then never import
_GIVE_WAY_S: Final = 0.001
_USE_WAITS_S: Final = 5.0  # as for another process that has locked the file


class ForkGate:
    """Whoever uses a file is inside; a fork waits until nobody is, and closes what is open there.

    SQLite keeps in the memory of a process which locks the process has, and a forked child has
    none of them. With an open connection it would inherit the belief that it has. A gate without a
    connection keeps a thread from being forked in the midst of other things that hold locks.

    Make a gate that is entered inside of another one after that: forks shut them in this order.

    Attributes:
        connection: What stays open between two uses, or None.
    """

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self._lock = threading.RLock()
        self._inside = 0
        self._awaited = False
        self._lost = False
        _gates.add(self)

    def enter(self) -> None:
        """Use the file; once more for a thread that does so already.

        Raises:
            TimeoutError: If a fork or another thread takes too long, or this is a forked child and
                the gate was its parent's.
        """
        if self._lost:
            raise TimeoutError("this process was forked while its parent used the file")
        if self._awaited and not self._inside:
            time.sleep(_GIVE_WAY_S)  # who leaves and enters again at once is always the first
        if not self._lock.acquire(timeout=_USE_WAITS_S):
            raise TimeoutError("another thread uses the file, or forks this process")
        self._inside += 1

    def leave(self) -> None:
        """End what `enter` began."""
        self._inside -= 1
        self._lock.release()

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def put_down(self) -> None:
        """Close what is open."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def shut(self, deadline: float) -> bool:
        """Let no thread in until `open`; False if one is still inside at the deadline."""
        self._awaited = True
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._awaited = False
            return False
        if not self._inside:  # else this thread forks in the midst of a statement of its own
            with suppress(sqlite3.Error):
                self.put_down()
        return True

    def open(self) -> None:
        """End what `shut` began."""
        self._awaited = False
        self._lock.release()

    def lose(self) -> sqlite3.Connection | None:
        """Let nobody in again; returns what could not be closed."""
        self._lost = True
        return self.connection


class _Forks(threading.local):
    """What this thread has shut for the forks it is about to make."""

    def __init__(self) -> None:
        self.held: list[ExitStack] = []


class _Gates:
    """All gates of the process, and what becomes of them when it forks."""

    def __init__(self) -> None:
        self._forking = threading.RLock()
        self._gates: WeakValueDictionary[int, ForkGate] = WeakValueDictionary()
        self._forks = _Forks()
        self._left_open: list[sqlite3.Connection] = []

    def add(self, gate: ForkGate) -> None:
        forking = self._forking
        waited = forking.acquire(timeout=_FORK_WAITS_S)  # a fork would not know of this gate
        self._gates[id(gate)] = gate
        if waited:
            forking.release()

    def shut(self) -> None:
        """Before a fork.

        Asking a registry and waiting for runs are outside every gate, so this waits for one step
        of scoring at most. A model that is being loaded may outlast it: the fork goes on all the
        same, for a program that hangs is worse, and no file is open then. It is where a transaction
        waits for another process all the while: in the child that file may stay locked.
        """
        deadline = time.monotonic() + _FORK_WAITS_S
        held = ExitStack()
        self._forks.held.append(held)
        if not self._forking.acquire(timeout=_FORK_WAITS_S):
            return  # another thread is about to fork, and has shut what it could
        held.callback(self._forking.release)
        for gate in self._all():
            if gate.shut(deadline):
                held.callback(gate.open)

    def open(self) -> None:
        """After a fork, in the parent."""
        self._forks.held.pop().close()

    def lose(self) -> None:
        """After a fork, in the child: its locks are as they were, and may be a lost thread's."""
        self._forks.held.pop()
        lost = [gate.lose() for gate in self._all()]
        self._left_open += filter(None, lost)  # closing one here could end the parent's WAL
        self._forking = threading.RLock()
        self._gates = WeakValueDictionary()

    def _all(self) -> list[ForkGate]:
        """Made at once, while other threads may add some."""
        found = (reference() for reference in self._gates.valuerefs())
        return [gate for gate in found if gate is not None]


_gates = _Gates()
at_fork(before=_gates.shut, after_in_parent=_gates.open, after_in_child=_gates.lose)
