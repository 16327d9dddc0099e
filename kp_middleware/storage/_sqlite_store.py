"""The SQLite file as the store of runs, and what its gates may know of earlier ones."""

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kp_middleware.core.evaluation import Ending
from kp_middleware.core.gates import DAY_S, Ranking
from kp_middleware.database import (
    Connection,
    Database,
    Identity,
    Queries,
    VectorTable,
    open_to_all,
    transaction,
)
from kp_middleware.instants import epoch_s, instant
from kp_middleware.outbox_items import OutboxItem
from kp_middleware.storage._estimates import EstimateTable
from kp_middleware.storage._export_cursor import ExportCandidate, ExportCursor
from kp_middleware.storage._history import History
from kp_middleware.storage._maintenance import Pruning, rescue
from kp_middleware.storage._outbox import OutboxTable
from kp_middleware.storage._overview import read_last_decisions
from kp_middleware.storage._past_runs import PastRun, PastRuns, Selection
from kp_middleware.storage._records import ENDING, Run
from kp_middleware.storage._shared_runs import SharedRuns
from kp_middleware.storage._statistics import Backlog, Counts, Statistics
from kp_middleware.storage._store import Belief, PausedRun, Rescue
from kp_middleware.storage._traces import Traces

if TYPE_CHECKING:
    from kp_middleware.runs import RecordedRun

logger = logging.getLogger("kp_middleware")

_FEEDBACK: Final = (
    "seq, trace_seq, given_at, success, confidence, success_before, confidence_before"
)
_SELECT: Final = """
    SELECT w.trace_seq, w.run, d.body, w.is_left FROM waiting w
    JOIN documents d ON d.trace_seq = w.trace_seq
"""


_ARE_DRY: Final = """
    SELECT count(*) >= 100 AND total(verdict = 'forwarded') = 0
    FROM (SELECT verdict FROM traces WHERE score IS NOT NULL ORDER BY seq DESC LIMIT 100)
"""
_CLAIM_TO_SAY: Final = """
    INSERT INTO meta (key, value) VALUES ('said_that_none_cleared_at_s', :now)
    ON CONFLICT (key) DO UPDATE SET value = :now
      WHERE CAST(value AS REAL) NOT BETWEEN :now - :day AND :now
    RETURNING 1
"""


