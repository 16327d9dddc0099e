"""The outbox: one item for each trace to send, with its exact body, kept in step with the trace."""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kp_middleware.database import Connection, Queries, transaction
from kp_middleware.errors import (
    RegistryError,
    RegistryRejectedError,
)
from kp_middleware.instants import epoch_s, instant
from kp_middleware.outbox_items import OutboxItem, Receipt, idempotency_key
from kp_middleware.reasons import reason_text
from kp_middleware.storage._records import ASSUMED
from kp_middleware.storage._rescue import LOST_ON_ITS_WAY
from kp_middleware.storage._store import CANCELLED_BY_HAND

_NOT_SENT: Final = ("pending", "blocked", "rejected")
_TRACE_OF_ITEM: Final = f"""
    SELECT o.state, o.reason, o.rejections, t.decision, t.reason_code, t.reason_args, t.success,
           {ASSUMED}, t.confidence, t.score
    FROM outbox o JOIN traces t ON t.seq = o.trace_seq WHERE o.trace_seq = ?
"""
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
"""  # json(): SQLite's own conversion rounds
_LEASE_S: Final = 40.0  # a request takes 10 s at most; as long as a turn of the shared pace
_LOOK_AGAIN_S: Final = 1.0
_LONGEST_WAIT_S: Final = 86_400.0 + 600.0  # no answer of the registry postpones an item further
_CLOCKS_DIFFER_S: Final = 60.0
_LAST_WAIT_MS: Final = 300  # for a locked file, when the process exits
_TRIED_OFTEN: Final = 2
_BY_OTHER_RULES: Final = (
    "it was prepared by other redact_ settings; kp-middleware outbox rescan --force applies these"
)


class OutboxItems(Queries):
    """The items of one file's outbox, kept in step with their traces."""

    def _change(
        self, seq: int, condition: str = "TRUE", /, *values: object, **columns: object
    ) -> bool:
        """Set columns of an item on a condition; return whether it held."""
        changes = ", ".join(f"{name} = ?" for name in columns)
        sql = f"UPDATE outbox SET {changes} WHERE trace_seq = ? AND {condition} RETURNING 1"
        with transaction(self._connection):
            return bool(self._run(sql, (*columns.values(), seq, *values)).fetchall())

    def _sync(self, seq: int, *, agent_id: str | None) -> None:
        """Update the item of a trace, if there is one, after the trace has changed.

        A pending item that no longer clears is cancelled; a blocked one stays blocked, because it
        might be queued again with weaker redaction rules. The body of an unsent item gets the
        trace's success and whether it is assumed, confidence and score, which need no redaction. An
        item that was sent, is being sent, or may have been sent before its file was damaged, is not
        changed.
        """
        row = self._row(_TRACE_OF_ITEM, (seq,))
        if row is None or row[0] not in _NOT_SENT or row[1] == LOST_ON_ITS_WAY:
            return
        state, _, rejections, decision, code, args, success, assumed, confidence, score = row
        if decision == "withhold" and state == "pending":
            why = f"it cleared before it was decided anew: {reason_text(code, args)}"
            unsent = {"next_attempt_at": None, "last_error": None}
            cancelled = {"state": "cancelled", "reason": why, "body": None, "redactions": "{}"}
            self._change(seq, **cancelled, **unsent)
            return
        facts = {"success": bool(success), "confidence": confidence, "score": score}
        as_json = {f"{name}_json": json.dumps(fact) for name, fact in facts.items()}
        body = self._value(_PUT_RIGHT, {"seq": seq, "assumed": assumed, **facts, **as_json})
        if body is not None:
            key = idempotency_key(body.encode(), agent_id=agent_id, rejections=rejections)
            self._change(seq, idempotency_key=key)


