"""The seam between the pipeline and where runs are kept: the `Store` protocol and its records.

Beside it the next work on the runs of a store: the order of scoring, and removal by age.
"""

import math
import random
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kp_middleware.core.evaluation import Ending
from kp_middleware.instants import instant, to_milliseconds
from kp_middleware.outbox_items import Outbox
from kp_middleware.storage._learning import EstimateTable

if TYPE_CHECKING:
    from kp_middleware.core.evaluation import Evaluation
    from kp_middleware.core.gates import GateHistory
    from kp_middleware.database import VectorTable
    from kp_middleware.runs import RecordedRun, ThreadPart
    from kp_middleware.storage._past_runs import PastRun
    from kp_middleware.storage._statistics import Counts

CANCELLED_BY_HAND: Final = "by hand"
"""The reason of an outbox item that the user cancelled; only the user can queue it again."""

LOST_ON_ITS_WAY: Final = (
    "what became of it was lost in a damaged file: kp-middleware outbox retry ID sends it, perhaps"
    " once more"
)
"""The reason of an item that is blocked because it may have been sent already."""

LAST_SEQ: Final = 2**63 - 1
"""The largest ``seq``."""


class PausedRun(NamedTuple):
    """A run that waits for a person or for the next turn of its thread."""

    seq: int
    run: "RecordedRun"
    is_left: bool = False  # its agent has begun another run in the thread

    @property
    def part(self) -> "ThreadPart":
        """The part of a thread that the run is, with what it waits for."""
        if self.run.part is None:
            raise ValueError("a run that waits is a part of a thread")
        return self.run.part


class StoredRun(NamedTuple):
    """The columns of a run that scoring and queueing read."""

    document: str  # the ReasoningTrace as JSON
    steps: int  # all of them, also where the document has fewer; so are the next two
    tools: int
    recoveries: int
    score: float | None  # None: not scored
    said: str = ""  # by people: it is recalled by that


class EarlierReading(NamedTuple):
    """The facts of a stored run by which another reading of it is compared."""

    seq: int
    started_at: str
    steps: int
    duration_ms: int | None
    success: bool
    has_feedback: bool  # from after its end
    is_queued: bool

    def is_of(self, run: "RecordedRun") -> bool:
        """Return whether it is this run, and not another with the same id."""
        began = to_milliseconds(run.trace.metadata.created_at)
        return (began, run.shape.steps, run.duration_ms) == self[1:4]

    def says_less_than(self, run: "RecordedRun") -> bool:
        """Return whether another reading of the run says something else, and may replace it."""
        now = (run.shape.steps, run.duration_ms, run.trace.metadata.success)
        return now != self[2:5] and not (self.is_queued or self.has_feedback)


class Belief(NamedTuple):
    """The stored ending of a run, and the success and confidence that were told of it last."""

    seq: int
    state: str
    ending: Ending
    last_told: tuple[bool | None, float | None] | None  # None for each that was not given


class Rescue(NamedTuple):
    """The result of a recovery."""

    aside: Path  # the copy of what was damaged
    traces: int


class StoreOutbox(Outbox, Protocol):
    """The outbox items of one destination; the sender uses what `Outbox` has."""

    def add(
        self,
        trace_seq: int,
        body: bytes | None,
        *,
        redactor: str,
        redactions: Mapping[str, int],
        reason: str | None = None,
    ) -> None:
        """Add a pending item with this body, or one that is blocked for a reason without it."""

    def sync(self, trace_seq: int) -> None:
        """Update the item of a trace after the trace has changed; unless it was sent."""

    def any_pending(self) -> bool:
        """Return True if an item is pending or being sent."""

    def next_unqueued(self, *, after: int) -> int | None:
        """Return the next run after a ``seq`` that was forwarded and is not in the outbox."""


