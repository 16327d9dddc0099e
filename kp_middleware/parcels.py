"""What goes to the registry, and what comes back. Light: read-only commands load this."""

from dataclasses import dataclass
from typing import Final, NamedTuple

BURST: Final = 20
"""How many requests we make one after another; the free tier takes 30."""

INTERVAL_S: Final = 2.2
"""In how many seconds we make one more; the free tier takes one per 2."""


def burst_at(interval_s: float) -> int:
    """How many requests we make one after another at another pace: it comes back in as long.

    >>> burst_at(2.2), burst_at(0.33), burst_at(66)
    (20, 133, 1)
    """
    return max(1, round(BURST * INTERVAL_S / interval_s))


@dataclass(frozen=True, slots=True)
class Parcel:
    """One outbox row that is ours to send, for as long as its lease lasts.

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


class Allowance(NamedTuple):
    """What the registry says of its rate limit, with each answer.

    Attributes:
        per_minute: How many requests of the agent it takes in a minute; None: it does not say.
        remaining: How many it would take at once now, whoever sends them; None: it does not say.
    """

    per_minute: int | None = None
    remaining: int | None = None


UNSAID: Final = Allowance()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The registry has stored it.

    Attributes:
        remote_id: The id under which it is found there.
        status: The HTTP status, 201.
        allowance: What more it would take.
    """

    remote_id: str
    status: int
    allowance: Allowance = UNSAID


def idempotency_key(body: bytes, *, agent_id: str | None, rejections: int = 0) -> str:
    """The same for the same bytes of the same agent, until the registry answers 4xx.

    The registry keeps keys globally and replays 2xx and 4xx answers whatever the body.

    >>> idempotency_key(b"{}", agent_id="a") == idempotency_key(b"{}", agent_id="a", rejections=1)
    False
    """
    import hashlib  # here: it loads OpenSSL, and commands that read need it never

    digest = hashlib.sha256(f"{agent_id or ''}\n{rejections}\n".encode())
    digest.update(body)
    return digest.hexdigest()
