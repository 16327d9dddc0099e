"""Outbox items and receipts of exporters. Light: read-only commands load this."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kp_middleware.rate_limit import UNSAID, Allowance

if TYPE_CHECKING:
    from kp_middleware.errors import RegistryError, RegistryRejectedError


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


class StepFacts(NamedTuple):
    """When a step was taken and by whom, without what was said.

    Attributes:
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        latency_ms: The latency of a tool's result.
        agent: The agent inside the run's own that took it.
        call_id: The fingerprint of the tool call that it makes or answers.
        model: The language model, on the first step of each of its turns; likewise what follows.
        input_tokens: The tokens that were read.
        output_tokens: The tokens that were written.
        model_latency_ms: The latency of the turn.
    """

    started_at: str | None = None
    latency_ms: float | None = None
    agent: str | None = None
    call_id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun(OutboxItem):
    """A run for an exporter of `KnowledgePulse.add_exporter`: ``body`` has what was said.

    Attributes:
        trace_id: The id of its trace: ``kp:trace:…``.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        duration_ms: The duration; None if it was not measured.
        state: ``scored``, ``incomplete`` or ``failed``.
        score: From 0 to 1; None if it has none.
        signals: The four signals of the score by name, each from 0 to 1.
        decision: The gate's, ``forward`` or ``withhold``; None if there is none.
        reason_code: The reason for it.
        gate: The name and setting of the gate.
        agent_name: The name of the agent.
        model: The language model.
        thread_id: The conversation.
        error_type: The exception that ended it.
        input_tokens: The tokens that its models read.
        output_tokens: The tokens that they wrote.
        steps: One for each step in ``body``.
    """

    trace_id: str
    started_at: str
    duration_ms: int | None
    state: str
    score: float | None
    signals: Mapping[str, float]
    decision: str | None
    reason_code: str | None
    gate: str | None
    agent_name: str | None
    model: str | None
    thread_id: str | None
    error_type: str | None
    input_tokens: int | None
    output_tokens: int | None
    steps: tuple[StepFacts, ...]


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
