"""What waits to be sent: one row for each trace that may leave, with exactly the bytes that go."""

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
from kp_middleware.storage._outbox_sync import sync_outbox_to_trace
from kp_middleware.storage._trace_store import CANCELLED_BY_HAND

_LEASE_S: Final = 40.0  # a request takes 10 s at most; as long as a turn of the shared pace
_LOOK_AGAIN_S: Final = 1.0
_LONGEST_WAIT_S: Final = 86_400.0 + 600.0  # no answer of the registry's makes a row wait longer
_CLOCKS_DIFFER_S: Final = 60.0
_LAST_WAIT_MS: Final = 300  # for a locked file, where a process ends
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

    A row whose time lies further ahead than any wait is long was put off before the clock was set
    back: it is due.

    Args:
        connection: Of the file.
        registry: Its URL.
        agent_id: Under which the key was registered, or None.
        clock: Epoch seconds; may be set while we run.
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
        """A trace may leave, with these bytes."""
        self._insert(trace_seq, "pending", None, body, redactor, redactions)

    def add_blocked(self, trace_seq: int, reason: str, *, redactor: str) -> None:
        """A trace would leave, but it is not certain that it is clean."""
        self._insert(trace_seq, "blocked", reason, None, redactor, {})

    def claim(self, now: float, /) -> OutboxItem | None:
        """The next row that is due at this epoch second, ours until its lease ends."""
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
        """A row to claim; at the end, whether it cleared no more while its sender died."""
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
        sync_outbox_to_trace(self._connection, seq, agent_id=self._agent_id)

    def next_due(self) -> float | None:
        """When the next row may be due, in epoch seconds; None: nothing waits.

        What another process has claimed is looked at again soon: it may be sent before its lease
        ends.
        """
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
        """It arrived."""
        self._end(
            item,
            "state = 'sent', sent_at = ?, remote_id = ?, http_status = ?, last_error = NULL",
            (instant(self._clock()), receipt.remote_id, receipt.status),
        )

    def rejected(self, item: OutboxItem, error: RegistryRejectedError, /) -> None:
        """It will never be accepted."""
        self._end(
            item,
            "state = 'rejected', reason = ?, http_status = ?",
            (error.reason, error.status),
        )

    def block(self, item: OutboxItem, reason: str, /) -> None:
        """It is not tried again by itself."""
        self._end(item, "state = 'blocked', reason = ?", (reason,))

    def postpone(
        self, item: OutboxItem, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        """It is due again at an epoch second; ``counted`` adds one to its attempts.

        If its trace was decided anew meanwhile, the row follows.
        """
        status = None
        if isinstance(error, RegistryForbiddenError | RegistryUnavailableError):
            status = error.status
        refused = int(status is not None and 400 <= status < 500)
        with transaction(self._connection):
            row = self._connection.execute(
                "SELECT rejections FROM outbox WHERE trace_seq = ?", (item.trace_seq,)
            ).fetchone()
            rejections = refused + (row[0] if row else 0)  # no row: the trace is gone meanwhile
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
            sync_outbox_to_trace(self._connection, item.trace_seq, agent_id=self._agent_id)

    def release(self, item: OutboxItem, /) -> None:
        """It is due as before we claimed it. Waits for no other program that has locked the file.

        Raises:
            sqlite3.Error: Where it is locked: then the lease has to end.
        """
        ((wait_ms,),) = self._connection.execute("PRAGMA busy_timeout")
        self._connection.execute(f"PRAGMA busy_timeout = {_LAST_WAIT_MS}")
        try:
            with transaction(self._connection):
                self._end(item, "state = 'pending'", (), attempts=0)
                sync_outbox_to_trace(self._connection, item.trace_seq, agent_id=self._agent_id)
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {wait_ms}")

    def retry_now(self) -> None:
        """What waits because the registry was in trouble is due now.

        What has failed more than once beside others' success waits on: it may be to blame.
        """
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE outbox SET next_attempt_at = NULL WHERE state = 'pending'"
                " AND registry = ? AND attempts < ? AND next_attempt_at > ?",
                (self._registry, _TRIED_OFTEN, instant(self._clock())),
            )

    def any_pending(self) -> bool:
        """Whether a row waits to be sent to this registry."""
        (found,) = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM outbox"
            " WHERE state IN ('pending', 'sending') AND registry = ?)",
            (self._registry,),
        ).fetchone()
        return bool(found)

    def _insert(
        self,
        trace_seq: int,
        state: str,
        reason: str | None,
        body: bytes | None,
        redactor: str,
        redactions: Mapping[str, int],
    ) -> None:
        """Unless another process was first; what was cancelled begins anew, but by hand.

        Where other rules had prepared it, it waits for a person: ours may take out less.
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

    def _end(
        self, item: OutboxItem, change: str, values: tuple[object, ...], *, attempts: int = 1
    ) -> None:
        """End our lease with a change of the row; nothing happens if another took it over."""
        with transaction(self._connection):
            self._connection.execute(
                f"UPDATE outbox SET {change}, attempts = attempts + ?, claimed_by = NULL,"  # noqa: S608 - our own words
                " claimed_until = NULL WHERE trace_seq = ? AND claimed_by = ?",
                (*values, attempts, item.trace_seq, self._claimant),
            )


def _longest(now: float) -> dict[str, str]:
    """Until when a row may wait, and a lease may last."""
    return {
        "longest_wait": instant(now + _LONGEST_WAIT_S),
        "longest_lease": instant(now + _LEASE_S + _CLOCKS_DIFFER_S),
    }


def _rules(redactor: str) -> str:
    """The digest of its rules, whichever version of ours has them.

    >>> _rules("kp-middleware 0.1+ab12")
    'ab12'
    """
    return redactor.partition("+")[2]


class Queue(NamedTuple):
    """What waits for one registry.

    Attributes:
        registry: Its URL.
        waiting: How many traces.
        due_at: When the first may be tried, in epoch seconds; 0 means at once.
        claimed_until: Until when one of them is a program's to send, or None.
    """

    registry: str
    waiting: int
    due_at: float
    claimed_until: str | None = None


def read_queues(connection: Connection) -> list[Queue]:
    """One for each registry that something waits for."""
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


def adopt_registry(connection: Connection, registry: str) -> None:
    """Let what waits for this registry be found, also where an earlier version kept a last slash.

    Args:
        connection: Of the file.
        registry: Its URL, without a slash at its end.
    """
    said = {"registry": registry}
    (found,) = connection.execute(f"SELECT EXISTS (SELECT 1 {_SPELT_OTHERWISE})", said).fetchone()
    if found:
        connection.execute(
            "UPDATE outbox SET registry = :registry"  # noqa: S608 - our own words
            f" WHERE trace_seq IN (SELECT trace_seq {_SPELT_OTHERWISE})",
            said,
        )
