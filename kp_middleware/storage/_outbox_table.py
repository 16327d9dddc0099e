"""The outbox: one item for each trace to send, with its exact body, kept in step with the trace."""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kp_middleware.database import Connection, transaction
from kp_middleware.errors import (
    RegistryError,
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.instants import epoch_s, instant
from kp_middleware.outbox_items import OutboxItem, Receipt, idempotency_key
from kp_middleware.reasons import reason_text
from kp_middleware.storage._records import ASSUMED
from kp_middleware.storage._rescue import LOST_ON_ITS_WAY
from kp_middleware.storage._store import CANCELLED_BY_HAND

_NOT_SENT: Final = ("pending", "blocked", "rejected")
_PUT_RIGHT: Final = """
    UPDATE outbox SET body = json_set(
      json_patch(body, json_object('metadata', json_object('success_source', :assumed))),
      '$.metadata.success', json(:success_json), '$.outcome.confidence',
      json(:confidence_json), '$.metadata.quality_score', json(:score_json))
    WHERE trace_seq = :seq AND body IS NOT NULL AND (
      json_extract(body, '$.metadata.success') <> :success
      OR json_extract(body, '$.metadata.success_source') IS NOT :assumed
      OR json_extract(body, '$.outcome.confidence') <> :confidence
      OR json_extract(body, '$.metadata.quality_score') <> :score)
    RETURNING body
"""


def sync_outbox_to_trace(connection: Connection, seq: int, *, agent_id: str | None) -> None:
    """Update the outbox item of a trace, if there is one, after the trace has changed.

    A pending item that no longer clears is cancelled; a blocked one stays blocked, because it might
    be queued again with weaker redaction rules. The body of an unsent item gets the trace's
    success and whether it is assumed, confidence and score, which need no redaction. An item that
    was sent, is being sent, or may have been sent before its file was damaged, is not changed.

    Args:
        connection: The connection, in the transaction that has changed the trace.
        seq: The ``seq`` of the trace.
        agent_id: The agent that the API key is registered for, or None.
    """
    row = connection.execute(
        f"""
        SELECT o.state, o.reason, o.rejections, t.decision, t.reason_code, t.reason_args, t.success,
               {ASSUMED}, t.confidence, t.score
        FROM outbox o JOIN traces t ON t.seq = o.trace_seq WHERE o.trace_seq = ?
        """,  # noqa: S608 - our own names
        (seq,),
    ).fetchone()
    if row is None or row[0] not in _NOT_SENT or row[1] == LOST_ON_ITS_WAY:
        return
    state, _, rejections, decision, code, args, *facts = row
    if decision == "withhold" and state == "pending":
        _cancel(connection, seq, reason_text(code, args))
    else:
        _put_right(connection, seq, tuple(facts), agent_id=agent_id, rejections=rejections)


def _cancel(connection: Connection, seq: int, why: str | None) -> None:
    connection.execute(
        "UPDATE outbox SET state = 'cancelled', reason = ?, body = NULL, redactions = '{}',"
        " next_attempt_at = NULL, last_error = NULL WHERE trace_seq = ?",
        (f"it cleared before it was decided anew: {why}", seq),
    )


def _put_right(
    connection: Connection,
    seq: int,
    facts: tuple[int, str | None, float, float],
    *,
    agent_id: str | None,
    rejections: int,
) -> None:
    success, assumed, confidence, score = facts
    told = {
        "seq": seq,
        "success": success,
        "assumed": assumed,
        "confidence": confidence,
        "score": score,
        "success_json": json.dumps(bool(success)),
        "confidence_json": json.dumps(confidence),  # SQLite's own conversion rounds
        "score_json": json.dumps(score),
    }
    row = connection.execute(_PUT_RIGHT, told).fetchone()
    if row is not None:
        key = idempotency_key(row[0].encode(), agent_id=agent_id, rejections=rejections)
        connection.execute("UPDATE outbox SET idempotency_key = ? WHERE trace_seq = ?", (key, seq))


_LEASE_S: Final = 40.0  # a request takes 10 s at most; as long as a turn of the shared pace
_LOOK_AGAIN_S: Final = 1.0
_LONGEST_WAIT_S: Final = 86_400.0 + 600.0  # no answer of the registry postpones an item further
_CLOCKS_DIFFER_S: Final = 60.0
_LAST_WAIT_MS: Final = 300  # for a locked file, when the process exits
_TRIED_OFTEN: Final = 2
_BY_OTHER_RULES: Final = (
    "it was prepared by other redact_ settings; kp-middleware outbox rescan --force applies these"
)


_SPELT_OTHERWISE: Final = """
    FROM outbox WHERE state IN ('pending', 'sending', 'blocked', 'rejected')
      AND registry <> :registry AND rtrim(registry, '/') = :registry
"""


class OutboxTable:
    """The outbox of one file, for one registry and agent.

    An item postponed further ahead than the longest wait was postponed before the clock was set
    back: it is due.

    Args:
        connection: The connection to the file.
        registry: The registry's URL.
        agent_id: The agent that the API key is registered for, or None.
        clock: Epoch seconds; the clock may be set meanwhile.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        registry: str,
        agent_id: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._registry = registry
        self._agent_id = agent_id
        self._clock = clock
        self._claimant = f"{os.getpid()}-{os.urandom(4).hex()}"

    def add(
        self, trace_seq: int, body: bytes, *, redactor: str, redactions: Mapping[str, int]
    ) -> None:
        """Add a pending item with this body."""
        self._insert(trace_seq, "pending", None, body, redactor, redactions)

    def add_blocked(self, trace_seq: int, reason: str, *, redactor: str) -> None:
        """Add a blocked item without a body, for a trace that may not be clean."""
        self._insert(trace_seq, "blocked", reason, None, redactor, {})

    def claim(self, now: float, /) -> OutboxItem | None:
        with transaction(self._connection):
            while (row := self._due(now)) and row[-1]:
                self._withdraw(row[0])
            if row is None:
                return None
            self._connection.execute(
                "UPDATE outbox SET state = 'sending', claimed_by = ?, claimed_until = ?"
                " WHERE trace_seq = ?",
                (self._claimant, instant(now + _LEASE_S), row[0]),
            )
        return OutboxItem(row[0], row[1].encode(), row[2], row[3])

    def _due(self, now: float) -> tuple[int, str, str, int, bool] | None:
        """Return an item to claim, and whether its trace was withheld after its sender died."""
        row: tuple[int, str, str, int, bool] | None = self._connection.execute(
            """
            SELECT trace_seq, body, idempotency_key, attempts,
              state = 'sending' AND 'withhold' = (
                SELECT decision FROM traces WHERE seq = trace_seq)
            FROM outbox
            WHERE registry = :registry AND body IS NOT NULL AND (
              (state = 'pending' AND (
                coalesce(next_attempt_at, '') <= :now OR next_attempt_at > :longest_wait))
              OR (state = 'sending' AND (
                claimed_until <= :now OR claimed_until > :longest_lease)))
            ORDER BY next_attempt_at, trace_seq LIMIT 1
            """,
            {"registry": self._registry, "now": instant(now), **_longest(now)},
        ).fetchone()
        return row

    def _withdraw(self, seq: int) -> None:
        self._connection.execute("UPDATE outbox SET state = 'pending' WHERE trace_seq = ?", (seq,))
        self.sync(seq)

    def next_due(self) -> float | None:
        now = self._clock()
        row = self._connection.execute(
            """
            SELECT min(CASE
              WHEN state = 'pending' AND next_attempt_at <= :longest_wait THEN next_attempt_at
              WHEN state = 'sending' AND claimed_until <= :longest_lease
                THEN min(claimed_until, :soon)
              ELSE '' END)
            FROM outbox
            WHERE state IN ('pending', 'sending') AND registry = :registry AND body IS NOT NULL
            """,
            {"registry": self._registry, "soon": instant(now + _LOOK_AGAIN_S), **_longest(now)},
        ).fetchone()
        if row[0] is None:
            return None
        return epoch_s(row[0]) if row[0] else 0.0

    def sent(self, item: OutboxItem, receipt: Receipt, /) -> None:
        self._end(
            item,
            "state = 'sent', sent_at = ?, remote_id = ?, http_status = ?, last_error = NULL",
            (instant(self._clock()), receipt.remote_id, receipt.status),
        )

    def rejected(self, item: OutboxItem, error: RegistryRejectedError, /) -> None:
        self._end(
            item,
            "state = 'rejected', reason = ?, http_status = ?",
            (error.reason, error.status),
        )

    def block(self, item: OutboxItem, reason: str, /) -> None:
        self._end(item, "state = 'blocked', reason = ?", (reason,))

    def postpone(
        self, item: OutboxItem, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        status = None
        if isinstance(error, RegistryForbiddenError | RegistryUnavailableError):
            status = error.status
        refused = int(status is not None and 400 <= status < 500)
        with transaction(self._connection):
            row = self._connection.execute(
                "SELECT rejections FROM outbox WHERE trace_seq = ?", (item.trace_seq,)
            ).fetchone()
            rejections = refused + (row[0] if row else 0)  # no row: the trace was removed meanwhile
            self._end(
                item,
                "state = 'pending', next_attempt_at = ?, last_error = ?, http_status = ?,"
                " rejections = ?, idempotency_key = ?",
                (
                    instant(retry_at),
                    error.what,
                    status,
                    rejections,
                    idempotency_key(item.body, agent_id=self._agent_id, rejections=rejections),
                ),
                attempts=int(counted),
            )
            self.sync(item.trace_seq)

    def release(self, item: OutboxItem, /) -> None:
        ((wait_ms,),) = self._connection.execute("PRAGMA busy_timeout")
        self._connection.execute(f"PRAGMA busy_timeout = {_LAST_WAIT_MS}")
        try:
            with transaction(self._connection):
                self._end(item, "state = 'pending'", (), attempts=0)
                self.sync(item.trace_seq)
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {wait_ms}")

    def retry_now(self) -> None:
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE outbox SET next_attempt_at = NULL WHERE state = 'pending'"
                " AND registry = ? AND attempts < ? AND next_attempt_at > ?",
                (self._registry, _TRIED_OFTEN, instant(self._clock())),
            )

    def any_pending(self) -> bool:
        """Return True if an item for this registry is pending or being sent."""
        (found,) = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM outbox"
            " WHERE state IN ('pending', 'sending') AND registry = ?)",
            (self._registry,),
        ).fetchone()
        return bool(found)

    def sync(self, trace_seq: int) -> None:
        """Update the item of a trace after the trace has changed."""
        sync_outbox_to_trace(self._connection, trace_seq, agent_id=self._agent_id)

    def adopt(self) -> None:
        """Update unsent items whose registry URL was stored with a trailing slash."""
        said = {"registry": self._registry}
        (found,) = self._connection.execute(
            f"SELECT EXISTS (SELECT 1 {_SPELT_OTHERWISE})", said
        ).fetchone()
        if found:
            self._connection.execute(
                "UPDATE outbox SET registry = :registry"  # noqa: S608 - our own words
                f" WHERE trace_seq IN (SELECT trace_seq {_SPELT_OTHERWISE})",
                said,
            )

    def next_unqueued(self, *, after: int) -> int | None:
        """Return the next forwarded run after a ``seq`` that is not in the outbox, or None."""
        row = self._connection.execute(
            """
            SELECT t.seq FROM traces t JOIN documents d ON d.trace_seq = t.seq
            LEFT JOIN outbox o ON o.trace_seq = t.seq
            WHERE t.seq > ? AND t.decision = 'forward' AND t.visibility <> 'private'
              AND coalesce(o.state, 'cancelled') = 'cancelled' AND o.reason IS NOT ?
            ORDER BY t.seq LIMIT 1
            """,
            (after, CANCELLED_BY_HAND),
        ).fetchone()
        return None if row is None else int(row[0])

    def _insert(
        self,
        trace_seq: int,
        state: str,
        reason: str | None,
        body: bytes | None,
        redactor: str,
        redactions: Mapping[str, int],
    ) -> None:
        """Insert an item unless there is one; replace a cancelled one unless cancelled by hand.

        An item that other redaction rules had prepared is blocked: the current ones may be weaker.
        """
        with transaction(self._connection):
            row = self._connection.execute(
                "SELECT rejections, redactor FROM outbox WHERE trace_seq = ?", (trace_seq,)
            ).fetchone()
            rejections = row[0] if row else 0
            if row and _rules(row[1]) != _rules(redactor) and state == "pending":
                state, reason, body, redactor = "blocked", _BY_OTHER_RULES, None, row[1]
            key = idempotency_key(body or b"", agent_id=self._agent_id, rejections=rejections)
            self._connection.execute(
                """
                INSERT INTO outbox (trace_seq, state, reason, idempotency_key, registry, redactor,
                                    redactions, body)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (trace_seq) DO UPDATE SET
                  state = excluded.state, reason = excluded.reason, attempts = 0,
                  idempotency_key = excluded.idempotency_key, registry = excluded.registry,
                  redactor = excluded.redactor, redactions = excluded.redactions,
                  body = excluded.body, http_status = NULL
                WHERE outbox.state = 'cancelled' AND outbox.reason IS NOT ?
                """,
                (
                    *(trace_seq, state, reason, key, self._registry, redactor),
                    json.dumps(dict(redactions)),
                    None if body is None else body.decode(),
                    CANCELLED_BY_HAND,
                ),
            )
            self._connection.execute(
                "UPDATE traces SET reason_args = json_remove(reason_args, '$.delivery')"
                " WHERE seq = ? AND reason_args ->> 'delivery' IN ('no_key', 'wrong_setting')",
                (trace_seq,),
            )

    def _end(
        self, item: OutboxItem, change: str, values: tuple[object, ...], *, attempts: int = 1
    ) -> None:
        """Change the item and release its lease; do nothing if another process has the lease."""
        with transaction(self._connection):
            self._connection.execute(
                f"UPDATE outbox SET {change}, attempts = attempts + ?, claimed_by = NULL,"  # noqa: S608 - our own words
                " claimed_until = NULL WHERE trace_seq = ? AND claimed_by = ?",
                (*values, attempts, item.trace_seq, self._claimant),
            )


def _longest(now: float) -> dict[str, str]:
    """Return the latest plausible ends of a wait and of a lease."""
    return {
        "longest_wait": instant(now + _LONGEST_WAIT_S),
        "longest_lease": instant(now + _LEASE_S + _CLOCKS_DIFFER_S),
    }


def _rules(redactor: str) -> str:
    """Return the digest of a redactor's rules, without the version.

    >>> _rules("kp-middleware 0.1+ab12")
    'ab12'
    """
    return redactor.partition("+")[2]


class Queue(NamedTuple):
    """The backlog of one registry.

    Attributes:
        registry: The registry's URL.
        waiting: The number of traces.
        due_at: When the first is due, in epoch seconds; 0 means now.
        claimed_until: When the last lease expires, or None.
    """

    registry: str
    waiting: int
    due_at: float
    claimed_until: str | None = None


def read_queues(connection: Connection) -> list[Queue]:
    """Read the backlog of each registry that has one."""
    cursor = connection.execute(
        """
        SELECT rtrim(registry, '/'), count(*), min(coalesce(
                 CASE state WHEN 'sending' THEN claimed_until ELSE next_attempt_at END, '')),
               max(claimed_until)
        FROM outbox WHERE state IN ('pending', 'sending') GROUP BY 1 ORDER BY 1
        """
    )
    return [
        Queue(registry, waiting, epoch_s(due_at) if due_at else 0.0, claimed_until)
        for registry, waiting, due_at, claimed_until in cursor
    ]
