"""Administration of the outbox by the user."""

import json
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Final, Literal, NamedTuple, TypeAlias

from kp_middleware.database import Connection, transaction
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import instant
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.storage._outbox_table import sync_outbox_to_trace
from kp_middleware.storage._records import marked
from kp_middleware.storage._store import CANCELLED_BY_HAND

Renewal: TypeAlias = Literal["unchanged", "rewritten", "released"]

STILL_SENT: Final = "still sent"
"""The outcome of a retry of what was sent and may not go again."""

_BY_HAND: Final = f"(state = 'cancelled' AND reason = '{CANCELLED_BY_HAND}')"
_TO_RETRY: Final = f"(state IN ('rejected', 'blocked') OR {_BY_HAND})"
_NOT_SENT: Final = f"(state IN ('pending', 'blocked', 'rejected') OR {_BY_HAND})"


class Entry(NamedTuple):
    """One outbox item with its trace.

    Attributes:
        state: The state of the item.
        reason: Why it is blocked, rejected or cancelled.
        body: The exact bytes to send, or sent; None if redaction failed.
        document: The local copy, as JSON.
        score: The score of the trace.
        redactor: The redaction rules that made the body, or blocked it.
    """

    state: str
    reason: str | None
    body: bytes | None
    document: str
    score: float
    redactor: str


class Sent(NamedTuple):
    """One sent trace.

    Attributes:
        seq: The ``seq`` of the trace.
        remote_id: Its id in the registry.
        agent_id: The agent id in its body, or None.
    """

    seq: int
    remote_id: str
    agent_id: str | None


