"""One run that is going on: what a step of it is said beside, and where its error began."""

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from kp_langchain._failures import Failure
from kp_langchain._ledger import Ledger
from kp_langchain._messages import text_of
from kp_middleware.recording import Place, causes

if TYPE_CHECKING:
    from kp_langchain._root import Root

_MAX_ERRORS: Final = 20
_MAX_PARTS: Final = 20_000


class Run:
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
    _inner: Ledger | None = None
    _heard: list[object] | None = None

    def __init__(self, root: "Root", ledger: Ledger, parent: "Run | None") -> None:
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
            return self.root.place
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

    def hear(self, part: object) -> None:
        """A model says the next part of its answer, a text or a list of blocks."""
        if self._heard is None:
            self._heard = [part]
        elif len(self._heard) < _MAX_PARTS:
            self._heard.append(part)

    @property
    def heard(self) -> str:
        """What a model has said so far, where it streams."""
        return "".join(map(text_of, self._heard or ()))

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
