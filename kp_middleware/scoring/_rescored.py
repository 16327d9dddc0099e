"""A score computed again, when more is known of how the run ended."""

from kp_middleware.scores import Score, Shape
from kp_middleware.scoring import _signals as signals
from kp_middleware.traces import Outcome


def rescored(score: Score, shape: Shape, *, success: bool, confidence: float) -> Score:
    """The score of the same run with another end; what was measured of it stays, and its weights.

    Args:
        score: As it was.
        shape: Of the run's steps.
        success: Whether its task was done.
        confidence: How sure of it, 0 to 1.
    """
    outcome = Outcome(result_summary="", confidence=confidence)
    sure = signals.outcome_confidence(outcome, success=success)
    measured = score.signals.model_copy(update={"outcome_confidence": sure})
    base = signals.weighted(measured, score.weights)
    value, adjustments = signals.adjusted(base, shape, success=success)
    changed = {"value": value, "signals": measured, "adjustments": adjustments}
    return score.model_copy(update=changed)
