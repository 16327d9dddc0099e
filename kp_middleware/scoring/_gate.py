"""Decide what may leave, from the score alone."""

from typing import Literal, NamedTuple

from kp_middleware.scores import Score


class Decision(NamedTuple):
    """What the gate says of one trace, and why in words."""

    decision: Literal["forward", "withhold"]
    reason: str


class Threshold:
    """Lets through what scores at least this much.

    >>> Threshold(0.75).name
    'threshold 0.75'
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.name = f"threshold {threshold:g}"

    def decide(self, score: Score) -> Decision:
        """Forward at or above the threshold."""
        if score.value >= self.threshold:
            return Decision("forward", f"score {score.value:.3f} is at least {self.threshold:g}")
        return Decision("withhold", f"score {score.value:.3f} is below {self.threshold:g}")
