"""Two traces side by side: facts, the parts of their scores, and their steps. Pure functions."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kp_middleware.storage import Row
from kp_middleware.views.alignment import Pair, aligned
from kp_middleware.views.arithmetic import Line, arithmetic

FACTS: Final = (
    "id",
    "state",
    "domain",
    "started_at",
    "duration_ms",
    "model",
    "success",
    "confidence",
    "step_count",
    "tool_count",
    "recovery_count",
    "gate",
    "threshold",
    "objective",
)


class Fact(NamedTuple):
    """What one column says of both; None where it is not known."""

    fact: str
    left: Any
    right: Any


class Part(NamedTuple):
    """What one part adds to both scores, or the scores themselves.

    Attributes:
        part: A signal, a rule, or ``score``.
        left: The amount; None where the trace has no such part.
        right: The same of the other.
        difference: Right minus left, a part that is missing counting as 0; None where one has no
            score.
        left_working: How the left amount comes about; empty where there is none.
        right_working: The same of the other.
    """

    part: str
    left: float | None
    right: float | None
    difference: float | None
    left_working: str
    right_working: str


class Comparison(NamedTuple):
    """All of it."""

    facts: list[Fact]
    scores: list[Part]
    steps: list[Pair]

    def as_row(self) -> Row:
        """As it is printed as JSON."""
        return {
            "left": {fact.fact: fact.left for fact in self.facts},
            "right": {fact.fact: fact.right for fact in self.facts},
            "scores": [part._asdict() for part in self.scores],
            "steps": [pair._asdict() for pair in self.steps],
        }


def compared(left: Row, right: Row) -> Comparison:
    """Two traces, held side by side."""
    facts = [Fact(name, left[name], right[name]) for name in FACTS]
    return Comparison(facts, [*_scores(left, right)], aligned(left["steps"], right["steps"]))


def _scores(left: Row, right: Row) -> Iterator[Part]:
    ours = {line.part: line for line in arithmetic(left)}
    theirs = {line.part: line for line in arithmetic(right)}
    both = ours.keys() and theirs.keys()
    names = [name for name in (*ours, *theirs) if name != "score"]
    for name in [*dict.fromkeys(names), *(["score"] if ours or theirs else [])]:
        a, b = ours.get(name), theirs.get(name)
        difference = _amount(b) - _amount(a) if both else None
        yield Part(
            name,
            a.amount if a else None,
            b.amount if b else None,
            difference,
            a.working if a else "",
            b.working if b else "",
        )


def _amount(line: Line | None) -> float:
    return line.amount if line else 0.0
