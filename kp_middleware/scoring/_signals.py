"""The formula: pure functions of a trace's shape, its outcome and its nearest neighbour.

From the protocol's scoring specification; signals and score are clamped to 0..1.
"""

from kp_middleware.scores import Adjustment, Shape, Signals, Weights
from kp_middleware.traces import Outcome

_STEP_TYPES = 4
_UNKNOWN_NOVELTY = 0.5


def complexity(shape: Shape) -> float:
    """Half for all four types of step, 0.3 for any recovery, 0.01 for each step; at most 1."""
    kinds = len(shape.types) / _STEP_TYPES * 0.5
    recovered = 0.3 if shape.recoveries else 0.0
    return min(1.0, kinds + recovered + shape.steps / 20 * 0.2)


def novelty(similarity: float | None) -> float:
    """1 for unlike all seen before, 0 for a repeat, 0.5 where nothing could be compared."""
    if similarity is None:
        return _UNKNOWN_NOVELTY
    return min(1.0, max(0.0, 1.0 - similarity))


def tool_diversity(shape: Shape) -> float:
    """Different tools for each step, times three; at most 1."""
    return min(1.0, shape.tools / max(1, shape.steps) * 3)


def outcome_confidence(outcome: Outcome, *, success: bool) -> float:
    """The agent's own confidence; 0.3 of it after a failure."""
    return outcome.confidence * (1.0 if success else 0.3)


def weighted(signals: Signals, weights: Weights) -> float:
    """Each signal times its weight, summed."""
    return (
        signals.complexity * weights.complexity
        + signals.novelty * weights.novelty
        + signals.tool_diversity * weights.tool_diversity
        + signals.outcome_confidence * weights.outcome_confidence
    )


def adjusted(score: float, shape: Shape, *, success: bool) -> tuple[float, tuple[Adjustment, ...]]:
    """The score after the three rules, each on the result of the one before, and what each did."""
    adjustments: list[Adjustment] = []
    for rule, fires, after in (
        ("single_thought", shape.steps == 1 and "thought" in shape.types, lambda _: 0.1),
        (
            "many_recoveries",
            shape.recoveries > 2 and success,
            lambda before: min(1.0, before + 0.1),
        ),
        ("single_tool", shape.tools == 1, lambda before: max(0.0, before - 0.1)),
    ):
        if fires:
            before, score = score, after(score)
            adjustments.append(Adjustment(rule, score - before))
    return min(1.0, max(0.0, score)), tuple(adjustments)
