"""Records in PostgreSQL: runs, outbox items, and the shared pace."""

import base64
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, NamedTuple, Self

from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.formula import Adjustment, Nearest, Score, Signals, Weights
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.errors import KnowledgePulseError
from kp_middleware.outbox_items import LeasedOutbox, OutboxItem, lease_holder
from kp_middleware.rate_limit import Pace, pack_pace, unpack_pace
from kp_middleware.shared_log._link import Connection, Cursor, Link


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """A scored run as a row of ``kp.log``, with its document if that is shared."""

    id: str
    pod: str
    domain: str
    started_at: str
    success: bool
    success_source: str | None
    confidence: float
    signals: tuple[float, ...]
    weights: tuple[float, ...]
    rules: str
    score: float
    threshold: float | None
    gate: str
    decision: str
    reason_code: str
    reason_args: str | None
    rank_key: float | None
    bar: float | None
    credit: float | None
    chosen: bool | None
    scorer: str | None
    embedder: str | None
    nearest: str | None
    nearest_similarity: float | None
    vector: bytes | None = None
    facts: str = "{}"
    decided_at: str | None = None
    body: str | None = None
    redactor: str | None = None

    def evaluated(self, evaluation: Evaluation) -> Self:
        signals, weights = tuple(evaluation.score.signals), tuple(evaluation.score.weights)
        return replace(self, **evaluation.as_columns(), signals=signals, weights=weights)

    @property
    def evaluation(self) -> Evaluation:
        similarity = self.nearest_similarity
        nearest = None if similarity is None else Nearest(self.nearest or "", similarity)
        rules = tuple(Adjustment(**one) for one in json.loads(self.rules))
        measured = Signals(*self.signals), Weights(*self.weights)
        score = Score(self.score, *measured, rules, nearest, self.embedder)
        reason = Reason(ReasonCode(self.reason_code), json.loads(self.reason_args or "{}"))
        ranked = self.rank_key, self.bar, self.credit, self.chosen
        return Evaluation(score, Verdict(self.gate, self.threshold, self.decision, reason, *ranked))


class SharedItem(NamedTuple):
    """A body for the shared outbox, exactly as it is posted; ``redactions`` are JSON."""

    id: str
    body: bytes
    redactor: str
    redactions: str
    idempotency_key: str


class ItemState(NamedTuple):
    id: str
    state: str  # ``gone`` if its run was deleted in the log
    reason: str | None
    attempts: int
    http_status: int | None
    last_error: str | None
    sent_at: str | None
    remote_id: str | None


_INSTANTS: Final = {"started_at", "decided_at"}
_SQL: Final[dict[object, str]] = {
    str: "text",
    str | None: "text",
    bool: "boolean",
    bool | None: "boolean",
    float: "float8",
    float | None: "float8",
    tuple[float, ...]: "float8[]",
    bytes | None: "text",
}
_TYPES: Final = {
    field.name: "timestamptz" if field.name in _INSTANTS else _SQL[field.type]
    for field in fields(SharedRun)
}
_CHANGED: Final = {
    "decided_at": "coalesce(decided_at, clock_timestamp())",
    "vector": "decode(vector, 'base64')",
}
_OF_LOG: Final = [name for name in _TYPES if name not in {"body", "redactor"}]

COLUMNS: Final = ", ".join(_OF_LOG)
VALUES: Final = ", ".join(_CHANGED.get(name, name) for name in _OF_LOG)
"""The values of `COLUMNS`, selected from `RECORDSET`."""

RECORDSET: Final = (
    "jsonb_to_recordset(%(rows)s::text::jsonb) AS r(n int, "
    + ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
    + ")"
)
"""The runs of `as_json` as a table, numbered by ``n`` from 1."""

SELECTED: Final = ", ".join(
    f"to_char(l.{name} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
    if name in _INSTANTS
    else f"l.{name}"
    for name in _OF_LOG
)
"""The columns of a run in ``kp.log l``, for `run_of`."""


def as_json(runs: Sequence[SharedRun]) -> str:
    rows = [{**asdict(run), "n": number} for number, run in enumerate(runs, 1)]
    return json.dumps(rows, default=lambda vector: base64.b64encode(vector).decode())


