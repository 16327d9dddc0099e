"""The shared log in PostgreSQL: append, decide, revise and pull runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from kp_middleware.core.gates import GateHistory, Ranking
from kp_middleware.errors import SharedLogError
from kp_middleware.shared_log._link import LOCK, Link, Rows, Transaction, Values
from kp_middleware.shared_log._rows import (
    COLUMNS,
    RECORDSET,
    SELECTED,
    VALUES,
    SharedItem,
    SharedOutbox,
    SharedRun,
    as_json,
    run_of,
)

T = TypeVar("T")

_ROW_ERRORS: Final = ("22", "23", "54")  # classes of SQLSTATE: this row, not the server

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
# A run whose row was deleted, but not yet its revision, is decided on again.
_DECIDE: Final = _SHIP.replace("l.id = r.id", "l.id = r.id AND l.rev = 0")
_PLACES: Final = "SELECT id, seq FROM kp.log WHERE id = ANY(%s) AND rev = 0"
_ANSWERED: Final = f"SELECT l.seq, {SELECTED} FROM kp.log l WHERE l.id = ANY(%s) AND l.rev = 0"
_BEFORE: Final = "SELECT decision FROM kp.log WHERE id = %s AND rev = 0"
_REVISE: Final = (
    f"""
    WITH h AS (UPDATE kp.heads SET head = head + 1 WHERE stream = 'main' RETURNING head)
    INSERT INTO kp.log (seq, rev, kind, {COLUMNS})
    SELECT h.head, (SELECT max(rev) + 1 FROM kp.log l WHERE l.id = r.id), 'revision', {VALUES}
    FROM {RECORDSET}, h
    """,
    f"""
    UPDATE kp.log l SET success = r.success, success_source = r.success_source,
      confidence = r.confidence, signals = r.signals, rules = r.rules, score = r.score,
      threshold = r.threshold, gate = r.gate, reason_code = r.reason_code,
      reason_args = r.reason_args,
      decided_at = CASE WHEN l.decision = r.decision THEN l.decided_at
                        ELSE clock_timestamp() END,
      decision = r.decision
    FROM {RECORDSET} WHERE l.id = r.id AND l.rev = 0
    """,
    f"""
    UPDATE kp.documents d SET body = r.body, redactor = r.redactor FROM {RECORDSET}
    WHERE d.id = r.id AND r.body IS NOT NULL
    """,
)
_HEAD: Final = """
    SELECT head, (SELECT id FROM kp.log WHERE seq = %s),
      (SELECT coalesce(min(seq), head + 1) FROM kp.log)
    FROM kp.heads WHERE stream = 'main'
"""
_VECTORS: Final = """
    SELECT seq, id, embedder, (extract(epoch FROM decided_at) * 1000)::bigint, vector FROM kp.log
    WHERE seq > %(first)s AND seq <= %(until)s AND pod <> %(pod)s AND kind = 'run'
      AND vector IS NOT NULL AND embedder IS NOT NULL
    ORDER BY seq
"""
_GONE: Final = "SELECT id FROM kp.log WHERE seq > %(since)s AND seq <= %(until)s AND kind = 'gone'"
_ANCHOR: Final = "SELECT (SELECT id FROM kp.log WHERE seq = %(until)s)"
_RUNS: Final = f"""
    SELECT x.seq, x.kind, {SELECTED}, d.body, d.redactor FROM kp.log x
    JOIN kp.log l ON l.id = x.id AND l.rev = 0
    LEFT JOIN kp.documents d ON d.id = l.id
    WHERE x.seq > %(first)s AND x.seq <= %(until)s AND x.kind <> 'gone'
      AND NOT EXISTS (SELECT 1 FROM kp.log g WHERE g.id = x.id AND g.kind = 'gone')
    ORDER BY x.seq
"""
_RANKED: Final = """
    SELECT rank_key, gate = %(gate)s AND chosen, CASE WHEN gate = %(gate)s THEN credit END
    FROM kp.log WHERE kind = 'run' AND domain = %(domain)s AND rank_key IS NOT NULL
    ORDER BY seq DESC LIMIT %(last)s
"""
_DAY: Final = """
    SELECT count(*) FROM kp.log WHERE decision = 'forward' AND kind = 'run'
    AND decided_at >= now() - interval '24 hours'
"""
_SIZED: Final = """
    SELECT coalesce(max(seq) FILTER (WHERE bytes < 1000000), min(seq), %(until)s) FROM (
      SELECT seq, coalesce(sum(octet_length(body)) OVER (ORDER BY seq), 0) AS bytes
      FROM kp.log LEFT JOIN kp.documents USING (id) WHERE seq > %(first)s AND seq <= %(until)s) x
