"""What is learned of a run after its end, and what follows from it."""

from typing import NamedTuple, Self

from kp_middleware.core.formula import rescore
from kp_middleware.database import Connection, transaction
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.instants import instant
from kp_middleware.pipeline._afterwards import Feedback
from kp_middleware.pipeline._second_decision import SecondDecision
from kp_middleware.settings import Settings
from kp_middleware.storage import Belief, FeedbackTable, ScoredTraces
from kp_middleware.traces import default_confidence


class _End(NamedTuple):
    """How a run ended, as far as is known."""

    success: bool
    confidence: float


class Hindsight:
    """Writes feedback to the file; what is scored is scored again, and decided anew.

    Args:
        connection: Of the file.
        second_decision: On the same connection.
    """

    def __init__(self, connection: Connection, second_decision: SecondDecision) -> None:
        self._connection = connection
        self._second_decision = second_decision
        self._feedback = FeedbackTable(connection)
        self._scored = ScoredTraces(connection)

    @classmethod
    def of(cls, connection: Connection, settings: Settings) -> Self:
        """As these settings have it: for a command, which has no pipeline."""
        return cls(connection, SecondDecision.of(connection, settings))

    def take(self, told: Feedback) -> bool:
        """From now on the trace says so. False where it was told the same before: nothing changes.

        Raises:
            TraceNotFoundError: If no trace has this id.
        """
        with transaction(self._connection):
            before = self._feedback.belief(told.trace_id)
            if before is None:
                raise TraceNotFoundError(f"no trace has the id {told.trace_id[:100]!r}")
            end = _end(told, before)
            if _is_known(told, before, end):
                return False
            self._write(told, before, end)
            leaves = before.state == "scored" and self._score_again(before.seq, end)
        if leaves:
            self._second_decision.queue(before.seq)
        return True

    def _write(self, told: Feedback, before: Belief, end: _End) -> None:
        self._feedback.add(
            before,
            given_at=instant(told.given_at_s),
            told=(told.success, told.confidence),
            success=end.success,
            confidence=end.confidence,
        )

    def _score_again(self, seq: int, end: _End) -> bool:
        score = rescore(self._scored.score(seq), self._scored.shape(seq), **end._asdict())
        return self._second_decision.save(seq, score)


def _end(told: Feedback, before: Belief) -> _End:
    success = before.success if told.success is None else told.success
    if told.confidence is not None:
        return _End(success, told.confidence)
    if success == before.success or before.confidence_source != "assumed":
        return _End(success, before.confidence)
    return _End(success, default_confidence(success=success))


def _is_known(told: Feedback, before: Belief, end: _End) -> bool:
    """Whether the same was told last, and is what the trace says: it may be given twice."""
    is_repeated = before.last_told == (told.success, told.confidence)
    return is_repeated and end == (before.success, before.confidence)
