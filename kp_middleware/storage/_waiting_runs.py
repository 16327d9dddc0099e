"""Paused runs, which wait for a person or for the next turn of their thread."""

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kp_middleware.database import Connection

if TYPE_CHECKING:
    from kp_middleware.runs import RecordedRun, ThreadPart

logger = logging.getLogger("kp_middleware")

_SELECT = """
    SELECT w.trace_seq, w.run, d.body, w.is_left FROM waiting w
    JOIN documents d ON d.trace_seq = w.trace_seq
"""


class WaitingRun(NamedTuple):
    """A paused run.

    Attributes:
        seq: The ``seq`` of its trace.
        run: The run as recorded so far.
        is_left: Whether its agent has begun another run in the thread meanwhile.
    """

    seq: int
    run: "RecordedRun"
    is_left: bool = False

    @property
    def part(self) -> "ThreadPart":
        """The part of a thread that the run is, with what it waits for."""
        if self.run.part is None:
            raise ValueError("a run that waits is a part of a thread")
        return self.run.part


class WaitingRuns:
    """The traces in state ``paused``; use it inside a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, seq: int, run: "RecordedRun", *, until: str) -> None:
        """Add a stored run that waits until an instant, in the format of the columns."""
        if run.part is None:
            raise ValueError("a run that waits is a part of a thread")
        self._connection.execute(
            "INSERT INTO waiting (trace_seq, thread, until, run) VALUES (?, ?, ?, ?)",
            (seq, run.part.thread, until, run.model_dump_json(exclude={"trace"})),
        )

    def before(self, run: "RecordedRun") -> WaitingRun | None:
        """Return the paused run that this one continues, or None.

        It belongs to the same thread: the run whose question is answered, else the newest that
        waits for a turn, or that waits for a person and has the same agent.
        """
        if run.part is None or not run.part.follows:
            return None
        answers, agent = set(run.part.answers), run.part.agent
        found = self.of_thread(run.part.thread)[::-1]
        asked = [waiting for waiting in found if answers & {*waiting.part.questions}]
        ours = [
            waiting
            for waiting in found
            if waiting.part.awaits == "turn"
            or (waiting.part.agent == agent and not waiting.is_left)
        ]
        return next(iter(asked or ours), None)

    def leave(self, run: "RecordedRun") -> None:
        """Mark the agent's paused runs in a thread as left when it begins a new run there.

        LangGraph drops their questions. They are only marked, because another agent without a name
        may have asked them.
        """
        if run.part is None or run.part.follows:
            return
        for waiting in self.of_thread(run.part.thread):
            if waiting.part.agent == run.part.agent:
                self._connection.execute(
                    "UPDATE waiting SET is_left = 1 WHERE trace_seq = ?", (waiting.seq,)
                )

    def of_thread(self, thread: str) -> list[WaitingRun]:
        """Return the paused runs of a thread, given the fingerprint of its id."""
        return self._read(f"{_SELECT} WHERE w.thread = ? ORDER BY w.trace_seq", (thread,))

    def threads(self) -> frozenset[str]:
        """Return all threads with paused runs."""
        rows = self._connection.execute("SELECT DISTINCT thread FROM waiting")
        return frozenset(str(thread) for (thread,) in rows)

    def overdue(self, now: str) -> list[WaitingRun]:
        """Return the first run that is overdue at this instant, as a list of at most one."""
        return self._read(f"{_SELECT} WHERE w.until <= ? ORDER BY w.until LIMIT 1", (now,))

    def next_until(self) -> str | None:
        """Return when the next run becomes overdue, or None if none is paused."""
        row = self._connection.execute("SELECT min(until) FROM waiting").fetchone()
        return None if row[0] is None else str(row[0])

    def take(self, waiting: WaitingRun) -> None:
        """Delete the trace of a paused run that resumes or ends; it is then stored again."""
        self._connection.execute("DELETE FROM traces WHERE seq = ?", (waiting.seq,))

    def _read(self, sql: str, values: Iterable[str | None]) -> list[WaitingRun]:
        from kp_middleware.runs import RecordedRun  # read-only commands need none

        found = []
        for seq, facts, body, is_left in self._connection.execute(sql, tuple(values)).fetchall():
            document = {**json.loads(facts), "trace": json.loads(body)}
            try:
                run = RecordedRun.model_validate_json(json.dumps(document))
            except ValueError as error:
                self._give_up(seq, str(error))
            else:
                found.append(WaitingRun(seq, run, bool(is_left)))
        return found

    def _give_up(self, seq: int, why: str) -> None:
        """Mark an unreadable run as failed, so that it does not block the others."""
        logger.warning("trace %d waited and cannot be read: it is kept as failed", seq)
        self._connection.execute("DELETE FROM waiting WHERE trace_seq = ?", (seq,))
        self._connection.execute(
            "UPDATE traces SET state = 'failed', reason_code = 'not_resumed', reason_args = ?"
            " WHERE seq = ?",
            (json.dumps({"error": why[:200]}), seq),
        )


class Aliases:
    """The additional ids of the traces of one file; use it inside a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, seq: int, ids: Iterable[str]) -> None:
        """Add ids that also lead to this trace."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO aliases (id, trace_seq) SELECT ?, ?"
            " WHERE EXISTS (SELECT 1 FROM traces WHERE seq = ?)",
            ((one, seq, seq) for one in ids),
        )

    @contextmanager
    def outliving(self, seq: int) -> Iterator[None]:
        """Preserve the aliases of a trace while its row is replaced under the same ``seq``."""
        rows = self._connection.execute("SELECT id FROM aliases WHERE trace_seq = ?", (seq,))
        kept = [str(one) for (one,) in rows]
        yield
        self.add(seq, kept)
