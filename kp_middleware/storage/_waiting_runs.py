"""Runs that wait in the file: for a person's decision, or for the next turn of their thread."""

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kp_middleware.runs import RecordedRun

_SELECT = """
    SELECT w.trace_seq, w.run, d.body FROM waiting w
    JOIN traces t ON t.seq = w.trace_seq JOIN documents d ON d.trace_seq = w.trace_seq
"""


class WaitingRun(NamedTuple):
    """A run that waits.

    Attributes:
        seq: Of its trace.
        run: As it was recorded so far.
    """

    seq: int
    run: "RecordedRun"


class WaitingRuns:
    """The traces in state ``paused``. Use it inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, seq: int, run: "RecordedRun", *, until: str) -> None:
        """This run, which is stored, waits; ``until`` as every column has its instants."""
        if run.part is None:
            raise ValueError("a run that waits is a part of a thread")
        self._connection.execute(
            "INSERT INTO waiting (trace_seq, thread, until, run) VALUES (?, ?, ?, ?)",
            (seq, run.part.thread, until, run.model_dump_json(exclude={"trace"})),
        )

    def before(self, run: "RecordedRun") -> WaitingRun | None:
        """The run that this one goes on with, or None.

        It is of the same thread and agent: that which asked what is answered, else the newest.
        """
        if run.part is None or not run.part.follows:
            return None
        answers = set(run.part.answers)
        found = self._read(
            f"{_SELECT} WHERE w.thread = ? AND t.agent_name IS ? ORDER BY w.trace_seq DESC",
            (run.part.thread, run.agent_name),
        )
        asked = [waiting for waiting in found if answers & _questions(waiting)]
        return next(iter(asked or found), None)

    def of_thread(self, thread: str) -> list[WaitingRun]:
        """All that wait in a thread, by the fingerprint of its id."""
        return self._read(f"{_SELECT} WHERE w.thread = ? ORDER BY w.trace_seq", (thread,))

    def overdue(self, now: str) -> list[WaitingRun]:
        """All that have waited too long at this instant."""
        return self._read(f"{_SELECT} WHERE w.until <= ? ORDER BY w.trace_seq", (now,))

    def next_until(self) -> str | None:
        """When the next has waited too long, or None where none waits."""
        row = self._connection.execute("SELECT min(until) FROM waiting").fetchone()
        return None if row[0] is None else str(row[0])

    def take(self, waiting: WaitingRun) -> None:
        """It goes on, or ends: its trace is written anew."""
        self._connection.execute("DELETE FROM traces WHERE seq = ?", (waiting.seq,))

    def _read(self, sql: str, values: Iterable[str | None]) -> list[WaitingRun]:
        from kp_middleware.runs import RecordedRun  # read-only commands need none

        rows = self._connection.execute(sql, tuple(values)).fetchall()
        return [
            WaitingRun(seq, RecordedRun.model_validate_json(f'{{"trace":{body},{run[1:]}'))
            for seq, run, body in rows
        ]


def _questions(waiting: WaitingRun) -> set[str]:
    part = waiting.run.part
    return set() if part is None else set(part.questions)
