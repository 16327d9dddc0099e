"""Runs that wait in their thread: kept, joined with what follows, ended when nothing does."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kp_middleware.database import Connection, transaction
from kp_middleware.instants import epoch_s, instant
from kp_middleware.pipeline._events import ThreadEnd
from kp_middleware.recording import Limits, alone, ended, joined
from kp_middleware.runs import RecordedRun, ThreadPart, fingerprint
from kp_middleware.settings import Settings
from kp_middleware.storage import Aliases, FeedbackTable, TraceStore, WaitingRun, WaitingRuns

_NOBODY_SAYS: Final = ThreadEnd(thread="", success=None, confidence=None)


class Conversations:
    """Puts the parts of a run together in the file: one trace, with the place and id of the first.

    The ids of the others lead to it: programs were told them before.

    Args:
        connection: Of the file.
        store: Of the same file.
        settings: Say how long a part waits, and how much of a run is kept.
        clock: Epoch seconds.
    """

    def __init__(
        self,
        connection: Connection,
        store: TraceStore,
        settings: Settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._store = store
        self._waiting = WaitingRuns(connection)
        self._aliases = Aliases(connection)
        self._feedback = FeedbackTable(connection)
        self._clock = clock
        self._limits = Limits.of(settings)
        self._waits_s = {"human": settings.paused_ttl_s, "turn": settings.thread_idle_s}

    def keep(self, run: RecordedRun, *, clean: Callable[[RecordedRun], RecordedRun]) -> list[int]:
        """Write a run to the file, joined with the one that it continues; return its rows.

        ``clean`` takes out of both what is known as a secret since the second.
        """
        with transaction(self._connection):
            self._waiting.leave(run)
            earlier = self._waiting.before(run)
            if earlier is not None:
                return [self._go_on(earlier, run, clean)]
            whole = self._alone(run)
            return [] if whole is None else [self._write(whole, None)]

    def end(self, end: ThreadEnd) -> list[int]:
        """End what waits in a thread, and return the rows it is in."""
        with transaction(self._connection):
            return [self._end(waiting, end) for waiting in self._waiting.of_thread(end.thread)]

    def end_overdue(self) -> list[int]:
        """End the first run that has waited too long; return its rows."""
        if self.next_end_in_s() > 0:
            return []
        with transaction(self._connection):
            overdue = self._waiting.overdue(self._now())
            return [self._end(waiting, _NOBODY_SAYS) for waiting in overdue]

    def next_end_in_s(self) -> float:
        """Return the seconds until the next run times out; infinity if none waits."""
        until = self._waiting.next_until()
        return math.inf if until is None else max(0.0, epoch_s(until) - self._clock())

    def waiting(self) -> frozenset[str]:
        """Return the fingerprints of the threads in which a run waits."""
        return self._waiting.threads()

    def _go_on(
        self, earlier: WaitingRun, run: RecordedRun, clean: Callable[[RecordedRun], RecordedRun]
    ) -> int:
        whole = clean(self._joined(earlier.run, run))
        with self._outliving(earlier.seq):
            self._waiting.take(earlier)
            seq = self._write(whole, earlier.seq)
        self._aliases.add(seq, {earlier.run.trace.id, run.trace.id} - {whole.trace.id})
        return seq

    def _joined(self, earlier: RecordedRun, run: RecordedRun) -> RecordedRun:
        """Join two parts in the order of their start, which need not be the order of writing."""
        if run.trace.metadata.created_at < earlier.trace.metadata.created_at:
            earlier, run = run, earlier
        return joined(earlier, run, self._limits)

    def _alone(self, run: RecordedRun) -> RecordedRun | None:
        """Return a run that nothing waits for as a whole run; None if it is not one."""
        if run.part is None or not run.part.follows or _waits(run):
            return run
        whole = alone(run) if run.shape.steps else None
        return None if whole is None else self._with_its_objective(whole, run.part)

    def _with_its_objective(self, run: RecordedRun, part: ThreadPart) -> RecordedRun:
        """Give a run that resumes a failed one the objective of its thread."""
        if part.was_asked or run.thread_id is None or fingerprint(run.thread_id) != part.thread:
            return run  # an id that was redacted may be another's
        objective = self._store.last_objective(run.thread_id, run.agent_name)
        if objective is None:
            return run
        task = run.trace.task.model_copy(update={"objective": objective})
        return run.model_copy(update={"trace": run.trace.model_copy(update={"task": task})})

    def _write(self, run: RecordedRun, seq: int | None) -> int:
        seq = self._store.record(run, seq=seq)
        if run.part is not None and run.part.awaits is not None:
            until = self._clock() + self._waits_s[run.part.awaits]
            self._waiting.add(seq, run, until=instant(until))
        return seq

    def _end(self, waiting: WaitingRun, end: ThreadEnd) -> int:
        over = ended(waiting.run, success=end.success, confidence=end.confidence)
        with self._outliving(waiting.seq):
            self._waiting.take(waiting)
            if not waiting.run.shape.steps:
                return waiting.seq
            self._store.record(over, seq=waiting.seq)
        if not over.complete and waiting.part.awaits == "human":
            self._store.say_why(waiting.seq, "not_continued")
        return waiting.seq

    @contextmanager
    def _outliving(self, seq: int) -> Iterator[None]:
        """Preserve the data outside a trace's row while that row is rewritten."""
        with self._feedback.outliving(seq), self._aliases.outliving(seq):
            yield

    def _now(self) -> str:
        return instant(self._clock())


def _waits(run: RecordedRun) -> bool:
    return run.part is not None and run.part.awaits is not None
