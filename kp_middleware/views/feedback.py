"""What was learned of a run after its end, in words: pure functions of its row."""

from collections.abc import Iterator

from kp_middleware.storage import Row


def feedback_in_words(trace: Row) -> Iterator[str]:
    """Each time that somebody said how it went: when, what, and what was believed before."""
    for told in trace["feedback"]:
        at = f"{told['given_at'][:16].replace('T', ' ')} UTC"
        yield f"{at}: {_said(told)} (before: {_before(told)})"


def _said(told: Row) -> str:
    parts = []
    if told["success"] is not None:
        parts.append(_success(told["success"]))
    if told["confidence"] is not None:
        parts.append(_confidence(told["confidence"]))
    return ", ".join(parts)


def _before(told: Row) -> str:
    return f"{_success(told['success_before'])}, {_confidence(told['confidence_before'])}"


def _success(success: int) -> str:
    return "success" if success else "no success"


def _confidence(confidence: float) -> str:
    return f"confidence {confidence:.3f}"
