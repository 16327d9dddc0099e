"""What of a run its score depends on: to say what another run would have scored.

The scorer's measures and rules, operation by operation, on plain numbers: a command that reads must
not load what scores.
"""

from typing import Final, NamedTuple

from kp_middleware.inspection.explanation._reasons import kinds_of
from kp_middleware.inspection.explanation.rescoring import Parts
from kp_middleware.storage import Row

_KINDS: Final = 4


class Facts(NamedTuple):
    """One run, as the scorer sees it.

    Attributes:
        kinds: The types of step that it has.
        steps: How many steps.
        tools: How many different tools.
        recoveries: How many of the steps are recoveries from an error.
        novelty: As it was measured, from 0 to 1.
        confidence: The agent's own, from 0 to 1.
        success: Whether the task was done.
    """

    kinds: frozenset[str]
    steps: int
    tools: int
    recoveries: int
    novelty: float
    confidence: float
    success: bool

    @classmethod
    def of(cls, trace: Row) -> "Facts":
        """Those of a trace that has a score."""
        return cls(
            kinds=frozenset(kinds_of(trace)),
            steps=trace["step_count"],
            tools=trace["tool_count"],
            recoveries=trace["recovery_count"],
            novelty=trace["novelty"],
            confidence=trace["confidence"],
            success=bool(trace["success"]),
        )

    def parts(self, weights: tuple[float, ...]) -> Parts:
        """What the score of such a run is made of."""
        signals = (self.complexity, self.novelty, self._tool_diversity, self._outcome_confidence)
        return Parts(signals, weights, self.rules)

    @property
    def complexity(self) -> float:
        """From 0 to 1."""
        recovered = 0.3 if self.recoveries else 0.0
        return min(1.0, len(self.kinds) / _KINDS * 0.5 + recovered + self.steps / 20 * 0.2)

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of those that fire, in order."""
        fires = {
            "single_thought": self.steps == 1 and "thought" in self.kinds,
            "many_recoveries": self.recoveries > 2 and self.success,
            "single_tool": self.tools == 1,
        }
        return tuple(name for name, it_does in fires.items() if it_does)

    @property
    def _tool_diversity(self) -> float:
        return min(1.0, self.tools / max(1, self.steps) * 3)

    @property
    def _outcome_confidence(self) -> float:
        return self.confidence * (1.0 if self.success else 0.3)
