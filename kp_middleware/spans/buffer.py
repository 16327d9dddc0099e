"""A buffer of spans until their run ends: only then the root and the order of steps are known."""

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
    CurrentRun,
    Recorder,
    Recording,
    current_place,
    current_recorder,
    recordings,
    shield,
)
from kp_middleware.spans.dialects import Kind, Scope, SpanContent
from kp_middleware.spans.replay import (
    ROOT_KINDS,
    BufferedSpan,
    abandoning_error,
    find_roots,
    replay,
)

logger = logging.getLogger("kp_middleware")

_GRACE_S: Final = 5.0
_MAX_OTHER_SPANS: Final = 1000  # that may start while a run waits for its last ones
_MAX_SPANS: Final = 10_000
_MAX_BYTES: Final = 16 * 1024 * 1024  # of an open run; a trace keeps one MB
_MAX_INPUTS: Final = 3  # the first may lack the user's request


def _is_stale_parent(
    parent: BufferedSpan, scope: Scope, name: str, at_s: float, grace_s: float
) -> bool:
    """Return whether an open parent belongs to an earlier run than the new span.

    smolagents never ends its root when a model fails, so all later runs start inside it.
    """
    if abandoning_error(parent) is not None:
        return True
    if parent.ended_s is not None or (parent.name, parent.scope) != (name, scope):
        return False
    children = [*parent.children.values()]
    if not children or any(span.ended_s is None for span in children):
        return False
    last = max(children, key=lambda span: span.ended_s or 0.0)
    return last.content.error is not None or at_s - (last.ended_s or 0.0) > grace_s


