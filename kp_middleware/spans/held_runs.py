"""Spans held in small records until their run is over, since they tell what they were at the end.

Which span is the root of a run, and in which order its steps were, is known only then.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final
from weakref import WeakSet

from kp_middleware.confidence import Confidences
from kp_middleware.forks import at_fork
from kp_middleware.recording import (
    Here,
    Recorder,
    Recording,
    current_recorder,
    place_here,
    recordings,
    shield,
)
from kp_middleware.spans.dialects import Kind, Reading
from kp_middleware.spans.held_span import (
    ROOTS,
    HeldSpan,
    Scope,
    is_left_over,
    left_by,
    replay,
    roots_in,
)

logger = logging.getLogger("kp_middleware")

_GRACE_S: Final = 5.0
_MOST_OTHERS: Final = 1000  # spans that may begin while a run waits for its last ones
_MOST_HELD: Final = 10_000
_MOST_BYTES: Final = 16 * 1024 * 1024  # of an open run; a trace keeps one MB
_MOST_ASKED: Final = 3  # the first may tell nothing of a user


class HeldRuns:
    """The runs whose spans are told one by one: feed it with `start` and `finish`, from any thread.

    A run is recorded when its root has ended and no span in it is open, or 5 s later, or when 1,000
    other spans have begun. Of an open run at most 16 MB are held: what its spans tell later is left
    out, and so is a run ``without_content``, which told nothing that was said.
    """

    def __init__(self, kp: Recording, *, domain: str | None, confidence: Confidences) -> None:
        self.without_content = 0
        self._begin = recordings(kp, domain=domain, confidence=confidence)
        self._grace_s = _GRACE_S
        self._scopes: set[Scope] = set()
        self.forget()
        _everyone.add(self)

    def forget(self) -> None:
        """Drop all spans: in a forked child they are the parent's."""
        self._lock = threading.RLock()
        self._held: dict[int | str, HeldSpan] = {}
        self._begun = 0
        self._waiting: dict[HeldSpan, tuple[float, int]] = {}
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._held)

    def get(self, span_id: int | str | None) -> HeldSpan | None:
        """Return a span that is held, or None."""
        return None if span_id is None else self._held.get(span_id)

    def start(
        self,
        span_id: int | str,
        parent_id: int | str | None,
        scope: Scope,
        name: str,
        at_s: float,
        kind: Kind | None = None,
        read: Callable[[], Reading] | None = None,
    ) -> None:
        """Begin a span; what ``read`` returns counts if it never ends."""
        over = list[HeldSpan]()
        outer = current_recorder() if parent_id not in self._held else None
        place = place_here() if outer is not None else None
        with self._lock:
            if span_id in self._held:
                return
            self._begun += 1
            parent = self.get(parent_id)
            if parent is not None and is_left_over(parent, scope, name, at_s, self._grace_s):
                over += self._detached(self._root_of(parent))
                parent = None
            span = HeldSpan(span_id, parent, self._begun, scope, name, kind, at_s, read=read)
            if parent is not None:
                parent.inside[span_id] = span
            else:
                span.outer, span.place = outer, place
            self._held[span_id] = span
            if len(self._held) > _MOST_HELD:
                over += self._detached(next(iter(self._held.values())).outermost())
            over += self._overdue()
        self._record(over)

    def finish(
        self,
        span_id: int | str,
        kind: Kind | None,
        read: Callable[[], Reading],
        at_s: float,
        size_bytes: int = 0,
    ) -> None:
        """End a span; with the last one of a run, the run is recorded.

        ``read`` is called later, on another thread, and returns what the span told.
        """
        with self._lock:
            span = self._held.get(span_id)
            if span is None or span.ended_s is not None:
                return
            span.kind = kind or span.kind
            top = span.outermost()
            if top.held_bytes + size_bytes > _MOST_BYTES:
                read, size_bytes = partial(Reading, span.kind), 0
            top.held_bytes += size_bytes
            span.ended_s, span.size_bytes, span.read = at_s, size_bytes, read
            if span.kind is not None:
                self._scopes.add(span.scope)
            over = self._ended(span) + self._overdue()
        self._record(over)

    def wants_input(self, span_id: int | str) -> bool:
        """Return whether the messages that a model was given may say what the user asked."""
        span = self._held.get(span_id)
        if span is None or span.parent is None:
            return True
        around = (above for above in span.above() if above.kind in {None, "agent"})
        agent = next(around, span.parent)
        agent.asked += 1
        return agent.asked <= _MOST_ASKED

    def close(self) -> None:
        """Give up what is open."""
        with self._lock:
            tops = [span for span in self._held.values() if span.parent is None]
            over = [root for top in tops for root in self._detached(top)]
        self._record(over)

    @shield
    def here(self, span_id: int | str) -> Here | None:
        """Return the run that a span belongs to, for `current_trace()`."""
        with self._lock:
            span = self.get(span_id)
            if span is None:
                return None
            root = self._root_of(span)
            if root.outer is not None:
                return Here(root.outer, root.place)
            if root.recorder is None and self._is_ours(root):
                root.recorder = self._recorder_of(root)
            return None if root.recorder is None else Here(root.recorder)

    def _recorder_of(self, root: HeldSpan) -> Recorder | None:
        recorder = self._begin(root.scope.framework)
        if recorder is not None:
            recorder.clock_started_s -= max(0.0, recorder.started_at_s - root.started_s)
            recorder.started_at_s = min(recorder.started_at_s, root.started_s)
        return recorder

    def _is_ours(self, span: HeldSpan) -> bool:
        """Return whether it is, or will turn out to be, the span of an agent."""
        if span.ended_s is not None:
            return span.kind is not None
        return span.kind is not None or span.scope in self._scopes or span.scope.is_of_agents

    def _root_of(self, span: HeldSpan) -> HeldSpan:
        """Return the outermost span of ours around it, or itself."""
        *_, root = (span, *filter(self._is_ours, span.above()))
        return root

    def _ended(self, span: HeldSpan) -> list[HeldSpan]:
        """Return the run that is over with a span, if one is."""
        root = self._root_of(span)
        is_over = root.ended_s is not None and all(one.ended_s is not None for one in root.all())
        if is_over and (root is span or root.kind in ROOTS):
            return self._detached(root)
        is_left = root.scope.leaves_open and root.ended_s is None and span.parent is root
        if is_left or (root is span and root.kind in ROOTS):
            self._waiting[root] = monotonic() + self._grace_s, self._begun
            if self._timer is None:
                self._set_timer(self._grace_s)
        self._drop_if_alone(span)
        return []

    def _drop_if_alone(self, span: HeldSpan | None) -> None:
        """Forget spans that ended as none of ours, such as a request of a model's client."""
        while span is not None and span.ended_s is not None and not span.inside:
            if span.kind is not None:
                return
            self._held.pop(span.id, None)
            if span.parent is not None:
                span.parent.inside.pop(span.id, None)
            span = span.parent

    def _set_timer(self, delay_s: float) -> None:
        self._timer = threading.Timer(max(0.01, delay_s), self._time_is_up)
        self._timer.daemon = True
        self._timer.start()

    @shield
    def _time_is_up(self) -> None:
        with self._lock:
            over, self._timer = self._overdue(), None
            if self._waiting:
                self._set_timer(min(at for at, _ in self._waiting.values()) - monotonic())
        self._record(over)

    def _overdue(self) -> list[HeldSpan]:
        if not self._waiting:
            return []
        now, over = monotonic(), list[HeldSpan]()
        for root, (until, begun) in [*self._waiting.items()]:
            if now < until and self._begun - begun < _MOST_OTHERS:
                continue
            if root.ended_s is None and left_by(root) is None:
                del self._waiting[root]
            else:
                over += self._detached(root)
        return over

    def _detached(self, top: HeldSpan) -> list[HeldSpan]:
        """Stop to hold a span and those inside it; return the roots of runs among them."""
        spans = top.all()
        for span in spans:
            self._held.pop(span.id, None)
            self._waiting.pop(span, None)
        parent, top.parent = top.parent, None
        if parent is not None:
            parent.inside.pop(top.id, None)
            outermost = parent.outermost()
            outermost.held_bytes -= sum(span.size_bytes for span in spans)
            if top.outer is None:
                top.outer, top.place = outermost.outer, outermost.place
            self._drop_if_alone(parent)
        return [*roots_in(top)]

    def _record(self, over: list[HeldSpan]) -> None:
        for root in over:
            if root.outer is not None:  # the run around this one goes on
                self._replay(root, root.outer)
            elif (recorder := root.recorder or self._recorder_of(root)) is not None:
                size_bytes = sum(span.size_bytes for span in root.all())
                recorder.finish_later(partial(self._replay, root, recorder), size_bytes)

    def _replay(self, root: HeldSpan, recorder: Recorder) -> None:
        if replay(root, recorder):
            return
        self.without_content += 1
        scope = root.scope
        if shield.count(f"a run without content ({scope.name})"):
            logger.warning(
                "the spans of %s tell nothing that was said, so its runs are not recorded: set %s",
                scope.name,
                scope.switch,
            )


def _forget_all() -> None:
    for held in [*_everyone]:
        held.forget()


_everyone: WeakSet[HeldRuns] = WeakSet()
at_fork(after_in_child=_forget_all)
