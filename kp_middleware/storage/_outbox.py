"""The outbox: one item for each trace to send, with its exact body, updated with the trace."""

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.database import Connection, Queries, transaction
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import epoch_s, instant
from kp_middleware.outbox_items import (
    LeasedOutbox,
    OutboxItem,
    idempotency_key,
    lease_holder,
)
from kp_middleware.reasons import reason_text
from kp_middleware.storage._records import ASSUMED, document_sql
from kp_middleware.storage._store import CANCELLED_BY_USER, MAY_HAVE_BEEN_SENT

LEASE_S: Final = 40.0  # a request takes 10 s at most; as long as a turn of the shared pace

Renewal: TypeAlias = Literal["unchanged", "rewritten", "released"]

STILL_SENT: Final = "still sent"
"""The result of retrying an item that was sent and must not be sent again."""

_BY_USER: Final = f"(state = 'cancelled' AND reason = '{CANCELLED_BY_USER}')"
_TO_RETRY: Final = f"(state IN ('rejected', 'blocked') OR {_BY_USER})"
_UNSENT: Final = "state IN ('pending', 'blocked', 'rejected')"
_NOT_SENT: Final = f"({_UNSENT} OR {_BY_USER})"
_ENTRY: Final = f"""
    SELECT o.state, o.reason, CAST(o.body AS BLOB), {document_sql("d.body")}, t.score, o.redactor
    FROM outbox o JOIN documents d USING (trace_seq) JOIN traces t ON t.seq = o.trace_seq
    WHERE o.trace_seq = ?
"""
_SYNCED: Final = ("pending", "blocked", "rejected")
_TRACE_OF_ITEM: Final = f"""
    SELECT o.state, o.reason, o.rejections, t.decision, t.reason_code, t.reason_args, t.success,
           {ASSUMED}, t.confidence, t.score
    FROM outbox o JOIN traces t ON t.seq = o.trace_seq WHERE o.trace_seq = ?
"""
_UPDATE_BODY: Final = """
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
_DUE: Final = """
    SELECT trace_seq, body, idempotency_key, attempts,
      state = 'sending' AND 'withhold' = (SELECT decision FROM traces WHERE seq = trace_seq)
    FROM outbox
    WHERE registry = :registry AND body IS NOT NULL AND (
      (state = 'pending' AND (
        coalesce(next_attempt_at, '') <= :now OR next_attempt_at > :longest_wait))
      OR (state = 'sending' AND (claimed_until <= :now OR claimed_until > :longest_lease)))
    ORDER BY next_attempt_at, trace_seq LIMIT 1
"""
_NEXT_DUE: Final = """
    SELECT min(CASE
      WHEN state = 'pending' AND next_attempt_at <= :longest_wait THEN next_attempt_at
      WHEN state = 'sending' AND claimed_until <= :longest_lease THEN min(claimed_until, :soon)
      ELSE '' END)
    FROM outbox
    WHERE state IN ('pending', 'sending') AND registry = :registry AND body IS NOT NULL
"""
_UNQUEUED: Final = """
    SELECT t.seq FROM traces t JOIN documents d ON d.trace_seq = t.seq
    LEFT JOIN outbox o ON o.trace_seq = t.seq
    WHERE t.seq > ? AND t.decision = 'forward' AND t.visibility <> 'private' AND t.pod IS NULL
      AND coalesce(o.state, 'cancelled') = 'cancelled' AND o.reason IS NOT ?
    ORDER BY t.seq LIMIT 1
