"""What follows where a trace that was decided on gets another score."""

from importlib.metadata import version
from typing import Final, Self

from kp_middleware.core.formula import Score
from kp_middleware.core.gates import gate_of
from kp_middleware.database import Connection
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._verdicts import Verdicts
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    CANCELLED_BY_HAND,
    Decided,
    GateHistory,
    ScoredTraces,
    TraceStore,
    Verdict,
    agree,
)

_LEFT: Final = ("sent", "sending")


class SecondDecision:
    """Asks the gate anew, and lets the outbox follow. What was sent is never sent again.

    Args:
        connection: Of the file.
        store: Of the same file.
        dispatch: Queues what clears now.
        verdicts: Of today's gate.
        agent_id: Of today's settings.
    """

    def __init__(
        self,
        connection: Connection,
        store: TraceStore,
        dispatch: Dispatch,
        verdicts: Verdicts,
        *,
        agent_id: str | None,
    ) -> None:
        self._connection = connection
        self._store = store
        self._dispatch = dispatch
        self._verdicts = verdicts
        self._agent_id = agent_id
        self._scored = ScoredTraces(connection)

    @classmethod
    def of(cls, connection: Connection, settings: Settings) -> Self:
        """As these settings have it: for a command, which has no pipeline."""
        store = trace_store(connection)
        dispatch = Dispatch(connection, store, settings, Policy.of(settings))
        verdicts = Verdicts(gate_of(settings))
        return cls(connection, store, dispatch, verdicts, agent_id=settings.agent_id)

    def save(self, seq: int, score: Score) -> bool:
        """Store another score of a scored trace, and all that follows but what takes long.

        Must be in a transaction. The outbox's row follows also where only success and confidence
        have changed in the row of the trace.

        Returns:
            Whether it has to be queued, after the transaction.
        """
        before = self._scored.decided(seq)
        verdict, leaves = self._verdict(seq, score, before)
        self._store.save_score_again(seq, score, verdict)
        agree(self._connection, seq, agent_id=self._agent_id)
        return leaves

    def queue(self, seq: int) -> None:
        """Put a trace that clears now into the outbox, redacted. If we die, the next one does."""
        self._dispatch.queue_stored(seq)

    def _verdict(self, seq: int, score: Score, before: Decided) -> tuple[Verdict, bool]:
        history = GateHistory(
            self._connection,
            before.domain,
            seq,
            before.started_at,
            let_through_at=before.let_through_at,
        )
        verdict = self._verdicts.of(score, history)
        if before.outbox_state in _LEFT:
            return verdict.staying(before.outbox_state), False
        is_queued = before.outbox_state not in {None, "cancelled"}
        stays = is_queued or before.outbox_reason == CANCELLED_BY_HAND
        if stays or verdict.decision == "withhold":
            return verdict, False
        blocking_reason = self._dispatch.blocking_reason(before.visibility)
        return (
            (verdict, True)
            if blocking_reason is None
            else (verdict.staying(blocking_reason), False)
        )


def trace_store(connection: Connection) -> TraceStore:
    """The traces of a file, scored by this version."""
    return TraceStore(connection, scorer=f"kp-middleware {version('kp-middleware')}")
