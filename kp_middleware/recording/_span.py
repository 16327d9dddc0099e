"""Spans of a run: agents, model calls, tool calls, and the chains around them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from time import perf_counter
from typing import Any, Final

from kp_middleware.recording._place import Place
from kp_middleware.recording._recorder import Recorder, causes

_MAX_ERRORS: Final = 20
_MAX_PARTS: Final = 20_000


class RootSpan:
    """The root of a tree of spans, with the recorder of its trace; adapters extend it.

    Args:
        recorder: The recorder of the trace.
        owned: False if the trace belongs to a captured function or to a run around this one, which
            finishes it.
        new_calls: Returns a new ledger of the tool calls of one conversation: for the root, and for
            each tool in which agents run.

    Attributes:
        place: The place of the root in the trace of a captured function, or None.
        run_keys: The ids of the live spans inside the root.
        begun: The number of spans that began.
        silent: After the end, the spans whose end was never reported.
        outliving: After the end, True while spans go on in the background that were not moved yet.
        closed_early: True if its stream was closed while spans in it were live.
        one_ledger: True if the calls inside its tools belong to its own conversation.
    """

    def __init__(
        self, recorder: Recorder, *, owned: bool, new_calls: Callable[[], Any] = lambda: None
    ) -> None:
        self.recorder = recorder
        self.owned = owned
        self.new_calls = new_calls
        self.place: Place | None = None
        self.run_keys: set[int] = set()
        self.begun = 0
        self.silent: list[Span] = []
        self.outliving = False
        self.closed_early = False
        self.one_ledger = False

    def record_result(self, result: object, span: "Span") -> None:
        """Note the result of a tool or a retriever."""
        self.recorder.note(
            "observation", None, span.tool, result, span.latency_ms, span.place, span.step_call_id
        )

    def record_error(self, error: BaseException | str, span: "Span") -> None:
        """Note an error in the run; if the same error ends the run, it is no recovery."""
        self.recorder.error(
            error,
            tool=span.tool,
            latency_ms=span.latency_ms if span.tool is not None else None,
            place=span.place or Place(),
            call_id=span.step_call_id,
        )

    def give_up(self) -> None:
        """Finish an owned trace as incomplete, because its end was never reported."""
        if self.owned:
            self.recorder.finish(complete=False)


class Failure(Enum):
    """The reason why a span ended without a result."""

    ERROR = auto()
    """An error."""
    GIVEN_UP = auto()
    """A cancellation, a timeout, or a stream closed by its consumer."""
    PAUSED = auto()
    """An interrupt for a human, or a drained graph: the run may resume later."""
    HANDED_OVER = auto()
    """A handoff to a parent graph."""
    REFUSED = auto()
    """An answer of a person that the graph rejected: it waits for another."""


class Span:
    """A span: a chain, a model call, a tool call or a retriever.

    Attributes:
        is_root: True if the span has no parent.
        tool, call_id: The name of a tool and the id of its call; None for other spans.
        around, within: The innermost tool around the span and the id of its call, or None.
        step_call_id: The id of a tool's call, made if it has none; None for other spans.
        model: The name of a model; None for other spans.
        started_s: The start of a tool or a model, by `time.perf_counter`.
        agent: The inner agent that the span runs in; None means the root's own agent.
        tells: True for a model, a tool or a retriever, whose end is noted.
        number: The position among the spans that began in the root.
        after: The last step of the trace when the span began or was cancelled.
        internal: True for a model that a middleware calls for its own purposes.
        answered: True if its end was reported by another span; its own later report is ignored.
        is_over: True if the span has ended.
        cancelled_at, cancelled_by: If it was cancelled, the number of spans begun by then and the
            name of the error.
        raised: True if its own error ended it.
        is_last: True if the span has ended and was the last of its root.
        paused: True if something in it waits for a human.
        paused_inside: True if a graph that it called waits for a human; it may go on regardless.
    """

    tool: str | None = None
    call_id: str | None = None
    agent: str | None = None
    is_last = False
    number = 0
    after: dict[str, Any] | None = None
    internal = False
    answered = False
    is_over = False
    cancelled_at: int | None = None
    cancelled_by = "CancelledError"
    raised = False
    tells = False
    paused = False
    paused_inside = False
    failed_inside: deque[dict[str, Any]] | None = None
    started_s = 0.0
    step_call_id: str | None = None
    model: str | None = None
    _inner: Any = None
    parts: list[object] | None = None

    def __init__(self, root: Any, ledger: Any, parent: "Span | None") -> None:
        self.root = root
        self.ledger = ledger
        self.parent = parent
        self.is_root = parent is None
        self.around: str | None = None
        self.within: str | None = None
        if parent is not None:
            self.around = parent.tool or parent.around
            self.within = parent.step_call_id or parent.within

    @property
    def ends_trace(self) -> bool:
        """True if the span has ended and its trace ends with it."""
        return self.is_last and self.root.owned

    @property
    def place(self) -> Place | None:
        """The place of the span's steps; a tool's own steps are outside its call."""
        if self.agent is None and self.within is None:
            place: Place | None = self.root.place
            return place
        return Place(self.agent, self.within)

    @property
    def place_inside(self) -> Place | None:
        """The place of the steps of the spans inside this one."""
        return self.place if self.tool is None else Place(self.agent, self.step_call_id)

    def use(self, tool: str, call_id: str | None) -> None:
        """Make this span a tool call that starts now."""
        self.tool = tool
        self.call_id = call_id
        self.step_call_id = call_id or self.root.recorder.new_call_id()
        self.started_s = perf_counter()

    def fail(self, error: BaseException) -> bool:
        """Register an error, and return whether it began here and not in a span inside."""
        around = self.parent
        if around is not None:
            noted = around.failed_inside
            if noted is None:
                noted = around.failed_inside = deque(maxlen=_MAX_ERRORS)
            noted.append(vars(error))  # not its id, which may be reused
        if self.failed_inside is None:
            return True
        inside = [*self.failed_inside]
        return all(vars(cause) is not noted for cause in causes(error) for noted in inside)

    def inner_ledger(self) -> Any:
        """Return the ledger of the spans inside this tool, made on first use."""
        if self.root.one_ledger:
            return self.ledger
        if self._inner is None:
            self._inner = self.root.new_calls()
            self._inner.follows = self.ledger.follows
        return self._inner

    def pause(self) -> None:
        """Pause the span and its parent for a human; the calls inside it stay without a result."""
        self.paused = True
        if self.parent is not None:
            self.parent.paused = True
        if self._inner is not None:
            self.ledger.expect(self._inner.owed)

    def rest(self, *, is_node: bool) -> None:
        """End without an error while something in the span waits for a human, as a graph does.

        The parent is paused inside, unless this is a node, after which the parent went on.
        """
        if self.parent is not None and not is_node:
            self.parent.paused_inside = True

    def add_part(self, part: object) -> None:
        """Add the next part of a model's streamed answer, a text or a list of blocks."""
        if self.parts is None:
            self.parts = [part]
        elif len(self.parts) < _MAX_PARTS:
            self.parts.append(part)

    def stop(self, error: BaseException, failure: Failure) -> None:
        """End without a result: pause, or note the cancellation."""
        if failure in {Failure.PAUSED, Failure.REFUSED}:
            self.pause()
        elif failure is Failure.GIVEN_UP:
            self.cancelled_at, self.cancelled_by = self.root.begun, type(error).__name__
            self.after = self.root.recorder.last_step

    @property
    def latency_ms(self) -> float | None:
        """The time since a tool or a model started; None for other spans."""
        if not self.started_s:
            return None
        return (perf_counter() - self.started_s) * 1000


