"""One span of a run: an agent, a model call, a tool call, or a chain around them."""

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
    """The root of a tree of spans, whose trace one recorder writes; adapters add to it.

    Args:
        recorder: Takes the notes.
        owned: False where the trace is that of a captured function or of a run around this one,
            which will say how it ended.
        new_calls: Makes what keeps the tool calls of one conversation: of the root's own, and of
            each tool's in which agents run.

    Attributes:
        place: Where in the trace of a captured function it runs, or None.
        run_keys: Of the live spans inside it.
        begun: How many have begun.
        silent: Once it is over, those that never said how they ended.
        outliving: Once it is over, whether spans in it go on in the background, not yet moved.
        closed_early: Whether its stream was closed while spans in it were live.
        one_ledger: Whether the calls inside its tools are those of its own conversation.
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
        """Note what a tool or a retriever gave."""
        self.recorder.note(
            "observation", None, span.tool, result, span.latency_ms, span.place, span.step_call_id
        )

    def record_error(self, error: BaseException | str, span: "Span") -> None:
        """Note what went wrong inside; should the same error end the run, it will be fatal."""
        self.recorder.error(
            error,
            tool=span.tool,
            latency_ms=span.latency_ms if span.tool is not None else None,
            place=span.place or Place(),
            call_id=span.step_call_id,
        )

    def give_up(self) -> None:
        """End without having heard how it ended."""
        if self.owned:
            self.recorder.finish(complete=False)


class Failure(Enum):
    """Why a run ended without a result."""

    ERROR = auto()
    """Something went wrong."""
    GIVEN_UP = auto()
    """It was cancelled, timed out, or nobody wanted the rest."""
    PAUSED = auto()
    """It waits for a human, or was drained: it may go on later."""
    HANDED_OVER = auto()
    """A parent graph goes on with it."""
    REFUSED = auto()
    """A person's answer was not what the graph takes: it waits for another."""


class Span:
    """A chain, a model, a tool or a retriever that is running.

    Attributes:
        is_root: Whether no run is around it.
        tool, call_id: Where it is a tool.
        around, within: The tool that it is inside of, and the id of its call, or None.
        step_call_id: Where it is a tool, the id of its call, made where it has none.
        model: Where it is a model, its name, or None.
        started_s: When it started, where it is a tool or a model, by a clock of its own.
        agent: Inside which agent of its root's it runs; None: the root's own.
        tells: Whether it is a model, a tool or a retriever: it has something to say at its end.
        number: Of those that began in its root.
        after: The last step when it began, or when it said that it was cancelled.
        internal: Whether it is a model that a middleware asks for its own ends.
        answered: Whether another has told how it ended: what it says later is not heard.
        is_over: Whether it has ended.
        cancelled_at, cancelled_by: Where it said that it was cancelled: how many runs had begun,
            and the name of the error.
        raised: Whether its own error ended it.
        is_last: Whether it is over, and nothing more comes of its root.
        paused: Whether something in it waits for a human.
        paused_inside: Whether a graph that it called waits for one; it may go on all the same.
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
        """Whether it is over, and the trace ends with it."""
        return self.is_last and self.root.owned

    @property
    def place(self) -> Place | None:
        """Where its steps happen; a tool's own are beside it, not inside."""
        if self.agent is None and self.within is None:
            place: Place | None = self.root.place
            return place
        return Place(self.agent, self.within)

    @property
    def place_inside(self) -> Place | None:
        """Where the steps of what runs inside happen."""
        return self.place if self.tool is None else Place(self.agent, self.step_call_id)

    def use(self, tool: str, call_id: str | None) -> None:
        """It is a tool that starts now: agents inside it have a ledger of their own."""
        self.tool = tool
        self.call_id = call_id
        self.step_call_id = call_id or self.root.recorder.new_call_id()
        self.started_s = perf_counter()

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

    def inner_ledger(self) -> Any:
        """The ledger of the runs inside this tool."""
        if self.root.one_ledger:
            return self.ledger
        if self._inner is None:
            self._inner = self.root.new_calls()
            self._inner.follows = self.ledger.follows
        return self._inner

    def pause(self) -> None:
        """It waits for a human: so does what is around it, and the calls inside are still owed."""
        self.paused = True
        if self.parent is not None:
            self.parent.paused = True
        if self._inner is not None:
            self.ledger.expect(self._inner.owed)

    def rest(self, *, is_node: bool) -> None:
        """It ended well, while something in it waits for a human.

        A graph does so. What called it waits too, unless it goes on: a node that ends has done so.
        """
        if self.parent is not None and not is_node:
            self.parent.paused_inside = True

    def add_part(self, part: object) -> None:
        """A model says the next part of its answer, a text or a list of blocks."""
        if self.parts is None:
            self.parts = [part]
        elif len(self.parts) < _MAX_PARTS:
            self.parts.append(part)

    def stop(self, error: BaseException, failure: Failure) -> None:
        """It ended without a result."""
        if failure in {Failure.PAUSED, Failure.REFUSED}:
            self.pause()
        elif failure is Failure.GIVEN_UP:
            self.cancelled_at, self.cancelled_by = self.root.begun, type(error).__name__
            self.after = self.root.recorder.last_step

    @property
    def latency_ms(self) -> float | None:
        """Since the tool or the model started; None where it is neither."""
        if not self.started_s:
            return None
        return (perf_counter() - self.started_s) * 1000


def given_up(silent: Iterable[Span], cancelled: Iterable[Span]) -> list[Span]:
    """One run for each attempt that was given up, in the order in which they began.

    Args:
        silent: Those inside a root that is over, which never said how they ended.
        cancelled: Those that said they were. A chain is none of its own where it was cancelled with
            what it waited for.
    """
    left = [run for run in silent if _is_left(run)]
    around = {id(outer) for run in (*left, *cancelled) for outer in _around(run)}
    found = [*left, *(run for run in cancelled if id(run) not in around)]
    return sorted(filter(_is_own, found), key=lambda run: run.number)


def is_survived(run: Span, *, ended_well: bool) -> bool:
    """Whether the run around one that was given up went on; ``ended_well``: its root did so."""
    cancelled = run if run.cancelled_at is not None else run.parent
    if cancelled is None or cancelled.raised:
        return False  # the error says it
    if cancelled.cancelled_at is None:
        return True
    return ended_well or run.root.begun > cancelled.cancelled_at


def _is_left(run: Span) -> bool:
    """Whether it was given up, for all that we know: what began it is over."""
    return run.tells and not run.answered and run.parent is not None and run.parent.is_over


def _is_own(run: Span) -> bool:
    """Whether it is an attempt of its own: not so within a tool that was given up with it."""
    return run.tool is not None or all(
        outer.tool is None or outer.is_over for outer in _around(run)
    )


def _around(run: Span) -> Iterator[Span]:
    outer = run.parent
    while outer is not None:
        yield outer
        outer = outer.parent