class Store(Protocol):
    """A place that keeps runs. `SqliteStore` is one; give `KnowledgePulse` another of your own.

    One thread at a time uses a store; `apart` makes one for another thread. Runs are numbered in
    the order of recording by ``seq``. What fails may raise anything: a run that could not be kept
    is tried again after ``kp_middleware.errors.DatabaseError``, and lost after other errors.
    """

    def open(self) -> Hashable:
        """Open the store now; another value than last time says that its runs are others."""

    def close(self) -> None:
        """Close the store until the next use."""

    def apart(self) -> "Store":
        """Return the same store for another thread."""

    def transaction(self) -> AbstractContextManager[None]:
        """Store all that the block stores, or nothing of it; joins an open transaction."""

    def repair(self, *, destination: str, redactor: str) -> Rescue | None:
        """Save what can be read after damage; None if there is nothing to do."""

    def record(
        self,
        run: "RecordedRun",
        *,
        seq: int | None = None,
        until: str | None = None,
        aliases: Collection[str] = (),
    ) -> int:
        """Store a run and return its ``seq``; a trace with a stored id is not stored again.

        Args:
            run: The run.
            seq: The paused run that it replaces, whose feedback and aliases stay.
            until: The instant at which it ends if nothing follows; None if it does not wait.
            aliases: More ids that lead to its trace.
        """

    def reading(self, trace_id: str) -> EarlierReading | None:
        """Return what tells whether a run that is read again has gone on, or None."""

    def remove(self, seq: int) -> None:
        """Remove a run."""

    def fail(self, seq: int, code: str, error: object) -> None:
        """Mark a recorded run as failed, with the code and error: see `FAILURES`."""

    def give_reason(self, seq: int, code: str) -> None:
        """Replace the reason code of a run."""

    def count_dropped(self, count: int) -> None:
        """Add to the count of runs that were dropped before they were stored."""

    def last_objective(self, thread_id: str, agent_name: str | None) -> str | None:
        """Return the objective of an agent's last run in a thread, or None."""

    def paused(self, thread: str) -> list[PausedRun]:
        """Return the paused runs of a thread in order, given the fingerprint of its id."""

    def overdue(self, now: str) -> list[PausedRun]:
        """Return the first run that has waited too long at this instant, as a list of one."""

    def next_overdue(self) -> str | None:
        """Return when the next run has waited too long, or None if none is paused."""

    def paused_threads(self) -> frozenset[str]:
        """Return all threads with paused runs."""

    def leave(self, seq: int) -> None:
        """Mark a paused run as left: its agent has begun another run in the thread."""

    def next_recorded(self, first: int = 0, last: int = LAST_SEQ) -> int | None:
        """Return the oldest unscored run in a range of ``seq``, both ends included, or None."""

    def last_recorded(self) -> int | None:
        """Return the newest unscored run, or None."""

    def is_recorded(self, seq: int, trace_id: str | None = None) -> bool:
        """Return True if a run waits to be scored; within a transaction this stays true.

        With ``trace_id``, False for another run in its place: a file made anew counts from 1.
        """

    def stored(self, seq: int) -> StoredRun:
        """Return what scoring and queueing read of a run."""

    def ending(self, seq: int) -> Ending:
        """Return how a run ended, as far as is known now."""

    def save_ending(self, seq: int, ending: Ending) -> None:
        """Replace the ending of a run, also in its document."""

    def estimates(self) -> EstimateTable | None:
        """Return what the estimate of success learns from; None if nothing is estimated."""

    def save_opening(self, seq: int, embedder: str, vector: bytes) -> None:
        """Store the vector of the first line that people said in a run, to recall it by."""

    def unsaid(self, seq: int) -> str | None:
        """Return the thread's id of a run, else its own, if nobody has said how it ended."""

    def history(self, seq: int, domain: str, *, let_through_at: str | None = None) -> "GateHistory":
        """Return what the gate may know of the runs before one in its domain.

        ``let_through_at`` is when it was forwarded before, if it is decided again.
        """

    def save_evaluation(
        self,
        seq: int,
        evaluation: "Evaluation",
        *,
        took_ms: float | None = None,
        p_success: float | None = None,
    ) -> None:
        """Store the score and the gate's verdict of a run.

        If the decision is the same as before, it keeps its time, and so counts towards that day's
        limit. A verdict without a key leaves the place of the run in its share as it is.

        Args:
            seq: The run.
            evaluation: The score and the verdict.
            took_ms: The duration of its first scoring; None if it was scored before.
            p_success: The probability of success that the verdict's key has; None: not known.
        """

    def belief(self, trace_id: str) -> Belief | None:
        """Return the stored outcome of a run, by id or alias; None if the id is unknown."""

    def add_feedback(
        self,
        before: Belief,
        after: Ending,
        *,
        given_at: str,
        told: tuple[bool | None, float | None],
    ) -> None:
        """Store feedback, and update the run's ending.

        ``told`` has the success and confidence that were given; None for each that was not.
        """

    def scored(self, seq: int) -> "PastRun | None":
        """Return what evaluating a run again needs; None if it is not scored."""

    def vectors(self) -> "VectorTable | None":
        """Return the stored vectors of runs; None if they are only kept in memory."""

    def outbox(self, destination: str, agent_id: str | None) -> StoreOutbox:
        """Return the outbox items for one destination, of one agent."""

    def prune(self, before: str) -> int:
        """Remove a few scored runs that started before an instant; return how many."""

    def forwarding_warning(self, now_s: float) -> str | None:
        """Return why no recent run was forwarded; None if one was, or this was said today."""

    def counts(self) -> "Counts":
        """Count the runs by state; may be called from any thread."""


