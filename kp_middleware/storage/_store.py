"""The `Store` protocol between the pipeline and storage, with its records.

Also the order in which runs are scored, and removal by age.
"""

import math
import random
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kp_middleware.core.evaluation import Ending, Evaluation
from kp_middleware.core.gates import DAY_S, GateHistory
from kp_middleware.database import VectorTable
from kp_middleware.instants import instant, to_milliseconds
from kp_middleware.outbox_items import Outbox
from kp_middleware.storage._learning import EstimateTable
from kp_middleware.storage._statistics import Counts

if TYPE_CHECKING:
    from kp_middleware.runs import RecordedRun, ThreadPart
    from kp_middleware.storage._past_runs import PastRun

CANCELLED_BY_USER: Final = "by hand"
"""The reason of an outbox item that only the user can queue again."""

MAY_HAVE_BEEN_SENT: Final = "may_have_been_sent"
"""The reason of an item that is blocked after its outbox row was lost."""

LAST_SEQ: Final = 2**63 - 1
"""The largest ``seq``."""


class PausedRun(NamedTuple):
    """A run that waits for a person or for the next turn of its thread."""

    seq: int
    run: "RecordedRun"
    is_superseded: bool = False  # its agent has begun another run in the thread

    @property
    def part(self) -> "ThreadPart":
        """The position of the run in its thread, and what it waits for."""
        if self.run.part is None:
            raise ValueError("a paused run belongs to a thread")
        return self.run.part


class StoredRun(NamedTuple):
    document: str  # the ReasoningTrace as JSON
    steps: int  # of the whole run: a long run's document has fewer; also the next two
    tools: int
    recoveries: int
    score: float | None  # None: not scored
    user_text: str = ""  # for recall
    thread: str = ""  # its thread id, else its own id


class StoredVersion(NamedTuple):
    """A stored run, to compare with another version of it, such as from a second import."""

    seq: int
    started_at: str
    steps: int
    duration_ms: int | None
    success: bool
    has_feedback: bool
    is_queued: bool

    def is_same_run(self, run: "RecordedRun") -> bool:
        """Return False if it is another run with the same id."""
        began = to_milliseconds(run.trace.metadata.created_at)
        return (began, run.shape.steps, run.duration_ms) == self[1:4]

    def is_outdated_by(self, run: "RecordedRun") -> bool:
        """Return whether another version of the run differs and may replace this one."""
        now = (run.shape.steps, run.duration_ms, run.trace.metadata.success)
        return now != self[2:5] and not (self.is_queued or self.has_feedback)


class StoredOutcome(NamedTuple):
    """The stored ending of a run, and its last feedback."""

    seq: int
    state: str
    ending: Ending
    last_feedback: tuple[bool | None, float | None] | None  # success, confidence


class Rescue(NamedTuple):
    damaged_copy: Path
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
        """Add a pending item; without a body, a blocked one with a reason."""

    def sync(self, trace_seq: int) -> None:
        """Update the unsent item of a trace that has changed."""

    def any_pending(self) -> bool:
        """Return True if an item is pending or being sent."""

    def next_unqueued(self, *, after: int) -> int | None:
        """Return the next forwarded run after a ``seq`` that is not in the outbox."""


