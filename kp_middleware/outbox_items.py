"""Outbox items and receipts of exporters. Light: read-only commands load this."""

from dataclasses import dataclass

from kp_middleware.rate_limit import UNSAID, Allowance


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One outbox row that this process may send while its lease lasts.

    Attributes:
        trace_seq: The row.
        body: Exactly the bytes to post, the same at every attempt.
        idempotency_key: The same for the same bytes, until the registry has answered 4xx.
        attempts: How many attempts were made before this one.
    """

    trace_seq: int
    body: bytes
    idempotency_key: str
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of an outbox item that has arrived.

    Attributes:
        remote_id: The id under which it is found there, or None.
        status: The HTTP status, or None where it was not HTTP.
        allowance: What more it would take.
    """

    remote_id: str | None = None
    status: int | None = None
    allowance: Allowance = UNSAID


def idempotency_key(body: bytes, *, agent_id: str | None, rejections: int = 0) -> str:
    """Return the idempotency key of a body: stable until the registry answers 4xx.

    The registry keeps keys globally and replays 2xx and 4xx answers whatever the body.

    >>> idempotency_key(b"{}", agent_id="a") == idempotency_key(b"{}", agent_id="a", rejections=1)
    False
    """
    import hashlib  # here: it loads OpenSSL, and commands that read need it never

    digest = hashlib.sha256(f"{agent_id or ''}\n{rejections}\n".encode())
    digest.update(body)
    return digest.hexdigest()
