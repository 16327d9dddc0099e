"""The shared log in PostgreSQL: what is shipped, decided, told later, and pulled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from kp_middleware.core.gates import GateHistory
from kp_middleware.errors import SharedLogError
from kp_middleware.outbox_items import Outbox
from kp_middleware.sharing._link import Connection, Link, bounded
from kp_middleware.sharing._locked_log import LOCK, LockedLog
from kp_middleware.sharing._records import (
    COLUMNS,
    RECORDSET,
    SELECTED,
    VALUES,
    Decided,
    LogChangedError,
    LoggedRun,
    LoggedVector,
    Place,
    Pulled,
    PulledRuns,
    SharedRun,
    as_json,
    run_of,
)
from kp_middleware.sharing._sending import PaceOfAll, SharedOutbox

# ``seq`` is taken from the one row of heads in the inserting statement: the order of commits.
_SHIP: Final = f"""
    WITH r AS (SELECT * FROM {RECORDSET}),
      fresh AS (SELECT r.*, row_number() OVER (ORDER BY n) AS k FROM r
                WHERE NOT EXISTS (SELECT 1 FROM kp.log l WHERE l.id = r.id)),
      h AS (UPDATE kp.heads SET head = head + (SELECT count(*) FROM fresh)
            WHERE stream = 'main' RETURNING head),
      d AS (INSERT INTO kp.documents SELECT id, body, redactor FROM fresh WHERE body IS NOT NULL
            ON CONFLICT (id) DO UPDATE SET body = excluded.body, redactor = excluded.redactor)
    INSERT INTO kp.log (seq, {COLUMNS})
    SELECT h.head - (SELECT count(*) FROM fresh) + k, {VALUES} FROM fresh, h RETURNING id, seq
"""
_PLACES: Final = "SELECT id, seq FROM kp.log WHERE id = ANY(%s) AND rev = 0"
_UNIQUE_VIOLATION: Final = "23505"
_ANSWERED: Final = f"SELECT l.seq, {SELECTED} FROM kp.log l WHERE l.id = ANY(%s) AND l.rev = 0"
_DOCUMENTS: Final = f"""
    INSERT INTO kp.documents SELECT id, body, redactor FROM {RECORDSET} WHERE body IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET body = excluded.body, redactor = excluded.redactor
"""
_APPEND: Final = f"""
    INSERT INTO kp.log (seq, {COLUMNS}) SELECT %(head)s + n, {VALUES} FROM {RECORDSET}
"""
_MOVE: Final = "UPDATE kp.heads SET head = head + %s WHERE stream = 'main'"
_ANY: Final = 2**62
_BEFORE: Final = "SELECT decision FROM kp.log WHERE id = %s AND rev = 0"
_REVISE: Final = f"""
    INSERT INTO kp.log (seq, rev, kind, {COLUMNS})
    SELECT %(head)s + 1, (SELECT max(rev) + 1 FROM kp.log l WHERE l.id = r.id), 'revision', {VALUES}
    FROM {RECORDSET}
"""
_REWRITE: Final = f"""
    UPDATE kp.log l SET success = r.success, success_source = r.success_source,
      confidence = r.confidence, signals = r.signals, rules = r.rules, score = r.score,
      threshold = r.threshold, gate = r.gate, reason_code = r.reason_code,
      reason_args = r.reason_args,
      decided_at = CASE WHEN l.decision = r.decision THEN l.decided_at
                        ELSE clock_timestamp() END,
      decision = r.decision
    FROM {RECORDSET} WHERE l.id = r.id AND l.rev = 0
"""
_DOCUMENT: Final = f"""
    UPDATE kp.documents d SET body = r.body, redactor = r.redactor FROM {RECORDSET}
    WHERE d.id = r.id AND r.body IS NOT NULL
"""
_DELETE: Final = (
    "DELETE FROM kp.documents WHERE id = %(id)s",
    "UPDATE kp.log SET vector = NULL WHERE id = %(id)s",
    "DELETE FROM kp.outbox WHERE id = %(id)s AND state <> 'sending'",
    """
    INSERT INTO kp.log (seq, id, rev, kind, pod, domain, started_at)
    SELECT %(head)s + 1, id, (SELECT max(rev) + 1 FROM kp.log WHERE id = %(id)s), 'gone', pod,
           domain, started_at
    FROM kp.log WHERE id = %(id)s AND rev = 0
    """,
    "UPDATE kp.heads SET head = head + 1 WHERE stream = 'main'",
)
_AT_ONCE: Final = 5000
_HEAD: Final = """
    SELECT head, (SELECT id FROM kp.log WHERE seq = head), (SELECT id FROM kp.log WHERE seq = %s),
      (SELECT coalesce(min(seq), head + 1) FROM kp.log)
    FROM kp.heads WHERE stream = 'main'
