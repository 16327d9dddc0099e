"""Outbox items and receipts of exporters. Light: read-only commands load this."""

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kp_middleware.rate_limit import NO_ALLOWANCE, Allowance

if TYPE_CHECKING:
    from kp_middleware.errors import RegistryError, RegistryRejectedError

__all__ = ["LeasedOutbox", "Outbox", "OutboxItem", "Receipt", "idempotency_key", "lease_holder"]


def lease_holder() -> str:
    """Return a new name for a holder of leases in this process."""
    return f"{os.getpid()}-{os.urandom(4).hex()}"


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One outbox row that this process may send while its lease lasts.

    Attributes:
        trace_seq: The row.
        body: The bytes to post, the same at every attempt.
        idempotency_key: Constant for the same bytes, until the registry answers 4xx.
        attempts: The number of earlier attempts.
    """

    trace_seq: int
    body: bytes
    idempotency_key: str
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of a sent outbox item.

    Attributes:
        remote_id: The document's id at the destination, or None.
        status: The HTTP status, or None without HTTP.
        allowance: The remaining rate limit.
    """

    remote_id: str | None = None
    status: int | None = None
    allowance: Allowance = NO_ALLOWANCE


class Outbox(Protocol):
    """The outbox items of one destination; each method is one state transition."""

    def claim(self, now: float, /) -> OutboxItem | None:
        """Claim the next item that is due and return it; return None if none is."""

    def next_due(self) -> float | None:
        """Return when the next item is due or its lease expires, in epoch seconds, or None."""

    def sent(self, item: OutboxItem, receipt: Receipt, /) -> None:
        """Mark the item as sent."""

    def rejected(self, item: OutboxItem, error: "RegistryRejectedError", /) -> None:
        """Mark the item as rejected for good."""

    def postpone(
        self, item: OutboxItem, error: "RegistryError", /, *, retry_at: float, counted: bool
    ) -> None:
        """Postpone the item to ``retry_at``, epoch seconds; ``counted`` adds one to its attempts.

        After a 4xx answer (a ``RegistryForbiddenError`` or a 429) the idempotency key changes.
        """

    def block(self, item: OutboxItem, reason: str, /) -> None:
        """Block the item: it is not retried automatically."""

    def release(self, item: OutboxItem, /) -> None:
        """Release the lease of an item without waiting; may be called from any thread at exit."""

    def retry_now(self) -> None:
        """Make items due now that were postponed while the registry was unavailable."""


class LeasedOutbox(Outbox):
    """An outbox that changes an item, in `_end`, only while this process holds its lease."""

    _agent_id: str | None = None

    def sent(self, item: OutboxItem, receipt: Receipt, /) -> None:
        """Store the receipt."""
        remote_id, http_status = receipt.remote_id, receipt.status
        self._end(item, "sent", remote_id=remote_id, http_status=http_status, last_error=None)

    def rejected(self, item: OutboxItem, error: "RegistryRejectedError", /) -> None:
        """Store the registry's reason."""
        self._end(item, "rejected", reason=error.reason, http_status=error.status)

    def block(self, item: OutboxItem, reason: str, /) -> None:
        """Store the reason."""
        self._end(item, "blocked", reason=reason)

    def postpone(
        self, item: OutboxItem, error: "RegistryError", /, *, retry_at: float, counted: bool
    ) -> None:
        """Store the error, and another idempotency key if it is a refusal."""
        rejections = error.is_refusal + self._rejections(item)
        key = idempotency_key(item.body, agent_id=self._agent_id, rejections=rejections)
        self._end(
            item,
            "pending",
            attempts=int(counted),
            retry_at=retry_at,
            last_error=error.description,
            http_status=error.status,
            rejections=rejections,
            idempotency_key=key,
        )

    def release(self, item: OutboxItem, /) -> None:
        """Make the item due again."""
        self._end(item, "pending", attempts=0)

    @abstractmethod
    def _rejections(self, item: OutboxItem) -> int:
        """Return how often the registry has answered 4xx to this item."""

    @abstractmethod
    def _end(self, item: OutboxItem, state: str, *, attempts: int = 1, **columns: Any) -> None:
        """Change the item and release its lease, unless another process has the lease.

        Of the columns, ``retry_at`` is in epoch seconds.
        """


def idempotency_key(body: bytes, *, agent_id: str | None, rejections: int = 0) -> str:
    """Return the idempotency key of a body: stable until the registry answers 4xx.

    The registry keeps keys globally and replays 2xx and 4xx answers whatever the body.
    """
    import hashlib  # loads OpenSSL, which reading commands never need

    digest = hashlib.sha256(f"{agent_id or ''}\n{rejections}\n".encode())
    digest.update(body)
    return digest.hexdigest()