class SqliteStore(Traces):
    """The runs in one SQLite file, shared by all processes that use it. See `Store`."""

    def __init__(
        self, connection: Connection, path: Path | None = None, *, scorer: str | None = None
    ) -> None:
        super().__init__(connection, scorer=scorer or f"kp-middleware {version('kp-middleware')}")
        self._path = path
        self._file: Identity | None = None

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the store at a path; nothing is opened yet."""
        return cls(Database(path), path)

    def open(self) -> Identity | None:
        if isinstance(self._connection, Database):
            self._connection.open()
            before, self._file = self._file, self._connection.file
            if before != self._file and (opened := open_to_all(self._known_path)):
                logger.warning("%s", opened)
        return self._file

    def close(self) -> None:
        self._connection.close()

    def apart(self) -> Self:
        return self.at(self._known_path)

    def transaction(self) -> AbstractContextManager[None]:
        return transaction(self._connection)

    def repair(self, *, destination: str, redactor: str) -> Rescue | None:
        return rescue(self._known_path, registry=destination, redactor=redactor)

    def record(
        self,
        run: "RecordedRun",
        *,
        seq: int | None = None,
        until: str | None = None,
        aliases: Collection[str] = (),
    ) -> int:
        with transaction(self._connection):
            if seq is not None:
                self._replace(seq, run)
            elif known := self._value("SELECT seq FROM traces WHERE id = ?", (run.trace.id,)):
                return int(known)
            else:
                seq = self._insert(run, None)
            if until is not None and run.part is not None:
                facts = run.model_dump_json(exclude={"trace"})
                self._add("waiting", trace_seq=seq, thread=run.part.thread, until=until, run=facts)
            if aliases:
                self.add_aliases(seq, aliases)
        return seq

    def history(self, seq: int, domain: str, *, let_through_at: str | None = None) -> "GateHistory":
        return GateHistory(self._connection, domain, seq, let_through_at=let_through_at)

    def estimates(self) -> EstimateTable:
        return EstimateTable(self._connection)

    def scored(self, seq: int) -> PastRun | None:
        return PastRuns(self._connection, Selection(), None).run(seq)

    def past_runs(
        self, selection: Selection, embedder: str | None, *, dry_run: bool = False
    ) -> PastRuns:
        """Return the runs to rescore: see `PastRuns`."""
        return PastRuns(self._connection, selection, embedder, dry_run=dry_run)

    def vectors(self) -> VectorTable:
        return VectorTable(self._connection)

    def outbox(self, destination: str, agent_id: str | None) -> OutboxTable:
        return OutboxTable(self._connection, registry=destination, agent_id=agent_id)

    def shared_runs(self) -> SharedRuns:
        """Return the part of the file that is shared with other hosts."""
        return SharedRuns(self._connection)

    def export_cursor(
        self,
        name: str,
        *,
        choose: Callable[[ExportCandidate], bool | None],
        prepare: Callable[[Run, str, int], OutboxItem | None],
        since: str,
    ) -> ExportCursor:
        """Return what an exporter beside the outbox has not been given yet."""
        return ExportCursor(
            self._connection,
            name,
            history=History(self._connection),
            choose=choose,
            prepare=prepare,
            since=since,
        )

    def prune(self, before: str) -> int:
        pruning = Pruning(self._connection)
        return next(pruning.batches(pruning.doomed(before=before)), 0)

    def forwarding_warning(self, now_s: float) -> str | None:
        if not self._value(_ARE_DRY):
            return None
        with transaction(self._connection):
            is_due = self._value(_CLAIM_TO_SAY, {"now": str(now_s), "day": DAY_S})
        return read_last_decisions(self._connection).in_words() if is_due else None

    def counts(self) -> Counts:
        with closing(Database(self._known_path, read_only=True)) as connection:
            return Statistics(connection).counts()

    def unfinished(self) -> Backlog:
        with closing(Database(self._known_path, read_only=True)) as connection:
            return Statistics(connection).unfinished()

    @property
    def _known_path(self) -> Path:
        if self._path is None:
            raise ValueError("this store was created without a file path")
        return self._path

    def paused(self, thread: str) -> list[PausedRun]:
        return self._read(f"{_SELECT} WHERE w.thread = ? ORDER BY w.trace_seq", thread)

    def overdue(self, now: str) -> list[PausedRun]:
        return self._read(f"{_SELECT} WHERE w.until <= ? ORDER BY w.until LIMIT 1", now)

    def next_overdue(self) -> str | None:
        until: str | None = self._value("SELECT min(until) FROM waiting")
        return until

    def paused_threads(self) -> frozenset[str]:
        return frozenset(self._column("SELECT DISTINCT thread FROM waiting"))

    def leave(self, seq: int) -> None:
        self._run("UPDATE waiting SET is_left = 1 WHERE trace_seq = ?", (seq,))

    def add_aliases(self, seq: int, ids: Iterable[str]) -> None:
        """Add ids that also lead to this trace."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO aliases (id, trace_seq) SELECT ?, ?"
            " WHERE EXISTS (SELECT 1 FROM traces WHERE seq = ?)",
            ((one, seq, seq) for one in ids),
        )

    def belief(self, trace_id: str) -> Belief | None:
        row = self._row(
            f"SELECT seq, state, {ENDING} FROM traces t WHERE id = :id"
            " OR seq = (SELECT trace_seq FROM aliases WHERE id = :id)",
            {"id": trace_id},
        )
        if row is None:
            return None
        seq, state, success, *rest = row
        told = self._row(
            "SELECT success, confidence FROM feedback WHERE trace_seq = ?"
            " ORDER BY seq DESC LIMIT 1",
            (seq,),
        )
        return Belief(seq, state, Ending(bool(success), *rest), told)

    def add_feedback(
        self,
        before: Belief,
        after: Ending,
        *,
        given_at: str,
        told: tuple[bool | None, float | None],
    ) -> None:
        self._run(
            f"INSERT INTO feedback ({_FEEDBACK}) VALUES (NULL, ?, ?, ?, ?, ?, ?)",
            (before.seq, given_at, *told, *before.ending[:2]),
        )
        self.save_ending(before.seq, after)

    def _replace(self, seq: int, run: "RecordedRun") -> None:
        """Replace a run under its ``seq``; its aliases and feedback stay."""
        aliases = self._column("SELECT id FROM aliases WHERE trace_seq = ?", (seq,))
        kept = self._run(f"SELECT {_FEEDBACK} FROM feedback WHERE trace_seq = ?", (seq,)).fetchall()
        self.remove(seq)
        self._insert(run, seq)
        self.add_aliases(seq, aliases)
        self._connection.executemany(
            f"INSERT OR IGNORE INTO feedback ({_FEEDBACK}) VALUES (?, ?, ?, ?, ?, ?, ?)", kept
        )

    def _read(self, sql: str, value: str) -> list[PausedRun]:
        from kp_middleware.runs import RecordedRun  # read-only commands need none

        found = []
        for seq, facts, body, is_left in self._run(sql, (value,)).fetchall():
            document = {**json.loads(facts), "trace": json.loads(body)}
            try:
                run = RecordedRun.model_validate_json(json.dumps(document))
            except ValueError as error:  # it would block the others
                logger.warning("trace %d waited and cannot be read: it is kept as failed", seq)
                self._run("DELETE FROM waiting WHERE trace_seq = ?", (seq,))
                self._run(
                    "UPDATE traces SET state = 'failed', reason_code = 'not_resumed',"
                    " reason_args = ? WHERE seq = ?",
                    (json.dumps({"error": str(error)[:200]}), seq),
                )
            else:
                found.append(PausedRun(seq, run, bool(is_left)))
        return found