class Store(Protocol):
    """Storage of runs. The default is `SqliteStore`; give `KnowledgePulse` your own to replace it.

    A store is used by one thread at a time; `clone` makes one for another thread. ``seq`` numbers
    the runs in the order of recording. Methods may raise anything: a run that could not be written
    is tried again after ``kp_middleware.errors.DatabaseError``, and lost after other errors.
    """

    def open(self) -> Hashable:
        """Open the store; return an identity, which differs once the runs are other ones."""

    def close(self) -> None:
        """Close the store until the next use."""

    def clone(self) -> "Store":
        """Return the same store for another thread."""

    def transaction(self) -> AbstractContextManager[None]:
        """Make the writes of the block atomic; join an open transaction."""

    def repair(self, *, destination: str, redactor: str) -> Rescue | None:
        """Restore the readable runs of a damaged store; None if it is not damaged."""

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
            seq: The paused run that it replaces; its feedback and aliases are retained.
            until: When a paused run ends unless it is continued; None if it is not paused.
            aliases: Other ids of its trace.
        """

    def stored_version(self, trace_id: str) -> StoredVersion | None:
        """Return the stored version of a run, or None if the id is unknown."""

    def remove(self, seq: int) -> None:
        """Remove a run."""

    def fail(self, seq: int, code: str, error: object) -> None:
        """Mark a recorded run as failed, with the code and error: see `FAILURES`."""

    def set_reason(self, seq: int, code: str) -> None:
        """Replace the reason code of a run; remove its arguments."""

    def count_dropped(self, count: int) -> None:
        """Add to the count of runs dropped before they were stored."""

    def last_objective(self, thread_id: str, agent_name: str | None) -> str | None:
        """Return the objective of an agent's last run in a thread, or None."""

    def paused(self, thread: str) -> list[PausedRun]:
        """Return the paused runs of a thread in order; ``thread`` is the fingerprint of its id."""

    def overdue(self, now: str) -> list[PausedRun]:
        """Return the paused run that expired first by this instant, in a list, or an empty one."""

    def next_overdue(self) -> str | None:
        """Return when the next paused run expires, or None if none is paused."""

    def paused_threads(self) -> frozenset[str]:
        """Return all threads with paused runs."""

    def mark_superseded(self, seq: int) -> None:
        """Note that the agent of a paused run has begun another run in the thread."""

    def next_recorded(self, first: int = 0, last: int = LAST_SEQ) -> int | None:
        """Return the oldest unscored run from ``first`` to ``last`` inclusive, or None."""

    def last_recorded(self) -> int | None:
        """Return the newest unscored run, or None."""

    def is_recorded(self, seq: int, trace_id: str | None = None) -> bool:
        """Return True if a run waits to be scored; within a transaction this stays true.

        With ``trace_id``, return False if another run has this ``seq``: a new file starts at 1.
        """

    def stored(self, seq: int) -> StoredRun:
        """Return the columns of a run that scoring and queueing read."""

    def ending(self, seq: int) -> Ending:
        """Return how a run ended, as known now."""

    def save_ending(self, seq: int, ending: Ending) -> None:
        """Replace the ending of a run, also in its document."""

    def estimates(self) -> EstimateTable | None:
        """Return the data that estimates of success learn from; None to disable estimates."""

    def save_recall_vector(self, seq: int, embedder: str, vector: bytes) -> None:
        """Store the vector of the first line of a run's user text, for recall."""

    def history(self, seq: int, domain: str, *, let_through_at: str | None = None) -> GateHistory:
        """Return the earlier runs of the domain for the gate.

        ``let_through_at`` is when a run that is evaluated again was forwarded before.
        """

    def save_evaluation(
        self,
        seq: int,
        evaluation: Evaluation,
        *,
        took_ms: float | None = None,
        p_success: float | None = None,
    ) -> None:
        """Store the score and the gate's verdict of a run.

        An unchanged decision keeps its time, and so counts toward that day's limit. A verdict
        without a key does not change the rank of the run in its share.

        Args:
            seq: The run.
            evaluation: The score and the verdict.
            took_ms: The duration of its first scoring; None if it was scored before.
            p_success: The probability of success in the verdict's key; None: not known.
        """

    def outcome(self, trace_id: str) -> StoredOutcome | None:
        """Return the stored outcome of a run, by id or alias; None if the id is unknown."""

    def add_feedback(
        self,
        before: StoredOutcome,
        after: Ending,
        *,
        given_at: str,
        given: tuple[bool | None, float | None],
    ) -> None:
        """Store feedback, and update the run's ending.

        ``given`` holds the success and the confidence; None for a value that was not given.
        """

    def scored(self, seq: int) -> "PastRun | None":
        """Return the stored facts to evaluate a run again; None if it is not scored."""

    def vectors(self) -> VectorTable | None:
        """Return the stored vectors of runs; None to hold vectors only in memory."""

    def outbox(self, destination: str, agent_id: str | None) -> StoreOutbox:
        """Return the outbox of one agent for one destination."""

    def prune(self, before: str) -> int:
        """Remove a batch of scored runs that started before an instant; return how many."""

    def forwarding_warning(self, now_s: float) -> str | None:
        """Return why no recent run was forwarded; None if one was, or after a warning today."""

    def counts(self) -> Counts:
        """Count the runs by state; may be called from any thread."""


