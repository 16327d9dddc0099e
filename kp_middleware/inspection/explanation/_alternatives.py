"""The run that one signal alone would have given the other verdict, with rules that fire anew."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from kp_middleware.inspection.explanation._facts import Facts
from kp_middleware.inspection.explanation._other_runs import distance, other_runs
from kp_middleware.inspection.explanation.rescoring import Parts
from kp_middleware.specified import SIGNALS

_MANY: Final = 3  # recoveries for which a success is rewarded
_THOUSAND: Final = 1000  # alternatives differ by thousandths, as they are printed


class Case(NamedTuple):
    """One signal of one score, held against a threshold.

    Attributes:
        run: What was scored.
        parts: What its score is made of.
        threshold: From 0 to 1.
        signal: Its name.
    """

    run: Facts
    parts: Parts
    threshold: float
    signal: str

    @property
    def cleared(self) -> bool:
        """Whether the score reaches the threshold."""
        return self.parts.score >= self.threshold

    @property
    def value(self) -> float:
        """Of the signal, from 0 to 1."""
        return self.parts.signals[SIGNALS.index(self.signal)]

    def score(self, other: Facts) -> float:
        """What another run would have scored."""
        parts = other.parts(self.parts.weights)
        if other.complexity == self.run.complexity:  # of a run kept in part, not all are known
            parts = parts.changed("complexity", self.parts.signals[0])
        return parts.score

    @property
    def is_kept_in_part(self) -> bool:
        """Whether it had steps that are not stored, of kinds that are not known."""
        return self.run.complexity != self.parts.signals[0]

    def alternative(self) -> Facts | None:
        """The nearest run with the other verdict that differs in this signal; None if none does."""
        for other in _OTHERS[self.signal](self):
            if (self.score(other) >= self.threshold) != self.cleared:
                return other
        return None

    def farthest(self) -> float:
        """The score at the most, or at the least where it cleared, by this signal alone."""
        scores = [self.parts.score, *map(self.score, _OTHERS[self.signal](self))]
        if self.signal == "complexity" and self.is_kept_in_part:
            scores.append(self._complexity_edge())
        return min(scores) if self.cleared else max(scores)

    def _complexity_edge(self) -> float:
        """With all or nothing of it, whatever steps it takes and they do to the other signals."""
        run, complexity = self.run, 0.0 if self.cleared else 1.0
        if self.cleared:
            run = run._replace(recoveries=0)
        else:
            run = run._replace(recoveries=max(run.recoveries, _MANY), steps=max(run.steps, 2))
        return self.parts.changed("complexity", complexity)._replace(rules=run.rules).score


def _other_complexities(case: Case) -> Iterator[Facts]:
    """All runs that are more complex, or less where it cleared; those with fewest changes first."""
    if case.is_kept_in_part:
        return
    others = (other for other in other_runs(case.run) if _is_beyond(case, other))
    yield from sorted(others, key=lambda other: distance(case.run, other))


def _is_beyond(case: Case, other: Facts) -> bool:
    run = case.run
    if other.complexity == run.complexity:
        return other.rules != run.rules
    return (other.complexity < run.complexity) == case.cleared


def _other_novelties(case: Case) -> Iterator[Facts]:
    """By the similarity of the nearest trace."""
    similarities = range(_THOUSAND + 1)
    for similarity in similarities if case.cleared else reversed(similarities):
        yield case.run._replace(novelty=1.0 - similarity / _THOUSAND)


def _other_tools(case: Case) -> Iterator[Facts]:
    had = case.run.tools
    fewer, more = reversed(range(had)), range(had + 1, case.run.steps + 1)
    for tools in (*fewer, *more) if case.cleared else (*more, *fewer):
        yield case.run._replace(tools=tools)


def _other_outcomes(case: Case) -> Iterator[Facts]:
    run = case.run
    yield run._replace(success=not case.cleared)
    confidences = range(_THOUSAND + 1)
    for success in (run.success, False) if case.cleared else (True,):
        for confidence in reversed(confidences) if case.cleared else confidences:
            yield run._replace(success=success, confidence=confidence / _THOUSAND)


_OTHERS: Final[Mapping[str, Callable[[Case], Iterator[Facts]]]] = {
    "complexity": _other_complexities,
    "novelty": _other_novelties,
    "tool_diversity": _other_tools,
    "outcome_confidence": _other_outcomes,
}
