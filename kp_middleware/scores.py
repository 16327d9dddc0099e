"""How much a trace is worth sharing, and why: the values that scoring gives to the other stages."""

import math
from typing import NamedTuple, Self

from pydantic import BaseModel, model_validator

from kp_middleware.traces import ReasoningTrace, StepType, Unit


class Shape(BaseModel, frozen=True):
    """What the score needs to know of the steps, true also where a long run is kept only in part.

    Attributes:
        steps: How many steps there were, at least 1.
        types: The types among them.
        tools: How many different tool names.
        recoveries: How many steps are ``error_recovery``.
    """

    steps: int
    types: frozenset[StepType]
    tools: int
    recoveries: int

    @classmethod
    def of(cls, trace: ReasoningTrace) -> Self:
        """The shape of the steps that a document holds."""
        types = [step.type for step in trace.steps]
        return cls(
            steps=len(types),
            types=frozenset(types),
            tools=len({step.tool.name for step in trace.steps if step.tool is not None}),
            recoveries=types.count("error_recovery"),
        )


class Signals(BaseModel, frozen=True):
    """The four measures of a trace, each from 0 to 1."""

    complexity: Unit
    novelty: Unit
    tool_diversity: Unit
    outcome_confidence: Unit


class Weights(BaseModel, frozen=True):
    """How much each signal counts in one domain; together 1.

    Raises:
        pydantic.ValidationError: If they do not sum to 1 (within 1e-9), or one is outside 0 to 1.

    >>> Weights(complexity=0.25, novelty=0.25, tool_diversity=0.25, outcome_confidence=0.25).novelty
    0.25
    """

    complexity: Unit
    novelty: Unit
    tool_diversity: Unit
    outcome_confidence: Unit

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = math.fsum(
            (self.complexity, self.novelty, self.tool_diversity, self.outcome_confidence)
        )
        if not math.isclose(total, 1, abs_tol=1e-9):
            raise ValueError(f"weights must sum to 1, these sum to {total:g}")
        return self


class Nearest(NamedTuple):
    """The most similar trace seen before."""

    id: str
    similarity: float


class Adjustment(NamedTuple):
    """What one rule did to the score: after minus before."""

    rule: str
    delta: float


class Score(BaseModel, frozen=True):
    """How much a trace is worth sharing, with everything that led to it.

    Attributes:
        value: From 0 (not) to 1 (very).
        signals: The four measures.
        weights: What each counted in this domain.
        adjustments: The rules that fired, in order, with what each changed.
        nearest: The most similar trace seen before and its cosine similarity, or None.
        embedder: The fingerprint of the embedder; None means novelty was not measured.
    """

    value: Unit
    signals: Signals
    weights: Weights
    adjustments: tuple[Adjustment, ...] = ()
    nearest: Nearest | None = None
    embedder: str | None = None

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules that fired, in order."""
        return tuple(adjustment.rule for adjustment in self.adjustments)