class OutboxAdmin:
    """The outbox of one file, for all registries and agents."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def transaction(self) -> AbstractContextManager[None]:
        """Make the changes of the block one: an error undoes all of them."""
        return transaction(self._connection)

    def count(self, *, states: Collection[str] = ()) -> int:
        """Count the items in these states; no states means any state."""
        (count,) = self._connection.execute(
            "SELECT count(*) FROM outbox"
            " WHERE :states = '[]' OR state IN (SELECT value FROM json_each(:states))",
            {"states": json.dumps([*states])},
        ).fetchone()
        return int(count)

    def entry(self, seq: int) -> Entry:
        """Return the outbox item of a trace.

        Raises:
            TraceNotFoundError: If it is not in the outbox.
        """
        row = self._connection.execute(
            f"""
            SELECT o.state, o.reason, CAST(o.body AS BLOB), {marked("d.body")}, t.score, o.redactor
            FROM outbox o JOIN documents d USING (trace_seq) JOIN traces t ON t.seq = o.trace_seq
            WHERE o.trace_seq = ?
            """,  # noqa: S608 - our own names
            (seq,),
        ).fetchone()
        if row is None:
            raise TraceNotFoundError("this trace is not in the outbox: see kp-middleware show")
        return Entry(*row)

    def seqs(self, *states: str) -> list[int]:
        """Return the ``seq`` of each item in these states, oldest first."""
        cursor = self._connection.execute(
            "SELECT trace_seq FROM outbox WHERE state IN (SELECT value FROM json_each(?))"
            " ORDER BY trace_seq",
            (json.dumps(states),),
        )
        return [seq for (seq,) in cursor]

    def states(self, seqs: Collection[int]) -> dict[str, int]:
        """Count these items by state."""
        cursor = self._connection.execute(
            "SELECT state, count(*) FROM outbox"
            " WHERE trace_seq IN (SELECT value FROM json_each(?)) GROUP BY state",
            (json.dumps([*seqs]),),
        )
        return dict(cursor.fetchall())

    def sent(self, registry: str) -> list[Sent]:
        """Return the traces sent to one registry, oldest first."""
        cursor = self._connection.execute(
            "SELECT trace_seq, coalesce(o.remote_id, t.id),"
            " json_extract(body, '$.metadata.agent_id')"
            " FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            " WHERE o.state = 'sent' AND rtrim(registry, '/') = ? ORDER BY trace_seq",
            (registry,),
        )
        return [Sent(*row) for row in cursor]

    def reopen(self, seq: int) -> bool:
        """Reopen a sent item so that it can be sent again; return False if it was not sent.

        The item becomes cancelled by hand. Its next idempotency key differs, because the registry
        may replay its answer to a known key without storing anything.
        """
        with transaction(self._connection):
            found = self._connection.execute(
                "UPDATE outbox SET state = 'cancelled', reason = ?, rejections = rejections + 1"
                " WHERE trace_seq = ? AND state = 'sent' RETURNING 1",
                (CANCELLED_BY_HAND, seq),
            ).fetchone()
        return found is not None

    def retry(self, seq: int, *, agent_id: str | None) -> bool:
        """Queue an item again with no attempts, unless its trace no longer clears.

        A rejected item gets a new idempotency key, because the registry replays its answer to a key
        that it has refused.

        Returns:
            False unless the item was rejected, blocked or cancelled by hand.
        """
        with transaction(self._connection):
            row = self._connection.execute(
                "SELECT CAST(body AS BLOB), rejections + (state = 'rejected') FROM outbox"  # noqa: S608 - ours
                f" WHERE trace_seq = ? AND {_TO_RETRY} AND body IS NOT NULL",
                (seq,),
            ).fetchone()
            if row is None:
                return False
            body, rejections = row
            self._connection.execute(
                "UPDATE outbox SET state = 'pending', reason = NULL, attempts = 0,"
                " next_attempt_at = NULL, last_error = NULL, http_status = NULL, rejections = ?,"
                " idempotency_key = ? WHERE trace_seq = ?",
                (rejections, idempotency_key(body, agent_id=agent_id, rejections=rejections), seq),
            )
            sync_outbox_to_trace(self._connection, seq, agent_id=agent_id)
        return True

    def cancel(self, seq: int, now: float, /) -> bool:
        """Cancel an unsent item until the user retries it; return False if it cannot be cancelled.

        Args:
            seq: The ``seq`` of the trace.
            now: Epoch seconds; an item in state ``sending`` is cancelled if its lease has expired.
        """
        with transaction(self._connection):
            found = self._connection.execute(
                "UPDATE outbox SET state = 'cancelled', reason = ?, claimed_by = NULL,"
                " claimed_until = NULL, next_attempt_at = NULL, last_error = NULL,"
                " rejections = rejections + (state = 'rejected')"
                " WHERE trace_seq = ? AND (state IN ('pending', 'blocked', 'rejected')"
                " OR (state = 'sending' AND claimed_until <= ?)) RETURNING 1",
                (CANCELLED_BY_HAND, seq, instant(now)),
            ).fetchone()
        return found is not None

    def block(self, seq: int, reason: str, *, redactor: str) -> None:
        """Block an unsent item that may not be clean, and delete its body."""
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE outbox SET state = 'blocked', reason = ?, redactor = ?, body = NULL"  # noqa: S608 - ours
                f" WHERE trace_seq = ? AND {_NOT_SENT}",
                (reason, redactor, seq),
            )

    def renew(
        self,
        seq: int,
        body: bytes,
        *,
        redactor: str,
        redactions: Mapping[str, int],
        agent_id: str | None,
    ) -> Renewal:
        """Replace the body of an unsent item with one made by the current redaction rules.

        An item without a body, because its redaction had failed, is released to be sent.
        """
        with transaction(self._connection):
            row = self._connection.execute(
                "SELECT CAST(body AS BLOB), rejections FROM outbox"  # noqa: S608 - ours
                f" WHERE trace_seq = ? AND {_NOT_SENT}",
                (seq,),
            ).fetchone()
            if row is None:
                return "unchanged"  # it is being sent, or was sent, meanwhile
            before, rejections = row
            self._connection.execute(
                "UPDATE outbox SET redactor = ?, redactions = ? WHERE trace_seq = ?",
                (redactor, json.dumps(dict(redactions)), seq),
            )
            if before == body:
                return "unchanged"
            key = idempotency_key(body, agent_id=agent_id, rejections=rejections)
            self._connection.execute(
                "UPDATE outbox SET body = ?, idempotency_key = ? WHERE trace_seq = ?",
                (body.decode(), key, seq),
            )
            if before is None:
                self.retry(seq, agent_id=agent_id)
                return "released"
            sync_outbox_to_trace(
                self._connection, seq, agent_id=agent_id
            )  # feedback may have come meanwhile
        return "rewritten"
