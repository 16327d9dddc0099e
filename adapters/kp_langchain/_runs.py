"""Which runs are going on, and which root each belongs to."""

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kp_langchain._ledger import Ledger
from kp_middleware.recording import Beside, causes

if TYPE_CHECKING:
    from uuid import UUID

    from kp_langchain._root import Root

_MAX_ROOTS: Final = 2048
_MAX_ERRORS: Final = 20
_REMEMBERED: Final = 4096  # runs that are over, at the least: enough to know what comes late


class Run:
    """A chain, a model, a tool or a retriever that is running.

    Attributes:
        is_root: Whether no run is around it.
        tool, call_id: Where it is a tool.
        around: The tool that it is inside of, or None.
        agent: Inside which agent of its root's it runs; None: the root's own.
        tells: Whether it is a model, a tool or a retriever: it has something to say at its end.
        is_last: Whether it is over, and nothing more comes of its root.
        paused: Whether something in it waits for a human.
        paused_inside: Whether a graph that it called waits for one; it may go on all the same.
    """

    tool: str | None = None
    call_id: str | None = None
    agent: str | None = None
    is_last = False
    tells = False
    paused = False
    paused_inside = False
    failed_inside: deque[dict[str, Any]] | None = None
    _started_s = 0.0
    _inner: Ledger | None = None

    def __init__(self, root: "Root", ledger: Ledger, parent: "Run | None") -> None:
        self.root = root
        self.ledger = ledger
        self.parent = parent
        self.is_root = parent is None
        self.around: str | None = None if parent is None else parent.tool or parent.around

    @property
    def ends_trace(self) -> bool:
        """Whether it is over, and the trace ends with it."""
        return self.is_last and self.root.owned

    def beside(self, call_id: str | None = None) -> Beside | None:
        """What is known of a step of this run, beside the step."""
        if not self.root.follows:
            call_id = None
        return None if self.agent is None and call_id is None else Beside(self.agent, call_id)

    def use(self, tool: str, call_id: str | None) -> None:
        """It is a tool that starts now: agents inside it have a ledger of their own."""
        self.tool = tool
        self.call_id = call_id
        self._started_s = time.perf_counter()

    def fail(self, error: BaseException) -> bool:
        """Whether the error began here; else it came out of a run inside, and was noted there."""
        around = self.parent
        if around is not None:
            noted = around.failed_inside
            if noted is None:
                noted = around.failed_inside = deque(maxlen=_MAX_ERRORS)
            noted.append(vars(error))  # not its id, which may soon be another's
        if self.failed_inside is None:
            return True
        inside = [*self.failed_inside]
        return all(vars(cause) is not noted for cause in causes(error) for noted in inside)

    def inner_ledger(self) -> Ledger:
        """The ledger of the runs inside this tool."""
        if self.root.one_ledger:
            return self.ledger
        if self._inner is None:
            self._inner = Ledger()
            self._inner.follows = self.ledger.follows
        return self._inner

    def pause(self) -> None:
        """It waits for a human: so does what is around it, and the calls inside are still owed."""
        self.paused = True
        if self.parent is not None:
            self.parent.paused = True
        if self._inner is not None:
            self.ledger.owe(self._inner.owed)

    def rest(self, *, is_node: bool) -> None:
        """It ended well, while something in it waits for a human.

        A graph does so. What called it waits too, unless it goes on: a node that ends has done so.
        """
        if self.parent is not None and not is_node:
            self.parent.paused_inside = True

    @property
    def latency_ms(self) -> float | None:
        """Since the tool started; None where it is no tool."""
        if self.tool is None:
            return None
        return (time.perf_counter() - self._started_s) * 1000


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