_RANKED: Final = """
    SELECT rank_key, gate = :gate, chosen, credit FROM traces
    WHERE score IS NOT NULL AND domain = :domain AND seq < :seq ORDER BY seq DESC LIMIT :last
"""
_LATER_CREDIT: Final = """
    SELECT credit FROM traces
    WHERE score IS NOT NULL AND domain = :domain AND seq > :seq AND gate = :gate
      AND credit IS NOT NULL AND (SELECT score IS NULL FROM traces WHERE seq = :seq)
    ORDER BY seq DESC LIMIT 1
"""
"""The credit of a later run that was ranked before this one: the two processes share it."""


class GateHistory(Queries):
    """The scores and decisions before one run."""

    def __init__(
        self,
        connection: Connection,
        domain: str,
        seq: int,
        *,
        let_through_at: str | None = None,
    ) -> None:
        super().__init__(connection)
        self.rank_key = 0.0
        self.trouble: sqlite3.Error | None = None
        self._let_through_at = let_through_at
        self._values: dict[str, object] = {"domain": domain, "seq": seq}

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the last scored runs of the domain, and what the gate of this name chose."""
        values = {**self._values, "gate": gate, "last": last}
        ranking = Ranking(last)
        for key, is_of_gate, chosen, credit in reversed(self._rows(_RANKED, values)):
            gone = bool(is_of_gate and chosen)
            ranking.add(key, gone=gone, credit=credit if is_of_gate else None)
        for (credit,) in self._rows(_LATER_CREDIT, values):
            ranking.credit = credit
        return ranking

    def forwarded_in_a_day(self) -> int:
        """Count the other runs, none private, that were forwarded in the last 24 hours."""
        then = self._let_through_at
        then_s = time.time() if then is None else epoch_s(then)
        ((count,),) = self._rows(
            "SELECT count(*) FROM traces WHERE decision = 'forward' AND visibility <> 'private'"
            " AND decided_at BETWEEN :since AND :now AND seq <> :seq",
            {**self._values, "since": instant(then_s - DAY_S), "now": instant(then_s)},
        )
        return int(count)

    def _rows(self, query: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        try:
            return self._run(query, values).fetchall()
        except sqlite3.Error as error:
            self.trouble = error
            raise
