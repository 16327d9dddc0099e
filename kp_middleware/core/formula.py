"""The protocol's scoring formula: four signals, weighted by domain, then three rules.

Source: the protocol's scoring specification. Signals and scores are clamped to 0..1.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Self

__all__ = ["AFTER_FAILURE", "DEFAULT_PROFILE", "DEFAULT_THRESHOLD", "PER_TOOL", "PROFILES",
           "SIGNALS", "STEP_TYPES", "UNKNOWN_NOVELTY", "Adjustment", "Nearest", "Score",
           "ScoreParts", "Shape", "Signals", "Weights", "combine", "complexity_parts",
           "fired_rules", "measure"]  # fmt: skip

SIGNALS: Final = ("complexity", "novelty", "tool_diversity", "outcome_confidence")
"""The signals in the order of summation; another order would change the last bit."""

STEP_TYPES: Final = ("thought", "tool_call", "observation", "error_recovery")

DEFAULT_PROFILE: Final = "default"

DEFAULT_THRESHOLD: Final = 0.75
"""The protocol's threshold: a run with at least this score is shared."""

MANY_RECOVERIES: Final = 3
"""The number of recoveries from which a success earns a bonus."""

UNKNOWN_NOVELTY: Final = 0.5
AFTER_FAILURE: Final = 0.3
PER_TOOL: Final = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """The steps of a run as the formula counts them, including steps that were not stored."""

    steps: int
    types: frozenset[str]
    tools: int
    recoveries: int


@dataclass(frozen=True, slots=True)
class _BySignal:
    complexity: float
    novelty: float
    tool_diversity: float
    outcome_confidence: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.complexity, self.novelty, self.tool_diversity, self.outcome_confidence))


@dataclass(frozen=True, slots=True)
class Signals(_BySignal):
    """The four signals of a run, each from 0 to 1; iterable in the order of `SIGNALS`."""


@dataclass(frozen=True, slots=True)
class Weights(_BySignal):
    """The weight of each signal in one domain; iterable in the order of `SIGNALS`.

    Raises:
        ValueError: If they do not sum to 1 (within 1e-9), or one is outside 0 to 1.

    >>> Weights(complexity=0.25, novelty=0.25, tool_diversity=0.25, outcome_confidence=0.25).novelty
    0.25
    """

    def __post_init__(self) -> None:
        for name, weight in zip(SIGNALS, self, strict=True):
            if not 0 <= weight <= 1:
                raise ValueError(f"weights must be from 0 to 1, {name} is {weight:g}")
        if not math.isclose(total := math.fsum(self), 1, abs_tol=1e-9):
            raise ValueError(f"weights must sum to 1, these sum to {total:g}")


PROFILES: Final[Mapping[str, Weights]] = MappingProxyType(
    {
        DEFAULT_PROFILE: Weights(0.25, 0.35, 0.15, 0.25),
        "finance": Weights(0.20, 0.25, 0.10, 0.45),
        "code": Weights(0.20, 0.30, 0.30, 0.20),
        "medical": Weights(0.15, 0.20, 0.10, 0.55),
        "customer_service": Weights(0.20, 0.30, 0.20, 0.30),
    }
)
"""The protocol's weights by domain, case-sensitive; any other domain uses the default."""


class Nearest(NamedTuple):
    """The most similar earlier run."""

    id: str
    similarity: float


class Adjustment(NamedTuple):
    """The effect of one rule on the score: after minus before."""

    rule: str
    delta: float


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a run, with all that contributed to it.

    Attributes:
        value: From 0 (not worth sharing) to 1.
        signals: The four signals.
        weights: The weight of each signal in this domain.
        adjustments: The rules that fired, in order, with the effect of each.
        nearest: The most similar earlier run and its cosine similarity, or None.
        embedder: The fingerprint of the embedder; None if novelty was not measured.

    Raises:
        ValueError: If the value or a signal is outside 0 to 1.
    """

    value: float
    signals: Signals
    weights: Weights
    adjustments: tuple[Adjustment, ...] = ()
    nearest: Nearest | None = None
    embedder: str | None = None

    def __post_init__(self) -> None:
        for number in (self.value, *self.signals):
            if not 0 <= number <= 1:
                raise ValueError(f"scores and signals must be from 0 to 1, got {number:g}")

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules that fired, in order."""
        return tuple(adjustment.rule for adjustment in self.adjustments)


def measure(shape: Shape, similarity: float | None, confidence: float, *, success: bool) -> Signals:
    """Return the four signals; a similarity of None means that nothing was compared."""
    types, recovered, steps = complexity_parts(shape)
    return Signals(
        complexity=min(1.0, types + recovered + steps),
        novelty=UNKNOWN_NOVELTY if similarity is None else min(1.0, max(0.0, 1.0 - similarity)),
        tool_diversity=min(1.0, shape.tools / max(1, shape.steps) * PER_TOOL),
        outcome_confidence=confidence * (1.0 if success else AFTER_FAILURE),
    )


def complexity_parts(shape: Shape) -> tuple[float, float, float]:
    """Return the parts of complexity: step types, recoveries and steps; their sum may exceed 1."""
    types = len(shape.types) / len(STEP_TYPES) * 0.5
    return types, 0.3 if shape.recoveries else 0.0, shape.steps / 20 * 0.2


def fired_rules(shape: Shape, *, success: bool) -> tuple[str, ...]:
    """Return the names of the rules that apply to a run, in order."""
    fires = {
        "single_thought": shape.steps == 1 and "thought" in shape.types,
        "many_recoveries": shape.recoveries >= MANY_RECOVERIES and success,
        "single_tool": shape.tools == 1,
    }
    return tuple(name for name, condition in fires.items() if condition)


def combine(
    signals: Signals, weights: Weights, rules: tuple[str, ...]
) -> tuple[float, tuple[Adjustment, ...]]:
    """Sum the weighted signals, then apply the rules in order."""
    (c, n, d, o), (w_c, w_n, w_d, w_o) = signals, weights
    score = c * w_c + n * w_n + d * w_d + o * w_o
    adjustments: list[Adjustment] = []
    for rule in rules:
        before = score
        match rule:
            case "single_thought":
                score = 0.1
            case "many_recoveries":
                score = min(1.0, score + 0.1)
            case _:  # single_tool
                score = max(0.0, score - 0.1)
        adjustments.append(Adjustment(rule, score - before))
    return min(1.0, max(0.0, score)), tuple(adjustments)


class ScoreParts(NamedTuple):
    """The inputs of a score, to compute it with another signal or other weights."""

    signals: Signals
    weights: Weights
    rules: tuple[str, ...]

    @property
    def score(self) -> float:
        """The score, from 0 to 1."""
        return combine(*self)[0]

    @property
    def adjustments(self) -> tuple[Adjustment, ...]:
        """The effect of each rule, in order."""
        return combine(*self)[1]

    def with_signal(self, signal: str, value: float) -> Self:
        """Return the parts with another value of one signal."""
        return self._replace(signals=replace(self.signals, **{signal: value}))

    def min_signal(self, signal: str, threshold: float) -> float | None:
        """Return the lowest value of a signal, in millionths, that reaches a threshold.

        None if even 1 does not.
        """
        least = bisect_left(
            range(1_000_001), threshold, key=lambda at: self.with_signal(signal, at / 1e6).score
        )
        return least / 1e6 if least <= 1_000_000 else None