class OutboxTable(OutboxItems):
    """The outbox of one file, for one registry and agent.

    An item postponed further ahead than the longest wait was postponed before the clock was set
    back: it is due.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        registry: str,
        agent_id: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(connection)
        self._registry = registry
        self._agent_id = agent_id
        self._clock = clock
        self._claimant = f"{os.getpid()}-{os.urandom(4).hex()}"

    def claim(self, now: float, /) -> OutboxItem | None:
        with transaction(self._connection):
            while (row := self._due(now)) and row[-1]:  # withheld after its sender died
                self._change(row[0], state="pending")
                self.sync(row[0])
            if row is None:
                return None
            seq, body, key, attempts, _ = row
            lease = {"claimed_by": self._claimant, "claimed_until": instant(now + _LEASE_S)}
            self._change(seq, state="sending", **lease)
        return OutboxItem(seq, body.encode(), key, attempts)

    def _due(self, now: float) -> tuple[int, str, str, int, bool] | None:
        """Return an item to claim, and whether its trace was withheld after its sender died."""
        row: tuple[int, str, str, int, bool] | None = self._row(
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
        )
        return row

    def next_due(self) -> float | None:
        now = self._clock()
        due_at = self._value(
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
        )
        if due_at is None:
            return None
        return epoch_s(due_at) if due_at else 0.0

    def sent(self, item: OutboxItem, receipt: Receipt, /) -> None:
        self._end(
            item,
            state="sent",
            sent_at=instant(self._clock()),
            remote_id=receipt.remote_id,
            http_status=receipt.status,
            last_error=None,
        )

    def rejected(self, item: OutboxItem, error: RegistryRejectedError, /) -> None:
        self._end(item, state="rejected", reason=error.reason, http_status=error.status)

    def block(self, item: OutboxItem, reason: str, /) -> None:
        self._end(item, state="blocked", reason=reason)

    def postpone(
        self, item: OutboxItem, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        with transaction(self._connection):
            rejections = error.is_refusal + (self._rejections(item.trace_seq) or 0)
            self._end(
                item,
                attempts=int(counted),
                state="pending",
                next_attempt_at=instant(retry_at),
                last_error=error.what,
                http_status=error.status,
                rejections=rejections,
                idempotency_key=idempotency_key(
                    item.body, agent_id=self._agent_id, rejections=rejections
                ),
            )
            self.sync(item.trace_seq)

    def release(self, item: OutboxItem, /) -> None:
        wait_ms = self._value("PRAGMA busy_timeout")
        self._run(f"PRAGMA busy_timeout = {_LAST_WAIT_MS}")
        try:
            with transaction(self._connection):
                self._end(item, attempts=0, state="pending")
                self.sync(item.trace_seq)
        finally:
            self._run(f"PRAGMA busy_timeout = {wait_ms}")

    def retry_now(self) -> None:
        with transaction(self._connection):
            self._run(
                "UPDATE outbox SET next_attempt_at = NULL WHERE state = 'pending'"
                " AND registry = ? AND attempts < ? AND next_attempt_at > ?",
                (self._registry, _TRIED_OFTEN, instant(self._clock())),
            )

    def any_pending(self) -> bool:
        return bool(
            self._value(
                "SELECT EXISTS (SELECT 1 FROM outbox"
                " WHERE state IN ('pending', 'sending') AND registry = ?)",
                (self._registry,),
            )
        )

    def sync(self, trace_seq: int) -> None:
        self._sync(trace_seq, agent_id=self._agent_id)

    def next_unqueued(self, *, after: int) -> int | None:
        found: int | None = self._value(
            """
            SELECT t.seq FROM traces t JOIN documents d ON d.trace_seq = t.seq
            LEFT JOIN outbox o ON o.trace_seq = t.seq
            WHERE t.seq > ? AND t.decision = 'forward' AND t.visibility <> 'private'
              AND t.pod IS NULL
              AND coalesce(o.state, 'cancelled') = 'cancelled' AND o.reason IS NOT ?
            ORDER BY t.seq LIMIT 1
            """,
            (after, CANCELLED_BY_HAND),
        )
        return found

    def add(
        self,
        trace_seq: int,
        body: bytes | None,
        *,
        redactor: str,
        redactions: Mapping[str, int],
        reason: str | None = None,
    ) -> None:
        """Insert an item unless there is one; replace a cancelled one unless cancelled by hand.

        An item that other redaction rules had prepared is blocked: the current ones may be weaker.
        """
        with transaction(self._connection):
            rejections = self._rejections(trace_seq)
            before = self._value("SELECT redactor FROM outbox WHERE trace_seq = ?", (trace_seq,))
            if before and _rules(before) != _rules(redactor) and body is not None:
                reason, body, redactor = _BY_OTHER_RULES, None, before
            state = "blocked" if body is None else "pending"
            key = idempotency_key(body or b"", agent_id=self._agent_id, rejections=rejections or 0)
            self._run(
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
            self._run(
                "UPDATE traces SET reason_args = json_remove(reason_args, '$.delivery')"
                " WHERE seq = ? AND reason_args ->> 'delivery' IN ('no_key', 'wrong_setting')",
                (trace_seq,),
            )

    def _rejections(self, trace_seq: int) -> int | None:
        """Return how often an item was refused; None if there is none."""
        found: int | None = self._value(
            "SELECT rejections FROM outbox WHERE trace_seq = ?", (trace_seq,)
        )
        return found

    def _end(self, item: OutboxItem, *, attempts: int = 1, **columns: object) -> None:
        """Change the item and release its lease; do nothing if another process has the lease."""
        ended = {"attempts": item.attempts + attempts, "claimed_by": None, "claimed_until": None}
        self._change(item.trace_seq, "claimed_by = ?", self._claimant, **columns, **ended)


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
    """The backlog of one registry."""

    registry: str
    waiting: int
    due_at: float  # epoch seconds; 0: now
    claimed_until: str | None = None  # when the last lease expires