def run_of(values: Sequence[Any]) -> SharedRun:
    """Return a run from the values of `SELECTED`, and of body and redactor if they follow."""
    return SharedRun(**dict(zip(_TYPES, values, strict=False)))


_LEASE_S: Final = 120
_OURS: Final = "registry = %(registry)s AND agent IN (%(agent)s, '')"
_INSERT: Final = """
    INSERT INTO kp.outbox (seq, id, registry, agent, state, idempotency_key, redactor, redactions,
                           body)
    SELECT seq, id, %(registry)s, %(agent)s, 'pending', %(idempotency_key)s, %(redactor)s,
           %(redactions)s, %(body)s
    FROM kp.log l WHERE id = %(id)s AND rev = 0
      AND NOT EXISTS (SELECT 1 FROM kp.log g WHERE g.id = l.id AND g.kind = 'gone')
    ON CONFLICT (seq) DO UPDATE SET
      state = 'pending', reason = NULL, attempts = 0, next_attempt_at = NULL, http_status = NULL,
      idempotency_key = excluded.idempotency_key, redactor = excluded.redactor,
      redactions = excluded.redactions, body = excluded.body,
      registry = excluded.registry, agent = excluded.agent
    WHERE outbox.state NOT IN ('sending', 'sent')
    RETURNING id
"""
_CLAIM: Final = f"""
    UPDATE kp.outbox SET state = 'sending', claimed_by = %(us)s,
      claimed_until = now() + make_interval(secs => {_LEASE_S})
    WHERE seq = (
      SELECT seq FROM kp.outbox WHERE {_OURS} AND body IS NOT NULL AND (
        (state = 'pending' AND coalesce(next_attempt_at, '-infinity') <= now())
        OR (state = 'sending' AND claimed_until <= now()))
      ORDER BY next_attempt_at NULLS FIRST, seq FOR UPDATE SKIP LOCKED LIMIT 1)
    RETURNING seq, body, idempotency_key, attempts
"""
_DUE: Final = f"""
    SELECT extract(epoch FROM min(coalesce(
      CASE state WHEN 'sending' THEN least(claimed_until, now() + interval '1 s')
        ELSE next_attempt_at END, now())) - now())::float8
    FROM kp.outbox WHERE {_OURS} AND state IN ('pending', 'sending') AND body IS NOT NULL
"""
_CHANGES: Final = {"retry_at": "next_attempt_at = now() + make_interval(secs => %(wait_s)s)"}
_END: Final = """
    UPDATE kp.outbox SET {changes}, attempts = attempts + %(tried)s, claimed_by = NULL,
      claimed_until = NULL
    WHERE seq = %(seq)s AND state = 'sending' AND claimed_by = %(us)s
"""
_RETRY: Final = f"""
    UPDATE kp.outbox SET next_attempt_at = NULL
    WHERE state = 'pending' AND {_OURS} AND attempts < 2 AND next_attempt_at > now()
"""
_STATES: Final = """
    SELECT id, 'gone', NULL, 0, NULL, NULL, NULL, NULL FROM kp.log g
    WHERE id = ANY(%(ids)s) AND kind = 'gone'
      AND NOT EXISTS (SELECT 1 FROM kp.outbox o WHERE o.id = g.id)
    UNION ALL SELECT id, state, reason, attempts, http_status, last_error,
      to_char(sent_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), remote_id
    FROM kp.outbox WHERE id = ANY(%(ids)s)
"""
_CANCEL: Final = """
    UPDATE kp.outbox SET state = 'cancelled', body = NULL
    WHERE id = ANY(%s) AND state NOT IN ('sent', 'sending')
"""


def item_states(link: Link, ids: Sequence[str]) -> list[ItemState]:
    """Return the states of items of any agent, by trace ids."""
    return [ItemState(*row) for row in link.ask(_STATES, {"ids": [*ids]})]


def cancel_items(link: Link, ids: Sequence[str]) -> None:
    link.ask(_CANCEL, ([*ids],))