"""
_VECTORS: Final = """
    SELECT seq, id, embedder, (extract(epoch FROM decided_at) * 1000)::bigint, vector FROM kp.log
    WHERE seq > %s AND seq <= %s AND pod <> %s AND kind = 'run' AND vector IS NOT NULL
      AND embedder IS NOT NULL
    ORDER BY seq
"""
_GONE: Final = "SELECT id FROM kp.log WHERE seq > %s AND seq <= %s AND kind = 'gone'"
_RUNS: Final = f"""
    SELECT x.seq, x.kind, {SELECTED}, d.body, d.redactor FROM kp.log x
    JOIN kp.log l ON l.id = x.id AND l.rev = 0
    LEFT JOIN kp.documents d ON d.id = l.id
    WHERE x.seq > %s AND x.seq <= %s AND x.kind <> 'gone'
      AND NOT EXISTS (SELECT 1 FROM kp.log g WHERE g.id = x.id AND g.kind = 'gone')
    ORDER BY x.seq
"""
_FEW: Final = 500  # with their documents


class Known(Protocol):
    """Knowledge of all hosts while the log is locked, so that nobody else decides.

    Attributes:
        answered: Runs that were decided on before, when the answer was lost.
        newer: The vectors of other pods since the place, the oldest first.
    """

    answered: Mapping[str, SharedRun]
    newer: Sequence[LoggedVector]

    def history(self, domain: str) -> GateHistory:
        """Return what a gate may know of the runs before the next one of a domain."""

    def add(self, run: SharedRun) -> None:
        """Count a run that was decided on just now among those before the next."""


class SharedLog(Protocol):
    """The five operations of the log that hosts share; each may raise `SharedLogError`."""

    def ship(self, runs: Sequence[SharedRun]) -> Mapping[str, int]:
        """Append runs that stay local; return the place of each, also if it was there before."""

    def pull(self, place: Place | None) -> Pulled:
        """Return the vectors of other pods since a place, some at a time, and the place reached.

        None begins with the newest rows.

        Raises:
            LogChangedError: If the log has changed before the place.
        """

    def decide(
        self, ids: Sequence[str], place: Place, judge: Callable[[Known], Sequence[Decided]]
    ) -> Mapping[str, int]:
        """Lock the log, let a function decide, and append that; return the place of each run."""

    def pace(self, registry: str, agent_id: str | None, key_hash: str) -> PaceOfAll:
        """Return the rate limit that all hosts keep for one agent."""

    def outbox(self, registry: str, agent_id: str | None, key_hash: str) -> Outbox:
        """Return the items that all hosts have for one agent; what clears is put there."""


class PostgresLog(SharedLog):
    """The log on one connection; before `outbox` is called nothing is sent from here."""

    def __init__(self, link: Link, pod: str, *, newest: int) -> None:
        self.link = link
        self.pod = pod
        self._newest = newest
        self._items: SharedOutbox | None = None

    def pace(self, registry: str, agent_id: str | None, key_hash: str) -> PaceOfAll:
        return PaceOfAll(self.link, registry=registry, agent_id=agent_id, key_hash=key_hash)

    def outbox(self, registry: str, agent_id: str | None, key_hash: str) -> SharedOutbox:
        self._items = SharedOutbox.of(self.link, registry, agent_id, key_hash)
        return self._items

    def ship(self, runs: Sequence[SharedRun]) -> Mapping[str, int]:
        def work(connection: Connection) -> dict[str, int]:
            with bounded(connection):
                shipped = connection.execute(_SHIP, {"rows": as_json(runs)})
            return dict(shipped.fetchall())

        try:
            shipped = self.link.exchange(work)
        except SharedLogError as error:
            if error.sqlstate != _UNIQUE_VIOLATION:  # an earlier attempt is committed just now
                raise
            shipped = {}
        left = [run.id for run in runs if run.id not in shipped]
        return {**shipped, **self.places(left)} if left else shipped

    def places(self, ids: Sequence[str]) -> Mapping[str, int]:
        """Return the places of those of these runs that are in the log."""
        return self.link.exchange(
            lambda connection: dict(connection.execute(_PLACES, ([*ids],)).fetchall())
        )

    def revise(self, run: SharedRun, has_room: Callable[[GateHistory], bool]) -> bool:
        """Write what is known of a run now; return False if it clears now, and has no room."""

        def work(connection: Connection) -> bool:
            with bounded(connection) as pipeline:
                locked = connection.execute(LOCK)
                found = connection.execute(_BEFORE, (run.id,))
                pipeline.sync()
                head, before = locked.fetchall()[0][0], found.fetchall()
                if not before:
                    return True  # it was deleted
                if run.decision == "forward" and before != [("forward",)]:
                    history = LockedLog(connection, pipeline, {}, ()).history(run.domain)
                    if not has_room(history):
                        return False
                rows = {"rows": as_json([run]), "head": head}
                for statement in (_REVISE, _REWRITE, _DOCUMENT):
                    connection.execute(statement, rows)
                connection.execute(_MOVE, (1,))
            return True

        return self.link.exchange(work)

    def pull(self, place: Place | None) -> Pulled:
        def work(connection: Connection) -> Pulled:
            with bounded(connection):
                head, end, _ = _head(connection, place)
                first = max(0 if place is None else place.seq, head - self._newest)
                until = min(head, first + _AT_ONCE)
                found = connection.execute(_VECTORS, (first, until, self.pod), binary=True)
                vectors = [LoggedVector(*row) for row in found]
                reached = Place(head, end) if until == head else _place_at(connection, until)
                told = first if place is None else place.seq  # of what is older, too
                gone = connection.execute(_GONE, (told, until)).fetchall()
            return Pulled(vectors, [id_ for (id_,) in gone], reached)

        return self.link.exchange(work)

    def check(self, place: Place) -> int:
        """Return the first place that is left in the log.

        Raises:
            LogChangedError: If another row stands at the place now.
        """
        return self.link.exchange(lambda connection: _head(connection, place)[2])

    def decide(
        self, ids: Sequence[str], place: Place, judge: Callable[[Known], Sequence[Decided]]
    ) -> Mapping[str, int]:
        # what others have appended meanwhile is read before the lock, but for the last of it
        newer: list[LoggedVector] = []
        before = None
        while place != before:
            before = place
            pulled = self.pull(place)
            newer += pulled.vectors
            place = pulled.place

        def work(connection: Connection) -> dict[str, int]:
            with bounded(connection) as pipeline:
                locked = connection.execute(LOCK)
                # an earlier attempt may end just now
                asked = connection.execute(_ANSWERED, ([*ids],))
                since = connection.execute(_VECTORS, (place.seq, _ANY, self.pod), binary=True)
                pipeline.sync()
                answers = {run.id: (seq, run) for seq, run in map(_placed, asked.fetchall())}
                head = locked.fetchall()[0][0]
                last = [LoggedVector(*row) for row in since]
                answered = {id_: run for id_, (_, run) in answers.items()}
                known = LockedLog(connection, pipeline, answered, [*newer, *last][-self._newest :])
                decided = judge(known)
                self._append(connection, head, decided)
            new = {one.run.id: head + number for number, one in enumerate(decided, 1)}
            return {**new, **{id_: seq for id_, (seq, _) in answers.items()}}

        return self.link.exchange(work)

    def _append(self, connection: Connection, head: int, decided: Sequence[Decided]) -> None:
        if not decided:
            return
        rows = {"rows": as_json([one.run for one in decided]), "head": head}
        connection.execute(_APPEND, rows)
        connection.execute(_DOCUMENTS, rows)
        connection.execute(_MOVE, (len(decided),))
        items = [one.item for one in decided if one.item is not None]
        if items and self._items is not None:
            self._items.insert(connection, items)


def _placed(row: tuple[Any, ...]) -> tuple[int, SharedRun]:
    return row[0], run_of(row[1:])


def delete(link: Link, trace_id: str) -> bool:
    """Delete a run's document and vector, and tell all hosts; return whether it was there."""

    def work(connection: Connection) -> bool:
        with bounded(connection) as pipeline:
            locked = connection.execute(LOCK)
            found = connection.execute(_BEFORE, (trace_id,))
            pipeline.sync()
            head = locked.fetchall()[0][0]
            if not found.fetchall():
                return False
            for statement in _DELETE:
                connection.execute(statement, {"id": trace_id, "head": head})
        return True

    return link.exchange(work)


