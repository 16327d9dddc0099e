"""Decide on runs while nobody else does, on the history of all hosts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kp_middleware.core.share import Ranking
from kp_middleware.sharing._link import Connection, Link, bounded
from kp_middleware.sharing._outbox import SharedOutbox
from kp_middleware.sharing._pulling import VECTORS, pull
from kp_middleware.sharing._records import Decided, Known, LoggedVector, Place, SharedRun
from kp_middleware.sharing._rows import COLUMNS, RECORDSET, SELECTED, VALUES, as_json, run_of

if TYPE_CHECKING:
    from psycopg import Pipeline

_ANSWERED: Final = f"SELECT l.seq, {SELECTED} FROM kp.log l WHERE l.id = ANY(%s) AND l.rev = 0"
_LOCK: Final = "SELECT head FROM kp.heads WHERE stream = 'main' FOR UPDATE"
_RANKED: Final = """
    SELECT rank_key, gate = %s, chosen, credit FROM kp.log
    WHERE kind = 'run' AND domain = %s AND rank_key IS NOT NULL ORDER BY seq DESC LIMIT %s
"""
_DAY: Final = """
    SELECT count(*) FROM kp.log WHERE decision = 'forward' AND kind = 'run'
    AND decided_at >= now() - interval '24 hours'
"""
_DOCUMENTS: Final = f"""
    INSERT INTO kp.documents SELECT id, body, redactor FROM {RECORDSET} WHERE body IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET body = excluded.body, redactor = excluded.redactor
"""
_APPEND: Final = f"""
    INSERT INTO kp.log (seq, {COLUMNS}) SELECT %(head)s + n, {VALUES} FROM {RECORDSET}
"""
_MOVE: Final = "UPDATE kp.heads SET head = head + %s WHERE stream = 'main'"


_ANY: Final = 2**62


class FleetHistory:
    """A `GateHistory` of all hosts; its ``trouble`` is told from an error of the gate."""

    def __init__(self, known: "LockedLog", domain: str) -> None:
        self.rank_key = 0.0
        self.trouble: BaseException | None = None
        self._known = known
        self._domain = domain

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the last scored runs of the domain, and what the gate of this name chose."""
        with self._telling():
            return self._known.ranking(self._domain, gate, last)

    def forwarded_in_a_day(self) -> int:
        """Count the runs of all hosts that were forwarded in the last 24 hours."""
        with self._telling():
            return self._known.forwarded_in_a_day()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.trouble = error
            raise


class LockedLog:
    """A `Known` that reads the locked log, once for each domain and gate."""

    def __init__(
        self,
        connection: Connection,
        pipeline: "Pipeline",
        answered: Mapping[str, SharedRun],
        newer: Sequence[LoggedVector],
    ) -> None:
        self.answered = answered
        self.newer = newer
        self._connection = connection
        self._pipeline = pipeline
        self._rankings: dict[tuple[str, str], Ranking] = {}
        self._in_a_day: int | None = None

    def history(self, domain: str) -> FleetHistory:
        """Return what a gate may know of the runs before the next one of a domain."""
        return FleetHistory(self, domain)

    def ranking(self, domain: str, gate: str, last: int) -> Ranking:
        """Return the ranking of a domain, with what was decided just now."""
        if (domain, gate) not in self._rankings:
            rows = self._rows(_RANKED, (gate, domain, last))
            ranking = self._rankings[domain, gate] = Ranking(last)
            for key, is_of_gate, chosen, credit in reversed(rows):
                gone = bool(is_of_gate and chosen)
                ranking.add(key, gone=gone, credit=credit if is_of_gate else None)
        return self._rankings[domain, gate]

    def forwarded_in_a_day(self) -> int:
        """Return the day's count, with what was decided just now."""
        if self._in_a_day is None:
            self._in_a_day = self._rows(_DAY, ())[0][0]
        return self._in_a_day or 0

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(query.encode(), values)
        self._pipeline.sync()
        return cursor.fetchall()

    def add(self, run: SharedRun) -> None:
        """Count a run that was decided on just now among those before the next."""
        for (domain, gate), ranking in self._rankings.items():
            if domain == run.domain and run.rank_key is not None:
                ours = gate == run.gate
                credit = run.credit if ours else None
                ranking.add(run.rank_key, gone=bool(ours and run.chosen), credit=credit)
        if self._in_a_day is not None and run.decision == "forward":
            self._in_a_day += 1


def decide(
    link: Link,
    pod: str,
    ids: Sequence[str],
    place: Place,
    judge: Callable[[Known], Sequence[Decided]],
    *,
    newest: int,
    outbox: SharedOutbox | None,
) -> dict[str, int]:
    """Lock the log, let a function decide on runs, and append what it decided.

    What others have appended meanwhile is read before the lock, but for the last of it.
    """
    newer: list[LoggedVector] = []
    before = None
    while place != before:
        before = place
        pulled = pull(link, pod, place, newest=newest)
        newer += pulled.vectors
        place = pulled.place

    def work(connection: Connection) -> dict[str, int]:
        with bounded(connection) as pipeline:
            locked = connection.execute(_LOCK)
            asked = connection.execute(_ANSWERED, ([*ids],))  # an earlier attempt may end just now
            since = connection.execute(VECTORS, (place.seq, _ANY, pod), binary=True)
            pipeline.sync()
            answers = {run.id: (seq, run) for seq, run in map(_answer, asked.fetchall())}
            head = locked.fetchall()[0][0]
            last = [LoggedVector(*row) for row in since]
            answered = {id_: run for id_, (_, run) in answers.items()}
            known = LockedLog(connection, pipeline, answered, [*newer, *last][-newest:])
            decided = judge(known)
            _append(connection, head, decided, outbox)
        new = {one.run.id: head + number for number, one in enumerate(decided, 1)}
        return {**new, **{id_: seq for id_, (seq, _) in answers.items()}}

    return link.exchange(work)


def _answer(row: tuple[Any, ...]) -> tuple[int, SharedRun]:
    return row[0], run_of(row[1:])


def _append(
    connection: Connection, head: int, decided: Sequence[Decided], outbox: SharedOutbox | None
) -> None:
    if not decided:
        return
    rows = {"rows": as_json([one.run for one in decided]), "head": head}
    connection.execute(_APPEND, rows)
    connection.execute(_DOCUMENTS, rows)
    connection.execute(_MOVE, (len(decided),))
    items = [one.item for one in decided if one.item is not None]
    if items and outbox is not None:
        outbox.insert(connection, items)
