"""Counterfactuals: the nearest run that one signal alone would have given the other verdict."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from kp_middleware.core.formula import (
    MANY_RECOVERIES,
    Parts,
    Shape,
    Signals,
    Weights,
    complexity,
    fired_rules,
    outcome_confidence,
    tool_diversity,
)

RECOVERY: Final = "error_recovery"
"""The step type that counts twice: as a type and as a recovery."""

_KINDS: Final = ("observation", "thought", "tool_call")  # the others
_ENOUGH_STEPS: Final = 100  # with so many, complexity is 1; more only take from tool diversity
_NEAR: Final = 20  # steps fewer, of a run that has more than enough
_THOUSAND: Final = 1000  # alternatives differ by thousandths, as they are printed


class Facts(NamedTuple):
    """The facts of a run that its score depends on.

    Attributes:
        kinds: The types of its steps.
        steps: Number of steps.
        tools: Number of different tools.
        recoveries: Number of recoveries from an error.
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

    def parts(self, weights: Weights) -> Parts:
        """Return the parts of the run's score."""
        signals = Signals(
            self.complexity,
            self.novelty,
            tool_diversity(self.shape),
            outcome_confidence(self.confidence, success=self.success),
        )
        return Parts(signals, weights, self.rules)

    @property
    def shape(self) -> Shape:
        """The run's steps, as the formula counts them."""
        return Shape(self.steps, self.kinds, self.tools, self.recoveries)

    @property
    def complexity(self) -> float:
        """The complexity signal, from 0 to 1."""
        return complexity(self.shape)

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules that fire, in order."""
        return fired_rules(self.shape, success=self.success)


class Case(NamedTuple):
    """One signal of one score, compared with a threshold.

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
        """True if the score reaches the threshold."""
        return self.parts.score >= self.threshold

    @property
    def value(self) -> float:
        """The value of the signal, from 0 to 1."""
        value: float = getattr(self.parts.signals, self.signal)
        return value

    def score(self, other: Facts) -> float:
        """Return the score that another run would have."""
        parts = other.parts(self.parts.weights)
        if other.complexity == self.run.complexity:  # of a run kept in part, not all are known
            parts = parts.changed("complexity", self.parts.signals.complexity)
        return parts.score

    @property
    def is_kept_in_part(self) -> bool:
        """True if the run had steps, of unknown types, that are not stored."""
        return self.run.complexity != self.parts.signals.complexity

    def alternative(self) -> Facts | None:
        """Return the nearest run with the other verdict that differs in this signal, or None."""
        for other in _OTHERS[self.signal](self):
            if (self.score(other) >= self.threshold) != self.cleared:
                return other
        return None

    def farthest(self) -> float:
        """Return the highest score this signal alone can give; the lowest, if it cleared."""
        scores = [self.parts.score, *map(self.score, _OTHERS[self.signal](self))]
        if self.signal == "complexity" and self.is_kept_in_part:
            scores.append(self._complexity_edge())
        return min(scores) if self.cleared else max(scores)

    def _complexity_edge(self) -> float:
        """Return the score with complexity at its limit, and the rules that follow."""
        run, complexity = self.run, 0.0 if self.cleared else 1.0
        if self.cleared:
            run = run._replace(recoveries=0)
        else:
            run = run._replace(
                recoveries=max(run.recoveries, MANY_RECOVERIES), steps=max(run.steps, 2)
            )
        return self.parts.changed("complexity", complexity)._replace(rules=run.rules).score


def _other_complexities(case: Case) -> Iterator[Facts]:
    """Yield the runs of higher complexity, or lower if it cleared, by number of changes."""
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
    """Yield runs that differ in novelty, in steps of a thousandth, the nearest trace's first."""
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


def other_runs(run: Facts) -> Iterator[Facts]:
    """Yield a run for each score that other types and numbers of steps can give.

    Neither the kinds themselves nor recoveries beyond one or two matter to the score: of the runs
    that score alike, the one most like the given run is yielded.
    """
    for kinds in dict.fromkeys(_kind_sets(run)):
        first = max(run.tools, len(kinds), 1)
        for steps in _step_counts(run, first):
            for recoveries in _recoveries(run, steps, len(kinds)):
                had = kinds | {RECOVERY} if recoveries else kinds
                if _has_room_for_tools(run, had):
                    yield run._replace(kinds=had, steps=steps, recoveries=recoveries)


def _step_counts(run: Facts, first: int) -> Iterator[int]:
    """Yield numbers of steps to try; beyond enough, only those near the run's own."""
    enough = max(first, _ENOUGH_STEPS + MANY_RECOVERIES) + 1
    yield from range(first, enough)
    yield from range(max(enough, run.steps - _NEAR), run.steps + MANY_RECOVERIES + 1)


def _kind_sets(run: Facts) -> Iterator[frozenset[str]]:
    """Yield sets of step types without recoveries: subsets of the run's, then supersets."""
    had = [kind for kind in _KINDS if kind in run.kinds]
    had.sort(key=lambda kind: (kind == "thought") == (run.tools > 0))
    missing = [kind for kind in _KINDS if kind not in run.kinds]
    if not run.tools:
        yield frozenset({"thought"})
        missing = [kind for kind in missing if kind == "thought"]
    for count in range(len(had) + 1):
        yield frozenset(had[:count])
    for count in range(1, len(missing) + 1):
        yield frozenset({*had, *missing[:count]})


def _recoveries(run: Facts, steps: int, kinds: int) -> Iterator[int]:
    """Yield numbers of recoveries: none, one or two, and many, each near to the run's own."""
    if not kinds:
        yield steps
        return
    room = steps - kinds
    for least, most in ((0, 0), (1, min(2, room)), (MANY_RECOVERIES, room)):
        if least <= most:
            yield min(max(run.recoveries, least), most)


def _has_room_for_tools(run: Facts, kinds: frozenset[str]) -> bool:
    """Return whether steps of these types can use the run's tools; thoughts use none."""
    thought = frozenset({"thought"})
    return run.tools == 0 or kinds != thought or run.kinds == thought


def distance(run: Facts, other: Facts) -> tuple[int, int]:
    """Return how many steps differ, then how many kinds of change that takes."""
    changes = (
        len((run.kinds ^ other.kinds) - {RECOVERY}),
        abs(other.recoveries - run.recoveries),
        abs(plain_steps(run, other)),
    )
    return sum(changes), sum(map(bool, changes))


def plain_steps(run: Facts, other: Facts) -> int:
    """Return how many more steps another run has, without recoveries and new types."""
    had, has = run.kinds - {RECOVERY}, other.kinds - {RECOVERY}
    return (other.steps - other.recoveries - len(has)) - (run.steps - run.recoveries - len(had))