def pull_runs(link: Link, place: Place | None) -> PulledRuns:
    """Return some runs of all pods since a place, with their documents.

    Raises:
        LogChangedError: If the log has changed before the place.
    """

    def work(connection: Connection) -> PulledRuns:
        with bounded(connection):
            head, end, _ = _head(connection, place)
            first = 0 if place is None else place.seq
            until = min(head, first + _FEW)
            rows = connection.execute(_RUNS, (first, until)).fetchall()
            gone = connection.execute(_GONE, (first, until)).fetchall()
            reached = Place(head, end) if until == head else _place_at(connection, until)
        runs = [LoggedRun(seq, kind, run_of(values)) for seq, kind, *values in rows]
        return PulledRuns(runs, [id_ for (id_,) in gone], reached, head)

    return link.exchange(work)


def _head(connection: Connection, place: Place | None) -> tuple[int, str | None, int]:
    known = Place() if place is None else place
    head, end, anchor, first = connection.execute(_HEAD, (known.seq,)).fetchall()[0]
    was_removed = known.seq < first  # people delete old rows: that changes nothing
    if known.anchor is not None and anchor != known.anchor and not was_removed:
        raise LogChangedError
    return head, end, first


def _place_at(connection: Connection, seq: int) -> Place:
    rows = connection.execute("SELECT id FROM kp.log WHERE seq = %s", (seq,)).fetchall()
    return Place(seq, rows[0][0] if rows else None)