def given_up(silent: Iterable[Span], cancelled: Iterable[Span]) -> list[Span]:
    """Return one span for each attempt that was given up, in the order in which they began.

    Args:
        silent: The spans of a finished root whose end was never reported.
        cancelled: The spans that reported a cancellation. A chain cancelled together with a span
            inside it is no attempt of its own.
    """
    left = [run for run in silent if _is_left(run)]
    around = {id(outer) for run in (*left, *cancelled) for outer in _around(run)}
    found = [*left, *(run for run in cancelled if id(run) not in around)]
    return sorted(filter(_is_own, found), key=lambda run: run.number)


def is_survived(run: Span, *, ended_well: bool) -> bool:
    """Return whether a run went on after a span was given up, or its root ``ended_well``."""
    cancelled = run if run.cancelled_at is not None else run.parent
    if cancelled is None or cancelled.raised:
        return False  # the error itself is noted
    if cancelled.cancelled_at is None:
        return True
    return ended_well or run.root.begun > cancelled.cancelled_at


def _is_left(run: Span) -> bool:
    """Return whether a span with a step was presumably given up, because its parent has ended."""
    return run.tells and not run.answered and run.parent is not None and run.parent.is_over


def _is_own(run: Span) -> bool:
    """Return whether a span is an attempt of its own, not part of a tool given up with it."""
    return run.tool is not None or all(
        outer.tool is None or outer.is_over for outer in _around(run)
    )


def _around(run: Span) -> Iterator[Span]:
    outer = run.parent
    while outer is not None:
        yield outer
        outer = outer.parent
