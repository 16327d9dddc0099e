"""Which runs are going on, and which root each belongs to."""

import threading
from typing import TYPE_CHECKING, Final

from kp_langchain._ledger import Ledger
from kp_langchain._run import Run

if TYPE_CHECKING:
    from uuid import UUID

    from kp_langchain._root import Root

_MAX_ROOTS: Final = 2048
_REMEMBERED: Final = 4096  # runs that are over, at the least: enough to know what comes late


class Runs:
    """The live runs by id. What is kept of a root goes at its end, all at once.

    Args:
        kp: Of the pipeline that records them. Kept here, so that no other can have its ``id``.

    Its owner may take the lock again: the garbage collector may close an abandoned stream, and so
    report its end, while this very thread is in here.
    """

    def __init__(self, kp: object) -> None:
        self.kp = kp
        self.renew_lock()
        self._live: dict[int, Run] = {}  # by int: hashing a UUID takes longer than all the rest
        self._roots: dict[Root, int] = {}
        self._over: set[int] = set()
        self._over_before: set[int] = set()
        self._trace_ids: dict[int, str] = {}

    def renew_lock(self) -> None:
        """Nobody holds it."""
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._live)

    def get(self, run_id: "UUID | None") -> Run | None:
        """A live run, else None."""
        return None if run_id is None else self._live.get(run_id.int)

    def trace_id(self, run_id: "UUID") -> str | None:
        """Of a root's trace, live or over; None where it is none, or too long ago."""
        return self._trace_ids.get(run_id.int)

    def join(self, run_id: "UUID", parent_id: "UUID | None") -> Run | None:
        """Begin a run inside a live one; None where there is none, or it has begun already."""
        if parent_id is None:
            return None
        key = run_id.int
        with self._lock:
            parent = self._live.get(parent_id.int)
            if parent is None or key in self._live:
                return None
            ledger = parent.ledger if parent.tool is None else parent.inner_ledger()
            parent.paused_inside = False
            run = self._live[key] = Run(parent.root, ledger, parent)
            parent.root.run_keys.add(key)
            return run

    def is_news(self, run_id: "UUID", parent_id: "UUID | None") -> bool:
        """Whether a run that joined none is neither told of twice nor after the end of its root."""
        with self._lock:
            if run_id.int in self._live:
                return False
            if parent_id is not None and self._is_over(parent_id.int):
                self._remember(run_id.int)
                return False
            return True

    def open(self, run_id: "UUID", root: "Root") -> Run:
        """Begin a root; where there are too many, the oldest is given up."""
        key = run_id.int
        run = Run(root, Ledger(), None)
        with self._lock:
            self._live[key] = run
            self._roots[root] = key
            self._trace_ids[key] = root.recorder.trace_id
            if len(self._trace_ids) > _REMEMBERED:
                del self._trace_ids[next(iter(self._trace_ids))]
            abandoned = self._one_too_many()
        if abandoned is not None:
            abandoned.give_up()
        return run

    def end(self, run_id: "UUID", *, streamed: bool = False) -> Run | None:
        """The run is over, and with a root all that is left of it; None if it was not live.

        Args:
            run_id: Its own.
            streamed: Whether it is a chain's stream. One that is closed early ends before the runs
                inside it, which will yet tell what they said: its trace ends with the last of them.
        """
        key = run_id.int
        with self._lock:
            run = self._live.pop(key, None)
            if run is None:
                return None
            self._remember(key)
            root = run.root
            root.run_keys.discard(key)
            if run.parent is None:
                root.closed_early = streamed and self._awaits(root)
                run.is_last = not root.closed_early
            else:
                run.is_last = root.closed_early and not self._awaits(root)
            if run.is_last:
                self._close(root)
            return run

    def ignore(self, run_id: "UUID") -> None:
        """Record neither this run nor what runs inside it."""
        with self._lock:
            self._remember(run_id.int)

    def _awaits(self, root: "Root") -> bool:
        """Whether a run inside it will yet say something; of other chains, some never end."""
        return any(self._live[key].tells for key in root.run_keys)

    def _one_too_many(self) -> "Root | None":
        if len(self._roots) <= _MAX_ROOTS:
            return None
        oldest, key = next(iter(self._roots.items()))
        self._live.pop(key, None)
        self._remember(key)
        self._close(oldest)
        return oldest

    def _close(self, root: "Root") -> None:
        del self._roots[root]
        left, root.run_keys = root.run_keys, set()
        for inner in left:
            self._live.pop(inner, None)
        self._over |= left

    def _remember(self, key: int) -> None:
        self._over.add(key)
        if len(self._over) > _REMEMBERED:
            self._over_before, self._over = self._over, set()

    def _is_over(self, key: int) -> bool:
        return key in self._over or key in self._over_before