"""
_ADD: Final = """
    INSERT INTO outbox (trace_seq, state, reason, idempotency_key, registry, redactor, redactions,
                        body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (trace_seq) DO UPDATE SET
      state = excluded.state, reason = excluded.reason, attempts = 0,
      idempotency_key = excluded.idempotency_key, registry = excluded.registry,
      redactor = excluded.redactor, redactions = excluded.redactions,
      body = excluded.body, http_status = NULL
    WHERE outbox.state = 'cancelled' AND outbox.reason IS NOT ?
"""
LONGEST_WAIT_S: Final = 86_400.0 + 600.0  # the registry never postpones an item further
_OTHER_RULES: Final = (
    "prepared with other redact_ settings; to apply these: kp-middleware outbox rescan --force"
)


class Queue(NamedTuple):
    """The backlog of one registry."""

    registry: str
    waiting: int
    due_at: float  # epoch seconds; 0: now
    claimed_until: str | None = None  # when the last lease expires


class Entry(NamedTuple):
    state: str
    reason: str | None
    body: bytes | None  # None if redaction failed
    document: str
    score: float
    redactor: str  # the rules that made the body or blocked the item


class Sent(NamedTuple):
    seq: int
    remote_id: str
    agent_id: str | None  # in its body


class OutboxItems(Queries):
    """The outbox items of one file, updated with their traces."""

    def _change(
        self, seq: int, condition: str = "TRUE", /, *values: object, **columns: object
    ) -> None:
        changes = ", ".join(f"{name} = ?" for name in columns)
        sql = f"UPDATE outbox SET {changes} WHERE trace_seq = ? AND {condition}"
        self._run(sql, (*columns.values(), seq, *values))

    def _sync(self, seq: int, *, agent_id: str | None) -> None:
        """Update the item, if any, of a trace that has changed.

        A pending item that no longer clears is cancelled; a blocked one stays blocked, because it
        might be queued again with weaker redaction rules. The body of an unsent item is updated
        with the success, confidence and score, which need no redaction. Items that are being sent,
        were sent, or may have been sent before the file was damaged, are not changed.
        """
        row = self._row(_TRACE_OF_ITEM, (seq,))
        if row is None or row[0] not in _SYNCED or row[1] == MAY_HAVE_BEEN_SENT:
            return
        state, _, rejections, decision, code, args, success, assumed, confidence, score = row
        if decision == "withhold" and state == "pending":
            reason = f"it cleared the gate before it was re-evaluated: {reason_text(code, args)}"
            cleared = dict.fromkeys(("body", "next_attempt_at", "last_error"))
            self._change(seq, state="cancelled", reason=reason, redactions="{}", **cleared)
            return
        values = {"success": bool(success), "confidence": confidence, "score": score}
        as_json = {f"{name}_json": json.dumps(value) for name, value in values.items()}
        body = self._value(_UPDATE_BODY, {"seq": seq, "assumed": assumed, **values, **as_json})
        if body is not None:
            key = idempotency_key(body.encode(), agent_id=agent_id, rejections=rejections)
            self._change(seq, idempotency_key=key)


class OutboxTable(OutboxItems, LeasedOutbox):
    """The outbox of one file, for one registry and agent.

    An item postponed beyond the longest wait is due: the clock was set back meanwhile.
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

    @cached_property
    def _claimant(self) -> str:
        return lease_holder()

    def claim(self, now: float, /) -> OutboxItem | None:
        values = {"registry": self._registry, "now": instant(now), **_longest(now)}
        with transaction(self._connection):
            while (row := self._row(_DUE, values)) and row[-1]:  # withheld after its sender died
                self._change(row[0], state="pending")
                self.sync(row[0])
            if row is None:
                return None
            seq, body, key, attempts, _ = row
            lease = {"claimed_by": self._claimant, "claimed_until": instant(now + LEASE_S)}
            self._change(seq, state="sending", **lease)
        return OutboxItem(seq, body.encode(), key, attempts)

    def next_due(self) -> float | None:
        now = self._clock()
        soon = instant(now + 1.0)
        values = {"registry": self._registry, "soon": soon, **_longest(now)}
        due_at = self._text(_NEXT_DUE, values)
        return None if due_at is None else due_s(due_at)

    def release(self, item: OutboxItem, /) -> None:
        wait_ms = self._value("PRAGMA busy_timeout")
        self._run("PRAGMA busy_timeout = 300")  # for a locked file
        try:
            super().release(item)
        finally:
            self._run(f"PRAGMA busy_timeout = {wait_ms}")

    def retry_now(self) -> None:
        self._run(
            "UPDATE outbox SET next_attempt_at = NULL WHERE state = 'pending'"
            " AND registry = ? AND attempts < ? AND next_attempt_at > ?",
            (self._registry, 2, instant(self._clock())),
        )

    def any_pending(self) -> bool:
        sql = "SELECT 1 FROM outbox WHERE state IN ('pending', 'sending') AND registry = ?"
        return self._value(f"{sql} LIMIT 1", (self._registry,)) is not None

    def sync(self, trace_seq: int) -> None:
        self._sync(trace_seq, agent_id=self._agent_id)

    def next_unqueued(self, *, after: int) -> int | None:
        return self._seq(_UNQUEUED, (after, CANCELLED_BY_USER))

    def add(
        self,
        trace_seq: int,
        body: bytes | None,
        *,
        redactor: str,
        redactions: Mapping[str, int],
        reason: str | None = None,
    ) -> None:
        """Insert an item, or replace one that the user did not cancel.

        An item from other redaction rules is blocked, because the current ones may be weaker.
        """
        with transaction(self._connection):
            before, rejections = self._row(
                "SELECT max(redactor), total(rejections) FROM outbox WHERE trace_seq = ?",
                (trace_seq,),
            )
            has_other_rules = before and before.partition("+")[2] != redactor.partition("+")[2]
            if has_other_rules and body is not None:
                reason, body, redactor = _OTHER_RULES, None, before
            state = "blocked" if body is None else "pending"
            key = idempotency_key(body or b"", agent_id=self._agent_id, rejections=int(rejections))
            item = (trace_seq, state, reason, key, self._registry, redactor)
            text, counts = None if body is None else body.decode(), json.dumps(dict(redactions))
            self._run(_ADD, (*item, counts, text, CANCELLED_BY_USER))
            self._run(
                "UPDATE traces SET reason_args = json_remove(reason_args, '$.delivery')"
                " WHERE seq = ? AND reason_args ->> 'delivery' IN ('no_key', 'wrong_setting')",
                (trace_seq,),
            )

    def _rejections(self, item: OutboxItem) -> int:
        sql = "SELECT total(rejections) FROM outbox WHERE trace_seq = ?"
        return int(self._value(sql, (item.trace_seq,)))

    def _end(self, item: OutboxItem, state: str, *, attempts: int = 1, **columns: Any) -> None:
        columns |= {"state": state, "attempts": item.attempts + attempts}
        columns |= {"claimed_by": None, "claimed_until": None}
        if state == "sent":
            columns["sent_at"] = instant(self._clock())
        if "retry_at" in columns:
            columns["next_attempt_at"] = instant(columns.pop("retry_at"))
        with transaction(self._connection):
            self._change(item.trace_seq, "claimed_by = ?", self._claimant, **columns)
            if state == "pending":
                self.sync(item.trace_seq)


def due_s(due_at: str) -> float:
    """Return an instant in epoch seconds; 0, for now, if it is empty."""
    return epoch_s(due_at) if due_at else 0.0


def _longest(now: float) -> dict[str, str]:
    return {
        "longest_wait": instant(now + LONGEST_WAIT_S),
        "longest_lease": instant(now + LEASE_S + 60.0),  # clocks differ
    }


class OutboxAdmin(OutboxItems):
    """The outbox of one file, for all registries and agents."""

    def transaction(self) -> AbstractContextManager[None]:
        return transaction(self._connection)

    def entry(self, seq: int) -> Entry:
        entry = self._one(Entry, _ENTRY, (seq,))
        if entry is None:
            raise TraceNotFoundError("this run is not in the outbox: see kp-middleware show")
        return entry

    def seqs(self, *states: str) -> list[int]:
        """Return the ``seq`` of each item in these states, oldest first."""
        return self._column(
            "SELECT trace_seq FROM outbox WHERE state IN (SELECT value FROM json_each(?))"
            " ORDER BY trace_seq",
            (json.dumps(states),),
        )

    def states(self, seqs: Collection[int]) -> dict[str, int]:
        sql = (
            "SELECT state, count(*) FROM outbox WHERE trace_seq IN (SELECT value FROM json_each(?))"
        )
        return dict(self._run(f"{sql} GROUP BY state", (json.dumps([*seqs]),)).fetchall())

    def sent(self, registry: str) -> list[Sent]:
        return self._all(
            Sent,
            "SELECT trace_seq, coalesce(o.remote_id, t.id),"
            " json_extract(body, '$.metadata.agent_id')"
            " FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            " WHERE o.state = 'sent' AND registry = ? ORDER BY trace_seq",
            (registry,),
        )

    def reopen(self, seq: int) -> bool:
        """Make a sent item sendable again, as if its user had cancelled it; False if not sent.

        Its next idempotency key differs, because the registry may replay its answer to a known
        key without storing anything.
        """
        return self._cancel(seq, "state = 'sent'")

    def cancel(self, seq: int, now: float, /) -> bool:
        """Cancel an unsent item until the user retries it; return False if not possible."""
        lapsed = "(state = 'sending' AND claimed_until <= ?)"
        return self._cancel(seq, f"({_UNSENT} OR {lapsed})", instant(now))

    def retry(self, seq: int, *, agent_id: str | None) -> bool:
        """Queue an item again, unless its trace no longer clears."""
        with transaction(self._connection):
            row = self._row(
                "SELECT CAST(body AS BLOB), rejections + (state = 'rejected') FROM outbox"
                f" WHERE trace_seq = ? AND {_TO_RETRY} AND body IS NOT NULL",
                (seq,),
            )
            if row is None:
                return False
            body, rejections = row
            key = idempotency_key(body, agent_id=agent_id, rejections=rejections)
            cleared = dict.fromkeys(("reason", "next_attempt_at", "last_error", "http_status"))
            self._change(
                seq,
                state="pending",
                attempts=0,
                rejections=rejections,
                idempotency_key=key,
                **cleared,
            )
            self._sync(seq, agent_id=agent_id)
        return True

    def block(self, seq: int, reason: str, *, redactor: str) -> None:
        """Block an unsent item whose body may not be clean, and delete the body."""
        self._change(seq, _NOT_SENT, state="blocked", reason=reason, redactor=redactor, body=None)

    def renew(
        self,
        seq: int,
        body: bytes,
        *,
        redactor: str,
        redactions: Mapping[str, int],
        agent_id: str | None,
    ) -> Renewal:
        """Replace the body of an unsent item with one from the current redaction rules."""
        with transaction(self._connection):
            row = self._row(
                "SELECT CAST(body AS BLOB), rejections FROM outbox"
                f" WHERE trace_seq = ? AND {_NOT_SENT}",
                (seq,),
            )
            if row is None:
                return "unchanged"  # meanwhile sent or being sent
            before, rejections = row
            redacted = json.dumps(dict(redactions))
            self._change(seq, redactor=redactor, redactions=redacted)
            if before == body:
                return "unchanged"
            key = idempotency_key(body, agent_id=agent_id, rejections=rejections)
            self._change(seq, body=body.decode(), idempotency_key=key)
            if before is None:
                self.retry(seq, agent_id=agent_id)
                return "released"
            self._sync(seq, agent_id=agent_id)  # for feedback that came meanwhile
        return "rewritten"

    def _cancel(self, seq: int, condition: str, *values: object) -> bool:
        with transaction(self._connection):
            cancelled = self._value(
                "UPDATE outbox SET rejections = rejections + (state IN ('sent', 'rejected')),"
                " state = 'cancelled', reason = ?, claimed_until = NULL,"
                " claimed_by = iif(state = 'sending', NULL, claimed_by),"  # or the shared log's
                " next_attempt_at = NULL, last_error = NULL"
                f" WHERE trace_seq = ? AND {condition} RETURNING 1",
                (CANCELLED_BY_USER, seq, *values),
            )
        return cancelled is not None