class SharedOutbox(LeasedOutbox):
    """The outbox of one agent at one registry, for all hosts.

    A row keeps its id and idempotency key, so it can be posted again if in doubt. Items without an
    agent id are sent with any key, as from a local file.
    """

    def __init__(self, link: Link, registry: str, agent_id: str | None) -> None:
        self._link = link
        self._agent_id = agent_id
        self._owner_values = {
            "registry": registry.rstrip("/"),
            "agent": agent_id or "",
            "us": lease_holder(),
        }

    def add(self, items: Sequence[SharedItem]) -> set[str]:
        """Add or replace items of runs in the log; return the ids of those added.

        Items that were sent or are being sent are not replaced.
        """
        with self._link.transaction() as opened:
            taken = self.insert(opened.connection, items)
        return {id_ for one in taken for (id_,) in one.fetchall()}

    def insert(self, connection: Connection, items: Sequence[SharedItem]) -> list[Cursor]:
        return [
            connection.execute(_INSERT, {**self._owner_values, **item._asdict()}) for item in items
        ]

    def claim(self, now: float, /) -> OutboxItem | None:  # noqa: ARG002 - by the server's clock
        rows = self._link.ask(_CLAIM, self._owner_values)
        return OutboxItem(*rows[0]) if rows else None

    def next_due(self) -> float | None:
        in_s = self._link.ask(_DUE, self._owner_values)[0][0]
        return None if in_s is None else time.time() + in_s if in_s > 0 else 0.0

    def retry_now(self) -> None:
        self._link.ask(_RETRY, self._owner_values)

    def _rejections(self, item: OutboxItem) -> int:
        found = self._link.ask("SELECT rejections FROM kp.outbox WHERE seq = %s", (item.trace_seq,))
        return int(found[0][0]) if found else 0

    def _end(self, item: OutboxItem, state: str, *, attempts: int = 1, **columns: Any) -> None:
        values = {
            **self._owner_values,
            **columns,
            "state": state,
            "seq": item.trace_seq,
            "tried": attempts,
        }
        changes = [
            "state = %(state)s",
            *(_CHANGES.get(name, f"{name} = %({name})s") for name in columns),
        ]
        if state == "sent":
            changes.append("sent_at = now()")
        if "retry_at" in columns:
            values["wait_s"] = columns["retry_at"] - time.time()
        self._link.ask(_END.format(changes=", ".join(changes)), values)


_BEGIN: Final = """
    INSERT INTO kp.paces (registry, agent, pace) VALUES (%s, %s, '') ON CONFLICT DO NOTHING
"""
_WRITE: Final = "UPDATE kp.paces SET pace = %s, stops = %s WHERE registry = %s AND agent = %s"
_LOCK: Final = """
    SELECT pace, stops, extract(epoch FROM clock_timestamp())::float8
    FROM kp.paces WHERE registry = %s AND agent = %s FOR UPDATE
"""


class PostgresPace:
    """The rate limit state of one agent, for the processes of all hosts.

    Its clock is the server's: each change measures the offset.
    """

    def __init__(self, link: Link, *, registry: str, agent_id: str | None, key_hash: str) -> None:
        self._link = link
        self._row = (registry, f"key {key_hash}" if agent_id is None else agent_id)
        self._key_hash = key_hash
        self._ahead_s = 0.0

    def clock(self) -> float:
        return time.time() + self._ahead_s

    def change(
        self,
        change: Callable[[Pace | None], Pace],
        *,
        patience_s: float | None = None,
    ) -> Pace:
        """Apply a function to the state in one transaction, and return the new state.

        Any ``patience_s`` means that the program ends: the link has deadlines of its own.

        Raises `TimeoutError` if the log cannot be reached, so that nothing is sent; with a
        `DatabaseError`, each process would send at its own pace.
        """
        if patience_s is not None:
            self._link.hurry()
        try:
            with self._link.transaction() as opened:
                opened.connection.execute(_BEGIN, self._row)
                [[(stored, stops, now)]] = opened.read((_LOCK, self._row))
                self._ahead_s = now - time.time()
                before = unpack_pace(stored, stops, self._key_hash) if stored else None
                after = change(before)
                if after != before:
                    packed = pack_pace(after, stops, self._key_hash)
                    opened.connection.execute(_WRITE, (*packed, *self._row))
                return after
        except KnowledgePulseError as error:
            raise TimeoutError(str(error)) from None

    def read(self) -> Pace | None:
        """Return None: the server cannot be read without a request."""