"""
_WITH_DOCUMENTS: Final = 500  # rows, of 1 MB at most: a slow network takes seconds for it
_ALL: Final = 2**62


class LoggedVector(NamedTuple):
    seq: int
    id: str
    embedder: str
    added_at_ms: int
    vector: bytes  # float32, little-endian, of unit length


class LoggedRun(NamedTuple):
    """A row of the log, and the current state of its run."""

    seq: int
    kind: str  # ``revision`` of an earlier row, or ``run``
    run: SharedRun


class LogPosition(NamedTuple):
    """The last row of the log that is known, with its id.

    If the id differs, the log has changed, as by a restore. Without one, that is not checked.
    """

    seq: int = 0
    anchor: str | None = None


class Pulled(NamedTuple, Generic[T]):
    """A batch of rows, deleted ids, the position reached, and the last row of the log."""

    rows: Sequence[T]
    deleted: Sequence[str]
    position: LogPosition
    head: int


class LogChangedError(Exception):
    """The log is no longer the one of a position: it was restored or replaced."""


@dataclass
class LockedLog:
    """The locked log, as the `GateHistory` of the current domain.

    It is read once per domain and gate.
    """

    opened: Transaction
    answered: Mapping[str, SharedRun] = field(default_factory=dict)  # decided before
    newer: Sequence[LoggedVector] = ()  # of other pods, the oldest first
    rank_key: float = 0.0
    read_error: BaseException | None = None  # raised instead of failing the gate
    domain: str = ""
    rankings: dict[tuple[str, str], Ranking] = field(default_factory=dict)
    in_a_day: int | None = None

    def history(self, domain: str) -> GateHistory:
        self.domain = domain
        return self

    def add(self, run: SharedRun) -> None:
        """Add a run that was just decided to the history of the next."""
        for (domain, gate), ranking in self.rankings.items():
            if domain == run.domain and run.rank_key is not None:
                is_ours = gate == run.gate
                gone, credit = is_ours and run.chosen, run.credit if is_ours else None
                ranking.add(run.rank_key, chosen=bool(gone), credit=credit)
        if self.in_a_day is not None and run.decision == "forward":
            self.in_a_day += 1

    def forwarded_in_a_day(self) -> int:
        if self.in_a_day is None:
            self.in_a_day = int(self._read(_DAY)[0][0])
        return self.in_a_day

    def ranking(self, gate: str, last: int) -> Ranking:
        key = self.domain, gate
        if key not in self.rankings:
            values = {"domain": self.domain, "gate": gate, "last": last}
            ranking = Ranking(last)
            for rank_key, gone, credit in reversed(self._read(_RANKED, values)):
                ranking.add(rank_key, chosen=bool(gone), credit=credit)
            self.rankings[key] = ranking
        return self.rankings[key]

    def _read(self, query: str, values: Values = ()) -> Rows:
        try:
            return self.opened.read((query, values))[0]
        except BaseException as error:
            self.read_error = error
            raise


Decisions: TypeAlias = Sequence[tuple[SharedRun, SharedItem | None]]
"""Runs to append to the log, each with the item to send."""


@dataclass(frozen=True)
class PostgresLog:
    """The operations of the shared log, on one connection.

    Each may raise `SharedLogError`. Without an outbox nothing is sent.
    """

    link: Link
    pod: str
    newest: int  # how many vectors to read
    outbox: SharedOutbox | None = None

    def ship(self, runs: Sequence[SharedRun]) -> Mapping[str, int]:
        """Append runs that stay local; return the row of each, also if it was appended before."""
        shipped: dict[str, int] = {}
        try:
            with self.link.transaction() as opened:
                appended = opened.connection.execute(_SHIP, {"rows": as_json(runs)})
            shipped = dict(appended.fetchall())
        except SharedLogError as error:
            if error.sqlstate != "23505":  # unique violation: an earlier attempt has committed
                raise
        left = [run.id for run in runs if run.id not in shipped]
        return {**shipped, **self.places(left)} if left else shipped

    def places(self, ids: Sequence[str]) -> Mapping[str, int]:
        return dict(self.link.ask(_PLACES, ([*ids],)))

    def revise(
        self, run: SharedRun, below_limit: Callable[[Callable[[], int]], bool] | None
    ) -> bool:
        """Update a run; return False if it clears only now, but meets the daily limit."""
        with self.link.transaction() as opened:
            _, before = opened.read((LOCK, ()), (_BEFORE, (run.id,)))
            if not before:
                return True  # it was deleted
            clears = run.decision == "forward" and before != [("forward",)]
            if clears and below_limit and not below_limit(LockedLog(opened).forwarded_in_a_day):
                return False
            rows = {"rows": as_json([run])}
            for statement in _REVISE:
                opened.connection.execute(statement, rows)
        return True

    def pull(self, place: LogPosition | None) -> Pulled[LoggedVector]:
        """Return a batch of other pods' vectors after a position; None: of the newest rows.

        Raises `LogChangedError` if the log has changed before the position.
        """
        pulled = _pull(self.link, place, _VECTORS, most=2000, newest=self.newest, pod=self.pod)
        return Pulled([LoggedVector(*row) for row in pulled.rows], *pulled[1:])

    def check(self, place: LogPosition) -> int:
        """Return the first row of the log; raise `LogChangedError` if it has changed."""
        with self.link.transaction() as opened:
            return _bounds(opened, place)[1]

    def decide(
        self, ids: Sequence[str], place: LogPosition, judge: Callable[[LockedLog], Decisions]
    ) -> list[tuple[int, SharedRun]]:
        """Lock the log, decide, and append the decisions; return each run with its row."""
        # read most of what others have appended before locking
        newer: list[LoggedVector] = []
        for batch in batches(self.pull, place):
            newer += batch.rows
            place = batch.position
        since = {"first": place.seq, "until": _ALL, "pod": self.pod}
        with self.link.transaction() as opened:
            # an earlier attempt may just have been committed: look under the lock
            _, found, last = opened.read((LOCK, ()), (_ANSWERED, ([*ids],)), (_VECTORS, since))
            answers = [(seq, run_of(values)) for seq, *values in found]
            answered = {run.id: run for _, run in answers}
            newer += [LoggedVector(*row) for row in last]
            decided = judge(LockedLog(opened, answered, newer[-self.newest :]))
            if decided:
                rows = {"rows": as_json([run for run, _ in decided])}
                appended = opened.connection.execute(_DECIDE, rows)
            if self.outbox is not None:
                items = [item for _, item in decided if item is not None]
                self.outbox.insert(opened.connection, items)
        places: dict[str, int] = dict(appended.fetchall()) if decided else {}
        return [*answers, *((places[run.id], run) for run, _ in decided)]


def batches(
    pull: Callable[[LogPosition | None], Pulled[T]], place: LogPosition | None
) -> Iterator[Pulled[T]]:
    yield (batch := pull(place))
    while batch.position.seq < batch.head:
        yield (batch := pull(batch.position))


def pull_runs(link: Link, place: LogPosition | None) -> Pulled[LoggedRun]:
    """Return a batch of all pods' runs and documents. Raises as `PostgresLog.pull`."""
    pulled = _pull(link, place, _RUNS, _WITH_DOCUMENTS)
    runs = [LoggedRun(seq, kind, run_of(values)) for seq, kind, *values in pulled.rows]
    return Pulled(runs, *pulled[1:])