class SpanBuffer:
    """Open spans, recorded run by run: call `start` and `finish` from any thread.

    Records a run when its root has ended and no span in it is open, or 5 s later, or when 1,000
    other spans have started. Buffers at most 16 MB per open run and drops the content of later
    spans. Runs whose spans had no texts are counted, not recorded.
    """

    def __init__(self, kp: Recording, *, domain: str | None, confidence: Confidences) -> None:
        self._start_recording = recordings(kp, domain=domain, confidence=confidence)
        self._grace_s = _GRACE_S
        self._scopes: set[Scope] = set()
        self.clear()
        _instances.add(self)

    def clear(self) -> None:
        """Drop all spans, which a forked child must leave to its parent."""
        self._lock = threading.RLock()
        self._spans: dict[int | str, BufferedSpan] = {}
        self._started_count = 0
        self._deadlines: dict[BufferedSpan, tuple[float, int]] = {}
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._spans)

    def get(self, span_id: int | str | None) -> BufferedSpan | None:
        """Return an open or buffered span, or None."""
        return None if span_id is None else self._spans.get(span_id)

    def start(
        self,
        span_id: int | str,
        parent_id: int | str | None,
        scope: Scope,
        name: str,
        at_s: float,
        kind: Kind | None = None,
        read: Callable[[], SpanContent] | None = None,
    ) -> None:
        """Start a span; ``read`` returns its content in case it never ends."""
        ended = list[BufferedSpan]()
        outer = current_recorder() if parent_id not in self._spans else None
        place = current_place() if outer is not None else None
        with self._lock:
            if span_id in self._spans:
                return
            self._started_count += 1
            parent = self.get(parent_id)
            if parent is not None and _is_stale_parent(parent, scope, name, at_s, self._grace_s):
                ended += self._detach(self._find_root(parent))
                parent = None
            number = self._started_count
            span = BufferedSpan(span_id, parent, number, scope, name, kind, at_s, read=read)
            if parent is not None:
                parent.children[span_id] = span
            else:
                span.outer_recorder, span.place = outer, place
            self._spans[span_id] = span
            if len(self._spans) > _MAX_SPANS:
                ended += self._detach(next(iter(self._spans.values())).outermost())
            ended += self._detach_overdue()
        self._record(ended)

    def finish(
        self,
        span_id: int | str,
        kind: Kind | None,
        read: Callable[[], SpanContent],
        at_s: float,
        size_bytes: int = 0,
    ) -> None:
        """End a span; record its run if this was the last one.

        ``read`` returns its content; it is called later, on another thread.
        """
        with self._lock:
            span = self._spans.get(span_id)
            if span is None or span.ended_s is not None:
                return
            span.kind = kind or span.kind
            top = span.outermost()
            if top.buffered_bytes + size_bytes > _MAX_BYTES:
                read, size_bytes = partial(SpanContent, span.kind), 0
            top.buffered_bytes += size_bytes
            span.ended_s, span.size_bytes, span.read = at_s, size_bytes, read
            if span.kind is not None:
                self._scopes.add(span.scope)
            ended = self._detach_ended(span) + self._detach_overdue()
        self._record(ended)

    def drop(self, span_id: int | str | None, scope: Scope) -> None:
        """Drop a span and those of its scope around it, up to a tool."""
        with self._lock:
            span, outer = self.get(span_id), None
            while span is not None and span.scope == scope and span.kind != "tool":
                span, outer = span.parent, span
            if outer is not None:
                self._detach(outer)

    def needs_input(self, span_id: int | str) -> bool:
        """Return whether the input of a model may still have the user's request."""
        span = self._spans.get(span_id)
        if span is None or span.parent is None:
            return True
        agents = (outer for outer in span.ancestors() if outer.kind in {None, "agent"})
        agent = next(agents, span.parent)
        agent.input_count += 1
        return agent.input_count <= _MAX_INPUTS

    def close(self) -> None:
        """Record open runs as incomplete."""
        with self._lock:
            tops = [span for span in self._spans.values() if span.parent is None]
            ended = [root for top in tops for root in self._detach(top)]
        self._record(ended)

    @shield
    def run_of(self, span_id: int | str) -> CurrentRun | None:
        """Return the run that a span belongs to, for `current_trace()`."""
        with self._lock:
            span = self.get(span_id)
            if span is None:
                return None
            root = self._find_root(span)
            if root.outer_recorder is not None:
                return CurrentRun(root.outer_recorder, root.place)
            if root.recorder is None and self._is_agent_span(root):
                root.recorder = self._recorder_of(root)
            return None if root.recorder is None else CurrentRun(root.recorder)

    def _recorder_of(self, root: BufferedSpan) -> Recorder | None:
        recorder = self._start_recording(root.scope.framework)
        if recorder is not None:
            recorder.clock_started_s -= max(0.0, recorder.started_at_s - root.started_s)
            recorder.started_at_s = min(recorder.started_at_s, root.started_s)
        return recorder

    def _is_agent_span(self, span: BufferedSpan) -> bool:
        """Return whether a span is, or may turn out to be, that of an agent."""
        if span.ended_s is not None:
            return span.kind is not None
        return span.kind is not None or span.scope in self._scopes or span.scope.is_of_agents

    def _find_root(self, span: BufferedSpan) -> BufferedSpan:
        """Return the outermost agent span around a span, or the span itself."""
        *_, root = (span, *filter(self._is_agent_span, span.ancestors()))
        return root

    def _detach_ended(self, span: BufferedSpan) -> list[BufferedSpan]:
        """Detach the run that a span completes, if any."""
        root = self._find_root(span)
        has_ended = all(inner.ended_s is not None for inner in root.subtree())
        if has_ended and (root is span or root.kind in ROOT_KINDS):
            return self._detach(root)
        is_abandoned = root.scope.leaves_open and root.ended_s is None and span.parent is root
        if is_abandoned or (root is span and root.kind in ROOT_KINDS):
            self._deadlines[root] = monotonic() + self._grace_s, self._started_count
            if self._timer is None:
                self._set_timer(self._grace_s)
        self._drop_unrelated(span)
        return []

    def _drop_unrelated(self, span: BufferedSpan | None) -> None:
        """Drop ended spans that belong to no agent, such as a model client's request."""
        while span is not None and span.ended_s is not None and not span.children:
            if span.kind is not None:
                return
            self._spans.pop(span.id, None)
            if span.parent is not None:
                span.parent.children.pop(span.id, None)
            span = span.parent

    def _set_timer(self, delay_s: float) -> None:
        self._timer = threading.Timer(max(0.01, delay_s), self._on_timer)
        self._timer.daemon = True
        self._timer.start()

    @shield
    def _on_timer(self) -> None:
        with self._lock:
            ended, self._timer = self._detach_overdue(), None
            if self._deadlines:
                self._set_timer(min(at for at, _ in self._deadlines.values()) - monotonic())
        self._record(ended)

    def _detach_overdue(self) -> list[BufferedSpan]:
        if not self._deadlines:
            return []
        now, ended = monotonic(), list[BufferedSpan]()
        for root, (deadline_s, started_count) in [*self._deadlines.items()]:
            if now < deadline_s and self._started_count - started_count < _MAX_OTHER_SPANS:
                continue
            if root.ended_s is None and abandoning_error(root) is None:
                del self._deadlines[root]
            else:
                ended += self._detach(root)
        return ended

    def _detach(self, top: BufferedSpan) -> list[BufferedSpan]:
        """Remove a span and its subtree from the buffer; return the roots of runs in it."""
        spans = top.subtree()
        for span in spans:
            self._spans.pop(span.id, None)
            self._deadlines.pop(span, None)
        parent, top.parent = top.parent, None
        if parent is not None:
            parent.children.pop(top.id, None)
            outermost = parent.outermost()
            outermost.buffered_bytes -= sum(span.size_bytes for span in spans)
            if top.outer_recorder is None:
                top.outer_recorder, top.place = outermost.outer_recorder, outermost.place
            self._drop_unrelated(parent)
        return [*find_roots(top)]

    def _record(self, ended: list[BufferedSpan]) -> None:
        for root in ended:
            if root.outer_recorder is not None:  # part of a run that is still open
                self._write_steps(root, root.outer_recorder)
            elif (recorder := root.recorder or self._recorder_of(root)) is not None:
                size_bytes = sum(span.size_bytes for span in root.subtree())
                recorder.finish_later(partial(self._write_steps, root, recorder), size_bytes)

    def _write_steps(self, root: BufferedSpan, recorder: Recorder) -> None:
        if replay(root, recorder):
            return
        scope = root.scope
        if shield.count(f"a run without content ({scope.name})"):
            logger.warning(
                "a run of %s has no message texts, so it is not recorded: set %s, unless its model "
                "failed at once",
                scope.name,
                scope.content_setting,
            )


def _clear_all() -> None:
    for buffer in [*_instances]:
        buffer.clear()


_instances: WeakSet[SpanBuffer] = WeakSet()
at_fork(after_in_child=_clear_all)