_random: Final = random.Random().random  # noqa: S311 - no secret; a program may have seeded the shared one
_GRACE_S: Final = 1.0
_MAX_CACHED: Final = 16  # documents in memory at once: 20 KB each, 1 MiB at most


class RunPicker:
    """Picks the next run to score: this process's own in order, then those of other processes.

    A process usually scores its own runs soon, and scoring one twice is wasted work. So another
    process's run is picked only after it has been seen unscored for a second; after a collision,
    picking continues at a random place. Runs found at the start may be of a dead process, and are
    picked at once.
    """

    def __init__(
        self,
        store: Store,
        *,
        random: Callable[[], float] = _random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.own: dict[int, RecordedRun | None] = {}  # None: must be read from the store
        self._store = store
        self._random = random
        self._monotonic = monotonic
        self._checked_s = -math.inf
        self._newest_seen = self._last_available = 0
        self._start = 0

    def add(self, written: Mapping[int, "RecordedRun | None"]) -> None:
        """Add runs that this process has just written, and cache the first few."""
        for seq, run in written.items():
            self.own.pop(seq, None)
            self.own[seq] = run if len(self.own) < _MAX_CACHED else None

    def pick_own(self) -> int | None:
        while self.own:
            seq, run = next(iter(self.own.items()))
            if run is not None or self._store.is_recorded(seq):
                return seq
            del self.own[seq]
        return None

    def pick(self, *, at_once: bool = False) -> int | None:
        """Return the next run to score, or None; ``at_once`` includes the newest of others."""
        now_s = self._monotonic()
        if at_once or now_s >= self._checked_s + _GRACE_S:
            newest, is_first = self._store.last_recorded() or 0, self._checked_s == -math.inf
            self._last_available = newest if is_first or at_once else self._newest_seen
            self._newest_seen, self._checked_s = newest, now_s
        if (seq := self.pick_own()) is not None:
            return seq
        seq = self._store.next_recorded(self._start, self._last_available)
        if seq is None and self._start:
            self._start = 0
            seq = self._store.next_recorded(0, self._last_available)
        return seq

    def skip_ahead(self) -> None:
        """Continue at a random place, because another process scored this run first."""
        first = self._store.next_recorded(0, self._last_available)
        if first is not None:
            self._start = first + int(self._random() * (self._last_available - first))

    def seconds_until_next(self) -> float:
        """Return the seconds until there may be a run to score; infinity if none is unscored."""
        if self._store.last_recorded() is None:
            return math.inf
        return max(0.0, self._checked_s + _GRACE_S - self._monotonic())


class Retention:
    """Removes traces older than ``days``, once an hour.

    If the clock jumps forward meanwhile, runs age by at most one extra day.
    """

    def __init__(
        self,
        store: Store,
        days: float | None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._days = days
        self._clock = clock
        self._monotonic = monotonic
        self._next_s = monotonic()
        self._offset_s = clock() - self._next_s

    def remove_batch(self) -> bool:
        """Remove a few traces in one short transaction; return False if there are none."""
        now_s = self._monotonic()
        if self._days is None or now_s < self._next_s:
            return False
        now = min(self._clock(), now_s + self._offset_s + DAY_S)
        if self._store.prune(instant(max(0.0, now - self._days * DAY_S))):
            return True
        self._next_s = now_s + 3600.0
        return False