def _pull(
    link: Link, start: LogPosition | None, sql: str, most: int, *, newest: int = _ALL, pod: str = ""
) -> Pulled[tuple[Any, ...]]:
    """Return up to ``most`` rows after a position, of the ``newest`` only; None: the start."""
    with link.transaction() as opened:
        head, _ = _bounds(opened, start or LogPosition())
        first = max(0 if start is None else start.seq, head - newest)
        until = min(head, first + most)
        if sql == _RUNS:
            [[(until,)]] = opened.read((_SIZED, {"first": first, "until": until}))
        # deletions of older rows count, too
        since = first if start is None else start.seq
        limits = {"first": first, "until": until, "since": since, "pod": pod}
        rows, gone, [(anchor,)] = opened.read((sql, limits), (_GONE, limits), (_ANCHOR, limits))
    return Pulled(rows, [id_ for (id_,) in gone], LogPosition(until, anchor), head)


def _bounds(opened: Transaction, place: LogPosition) -> tuple[int, int]:
    """Return the last and the first row, if the log still has the position."""
    [[(head, anchor, first)]] = opened.read((_HEAD, (place.seq,)))
    was_removed = place.seq < first  # old rows may be deleted
    if place.anchor is not None and anchor != place.anchor and not was_removed:
        raise LogChangedError
    return head, first


def is_refusal(error: SharedLogError) -> bool:
    """Return whether the server will never accept this row."""
    return (error.sqlstate or "")[:2] in _ROW_ERRORS


def refused(
    items: Sequence[T], apply: Callable[[Sequence[T]], None]
) -> Iterator[tuple[T, SharedLogError]]:
    """Apply a function to all items; yield each that the server refuses, with the error."""
    if not items:
        return
    try:
        apply(items)
    except SharedLogError as error:
        if not is_refusal(error):
            raise
        if len(items) == 1:
            yield items[0], error
            return
        middle = len(items) // 2
        yield from refused(items[:middle], apply)
        yield from refused(items[middle:], apply)