_luck: Final = random.Random().random  # noqa: S311 - no secret; a program may have seeded the shared one
_MOMENT_S: Final = 1.0
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0
_MOST_OF_OURS: Final = 10_000  # beyond, the file still knows of them
_MOST_REMEMBERED: Final = 16  # documents in memory at once: 20 KB each, 1 MiB at most


class NextRun:
    """Ours first, in their order; then those that others have left.

    What another process has recorded it is about to score itself, and a run that two embed is work
    in vain. So we come to its runs only when they have waited for a moment under our eyes; where
    we meet another process all the same, we go on at another place. What waits when we begin may
    be a dead process's: that we do at once.

    Attributes:
        ours: The runs that this process has written and not scored; None for a value that is read.
    """

    def __init__(
        self,
        store: Store,
        *,
        luck: Callable[[], float] = _luck,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ours: dict[int, RecordedRun | None] = {}
        self._store = store
        self._luck = luck
        self._steady = steady
        self._looked_s = -math.inf
        self._seen_until = self._left_until = 0
        self._from = 0

    def add(self, written: Mapping[int, "RecordedRun | None"]) -> None:
        """Add runs that this process has just written; some are remembered, not to be read."""
        for seq, run in written.items():
            self.ours.pop(seq, None)
            self.ours[seq] = run if len(self.ours) < _MOST_REMEMBERED else None
            if len(self.ours) > _MOST_OF_OURS:
                del self.ours[next(iter(self.ours))]

    def first(self) -> int | None:
        """Return the next run of this process that waits, or None."""
        while self.ours:
            seq, run = next(iter(self.ours.items()))
            if run is not None or self._store.is_recorded(seq):
                return seq
            del self.ours[seq]
        return None

    def oldest(self, *, at_once: bool = False) -> int | None:
        """Return the next run that waits, or None; ``at_once`` includes others' newest."""
        now_s = self._steady()
        if at_once or now_s >= self._looked_s + _MOMENT_S:
            newest, is_first = self._store.last_recorded() or 0, self._looked_s == -math.inf
            self._left_until = newest if is_first or at_once else self._seen_until
            self._seen_until, self._looked_s = newest, now_s
        if (seq := self.first()) is not None:
            return seq
        seq = self._store.next_recorded(self._from, self._left_until)
        if seq is None and self._from:
            self._from = 0
            seq = self._store.next_recorded(0, self._left_until)
        return seq

    def go_elsewhere(self) -> None:
        """Continue at a random place: another process has scored this run first."""
        first = self._store.next_recorded(0, self._left_until)
        if first is not None:
            self._from = first + int(self._luck() * (self._left_until - first))

    def in_s(self) -> float:
        """Return the seconds until there may be a run to score; infinity if none waits."""
        if self._store.last_recorded() is None:
            return math.inf
        return max(0.0, self._looked_s + _MOMENT_S - self._steady())


class Retention:
    """Removes traces that are too old, once an hour.

    A clock that jumps forward while we run makes nothing older than a day more than it is.
    """

    def __init__(
        self,
        store: Store,
        days: float | None,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._days = days
        self._clock = clock
        self._steady = steady
        self._next_s = steady()
        self._ahead_s = clock() - self._next_s

    def remove_some(self) -> bool:
        """Remove a few, in one short transaction; False if there is nothing to remove now."""
        now_s = self._steady()
        if self._days is None or now_s < self._next_s:
            return False
        now = min(self._clock(), now_s + self._ahead_s + _DAY_S)
        if self._store.prune(instant(max(0.0, now - self._days * _DAY_S))):
            return True
        self._next_s = now_s + _HOUR_S
        return False
