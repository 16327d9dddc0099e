"""Administration of the outbox by the user."""

import json
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Final, Literal, NamedTuple, TypeAlias

from kp_middleware.database import transaction
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import instant
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.storage._outbox_table import OutboxItems
from kp_middleware.storage._records import marked
from kp_middleware.storage._store import CANCELLED_BY_HAND

Renewal: TypeAlias = Literal["unchanged", "rewritten", "released"]

STILL_SENT: Final = "still sent"
"""The outcome of a retry of what was sent and may not go again."""

_BY_HAND: Final = f"(state = 'cancelled' AND reason = '{CANCELLED_BY_HAND}')"
_TO_RETRY: Final = f"(state IN ('rejected', 'blocked') OR {_BY_HAND})"
_NOT_SENT: Final = f"(state IN ('pending', 'blocked', 'rejected') OR {_BY_HAND})"
_ENTRY: Final = f"""
    SELECT o.state, o.reason, CAST(o.body AS BLOB), {marked("d.body")}, t.score, o.redactor
    FROM outbox o JOIN documents d USING (trace_seq) JOIN traces t ON t.seq = o.trace_seq
    WHERE o.trace_seq = ?
"""


class Entry(NamedTuple):
    """One outbox item with its trace."""

    state: str
    reason: str | None
    body: bytes | None  # None if redaction failed
    document: str
    score: float
    redactor: str  # of the rules that made the body, or blocked it


class Sent(NamedTuple):
    """One sent trace."""

    seq: int
    remote_id: str
    agent_id: str | None  # in its body


class OutboxAdmin(OutboxItems):
    """The outbox of one file, for all registries and agents."""

    def transaction(self) -> AbstractContextManager[None]:
        """Make the changes of the block one: an error undoes all of them."""
        return transaction(self._connection)

    def entry(self, seq: int) -> Entry:
        """Return the outbox item of a trace."""
        for entry in self._all(Entry, _ENTRY, (seq,)):
            return entry
        raise TraceNotFoundError("this run is not in the outbox: see kp-middleware show")

    def seqs(self, *states: str) -> list[int]:
        """Return the ``seq`` of each item in these states, oldest first."""
        return self._column(
            "SELECT trace_seq FROM outbox WHERE state IN (SELECT value FROM json_each(?))"
            " ORDER BY trace_seq",
            (json.dumps(states),),
        )

    def states(self, seqs: Collection[int]) -> dict[str, int]:
        """Count these items by state."""
        cursor = self._run(
            "SELECT state, count(*) FROM outbox"
            " WHERE trace_seq IN (SELECT value FROM json_each(?)) GROUP BY state",
            (json.dumps([*seqs]),),
        )
        return dict(cursor.fetchall())

    def sent(self, registry: str) -> list[Sent]:
        """Return the traces sent to one registry, oldest first."""
        return self._all(
            Sent,
            "SELECT trace_seq, coalesce(o.remote_id, t.id),"
            " json_extract(body, '$.metadata.agent_id')"
            " FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            " WHERE o.state = 'sent' AND registry = ? ORDER BY trace_seq",
            (registry,),
        )

    def reopen(self, seq: int) -> bool:
        """Reopen a sent item so that it can be sent again; return False if it was not sent.

        The item becomes cancelled by hand. Its next idempotency key differs, because the registry
        may replay its answer to a known key without storing anything.
        """
        return self._cancel(seq, "state = 'sent'")

    def cancel(self, seq: int, now: float, /) -> bool:
        """Cancel an unsent item until the user retries it; return whether that was possible."""
        lapsed = "(state = 'sending' AND claimed_until <= ?)"
        unsent = f"(state IN ('pending', 'blocked', 'rejected') OR {lapsed})"
        return self._cancel(seq, unsent, instant(now))

    def retry(self, seq: int, *, agent_id: str | None) -> bool:
        """Queue an item again with no attempts, unless its trace no longer clears."""
        with transaction(self._connection):
            row = self._row(
                "SELECT CAST(body AS BLOB), rejections + (state = 'rejected') FROM outbox"
                f" WHERE trace_seq = ? AND {_TO_RETRY} AND body IS NOT NULL",
                (seq,),
            )
            if row is None:
                return False
            body, rejections = row
            self._change(
                seq,
                state="pending",
                reason=None,
                attempts=0,
                next_attempt_at=None,
                last_error=None,
                http_status=None,
                rejections=rejections,
                idempotency_key=idempotency_key(body, agent_id=agent_id, rejections=rejections),
            )
            self._sync(seq, agent_id=agent_id)
        return True

    def block(self, seq: int, reason: str, *, redactor: str) -> None:
        """Block an unsent item that may not be clean, and delete its body."""
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
        """Replace the body of an unsent item with one made by the current redaction rules."""
        with transaction(self._connection):
            row = self._row(
                "SELECT CAST(body AS BLOB), rejections FROM outbox"
                f" WHERE trace_seq = ? AND {_NOT_SENT}",
                (seq,),
            )
            if row is None:
                return "unchanged"  # it is being sent, or was sent, meanwhile
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
            self._sync(seq, agent_id=agent_id)  # feedback may have come meanwhile
        return "rewritten"

    def _cancel(self, seq: int, condition: str, *values: object) -> bool:
        with transaction(self._connection):
            cancelled = self._run(
                "UPDATE outbox SET rejections = rejections + (state IN ('sent', 'rejected')),"
                " state = 'cancelled', reason = ?, claimed_until = NULL,"
                " claimed_by = iif(state = 'sending', NULL, claimed_by),"  # else the shared log's
                " next_attempt_at = NULL, last_error = NULL"
                f" WHERE trace_seq = ? AND {condition} RETURNING 1",
                (CANCELLED_BY_HAND, seq, *values),
            )
            return bool(cancelled.fetchall())
