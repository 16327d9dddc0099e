"""The tree of live spans and their roots, independent of any framework."""

import threading
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from kp_middleware.recording._span import RootSpan, Span

_MAX_ROOTS: Final = 2048
_REMEMBERED: Final = 4096  # spans at least, enough to recognise late reports


class SpanTree:
    """The live spans by id. All spans of a root are removed when it ends.

    Args:
        kp: The pipeline that records them, referenced so that its ``id`` is not reused.

    The lock is reentrant, because the garbage collector may close an abandoned stream, and so
    report its end, while the same thread holds the lock.
    """

    def __init__(self, kp: object) -> None:
        self.kp = kp
        self._lock = threading.RLock()
        self._live: dict[int, Span] = {}  # by int: hashing a UUID takes longer than all the rest
        self._roots: dict[RootSpan, int] = {}
        self._over = Remembered()
        self._ignored = Remembered()
        self._trace_ids: dict[int, str] = {}

    def leave_to_the_parent(self) -> None:
        """Drop all spans in a forked child: a span inside a parent's span is a root there."""
        self._lock = threading.RLock()
        self._over.update(self._live)
        self._live, self._roots = {}, {}

    def __len__(self) -> int:
        return len(self._live)

    def get(self, run_id: int | None) -> Span | None:
        """Return the live span with this id, or None."""
        return None if run_id is None else self._live.get(run_id)

    def trace_id(self, run_id: int) -> str | None:
        """Return the trace id of a root, live or ended; None if it is no root or too old."""
        return self._trace_ids.get(run_id)

    def join(self, run_id: int, parent_id: int | None) -> Span | None:
        """Begin a span inside a live one; return None without a live parent or if begun already."""
        if parent_id is None:
            return None
        key = run_id
        with self._lock:
            parent = self._live.get(parent_id)
            if parent is None or key in self._live:
                return None
            ledger = parent.ledger if parent.tool is None else parent.inner_ledger()
            parent.paused_inside = False
            root = parent.root
            run = self._live[key] = Span(root, ledger, parent)
            root.run_keys.add(key)
            root.begun += 1
            run.number = root.begun
            return run

    def is_news(self, run_id: int, parent_id: int | None) -> bool:
        """Return whether a span is new: not live already, nor inside an ignored span."""
        with self._lock:
            if run_id in self._live:
                return False
            if parent_id is not None and parent_id in self._ignored:
                self._ignored.add(run_id)
                return False
            return True

    def is_over(self, run_id: int | None) -> bool:
        """Return whether a recorded span has ended, or was live in the parent before a fork."""
        return run_id is not None and run_id in self._over

    def open(self, run_id: int, root: RootSpan) -> Span:
        """Begin a root; if there are too many, give up the oldest."""
        key = run_id
        run = Span(root, root.new_calls(), None)
        with self._lock:
            self._live[key] = run
            abandoned = self._add_root(key, root)
        if abandoned is not None:
            abandoned.give_up()
        return run

    def end(self, run_id: int, *, streamed: bool = False) -> Span | None:
        """End a span, and with a root the spans left in it; return None if it was not live.

        Args:
            run_id: The id of the span.
            streamed: True for a chain's stream. If closed early, it ends before the spans inside
                it, which still report their output: its trace ends with the last of them.
        """
        key = run_id
        with self._lock:
            run = self._live.pop(key, None)
            if run is None:
                return None
            self._over.add(key)
            run.is_over = True
            root = run.root
            root.run_keys.discard(key)
            if run.parent is None:
                root.closed_early = streamed and self._awaits(root)
                run.is_last = not root.closed_early
            else:
                run.is_last = root.closed_early and not self._awaits(root)
            if run.is_last:
                root.outliving = bool(root.run_keys) and run.parent is None and not streamed
                self._close(root)
            return run

    def outliving(self, over: RootSpan) -> list[tuple[int, Span]]:
        """Return the outermost chains that go on after their root, with their ids."""
        with self._lock:
            return [(key, inside[key]) for key, inside in self._chains(over).items()]

    def inside(self, root: RootSpan) -> list[Span]:
        """Return the live spans inside a root, in the order in which they began."""
        with self._lock:
            runs = [run for key in root.run_keys if (run := self._live.get(key)) is not None]
        return sorted(runs, key=lambda run: run.number)

    def move(self, over: RootSpan, roots: Mapping[int, RootSpan]) -> None:
        """Make each chain that goes on after its root a root, with the spans live in it."""
        abandoned = []
        with self._lock:
            for key, inside in self._chains(over).items():
                if (root := roots.get(key)) is not None:
                    over.run_keys.difference_update(inside)
                    abandoned.append(self._move(key, inside, root))
            over.outliving = False
            self._leave(over.run_keys)
            over.run_keys = set()
        for root in filter(None, abandoned):
            root.give_up()

    def ignore(self, run_id: int) -> None:
        """Ignore a span and the spans inside it."""
        with self._lock:
            self._ignored.add(run_id)

    def _awaits(self, root: RootSpan) -> bool:
        """Return whether a model, tool or retriever in it is live; a chain may never end."""
        return any(self._live[key].tells for key in root.run_keys)

    def _chains(self, root: RootSpan) -> dict[int, dict[int, Span]]:
        """Return the outermost live chains inside an ended root, with the live spans of each."""
        left = {key: run for key in root.run_keys if (run := self._live.get(key)) is not None}
        keys = {id(run): key for key, run in left.items()}
        found: dict[int, dict[int, Span]] = {}
        for key, run in sorted(left.items(), key=lambda item: item[1].number):
            outermost = run
            while outermost.parent is not None and id(outermost.parent) in keys:
                outermost = outermost.parent
            if not outermost.tells:  # a tool or a model may have been given up
                found.setdefault(keys[id(outermost)], {})[key] = run
        return found

    def _move(self, key: int, inside: Mapping[int, Span], root: RootSpan) -> RootSpan | None:
        outermost, around = inside[key], inside[key].around
        for run in inside.values():
            run.root, run.after = root, None
            if run.around == around:
                run.around = run.agent = None
        outermost.parent, outermost.is_root = None, True
        root.run_keys = {*inside} - {key}
        root.begun = max(run.number for run in inside.values())
        return self._add_root(key, root)

    def _add_root(self, key: int, root: RootSpan) -> RootSpan | None:
        """Store a root and its trace id; return the oldest root, removed, if too many."""
        self._roots[root] = key
        self._trace_ids[key] = root.recorder.trace_id
        if len(self._trace_ids) > _REMEMBERED:
            del self._trace_ids[next(iter(self._trace_ids))]
        if len(self._roots) <= _MAX_ROOTS:
            return None
        oldest, oldest_key = next(iter(self._roots.items()))
        self._live.pop(oldest_key, None)
        self._ignored.update((oldest_key, *oldest.run_keys))
        self._close(oldest)
        return oldest

    def _close(self, root: RootSpan) -> None:
        del self._roots[root]
        staying = {*chain.from_iterable(self._chains(root).values())} if root.outliving else set()
        root.silent = self._leave(root.run_keys - staying)
        root.run_keys = staying

    def _leave(self, keys: set[int]) -> list[Span]:
        """Mark spans as ended, and return those that were live."""
        self._over.update(keys)
        return [run for key in keys if (run := self._live.pop(key, None)) is not None]


class Remembered:
    """The ids of the last few thousand spans."""

    def __init__(self) -> None:
        self._last: set[int] = set()
        self._before: set[int] = set()

    def __contains__(self, key: int) -> bool:
        return key in self._last or key in self._before

    def add(self, key: int) -> None:
        """Add an id."""
        self.update((key,))

    def update(self, keys: Iterable[int]) -> None:
        """Add several ids."""
        self._last.update(keys)
        if len(self._last) > _REMEMBERED:
            self._before, self._last = self._last, set()
