"""The run that one signal alone would have given the other verdict, with rules that fire anew."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from kp_middleware.inspection.explanation._facts import Facts
from kp_middleware.inspection.explanation.rescoring import SIGNALS, Parts

_RECOVERY: Final = "error_recovery"
_WITHOUT_A_TOOL: Final = frozenset({"thought", _RECOVERY})
_ALL_KINDS: Final = _WITHOUT_A_TOOL | {"tool_call", "observation"}
_MANY: Final = 3  # recoveries for which a success is rewarded
_MOST_STEPS: Final = 100  # more add nothing to complexity, and take from tool diversity
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
        if other.steps == self.run.steps:  # of a run kept in part, not all kinds are known
            parts = parts.changed("complexity", self.parts.signals[0])
        return parts.score

    def alternative(self) -> Facts | None:
        """The nearest run with the other verdict that differs in this signal; None if none does."""
        for other in _OTHERS[self.signal](self):
            if (self.score(other) >= self.threshold) != self.cleared:
                return other
        return None

    def farthest(self) -> float:
        """The score at the most, or at the least where it cleared, by this signal alone."""
        scores = [self.parts.score, *map(self.score, _OTHERS[self.signal](self))]
        if self.signal == "complexity":
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
    if case.run.complexity != case.parts.signals[0]:
        return  # it is kept in part
    yield from _simpler(case.run) if case.cleared else _more_complex(case.run)


def _more_complex(run: Facts) -> Iterator[Facts]:
    for recoveries in (1, _MANY):
        if run.recoveries < recoveries:
            yield _recovered(run, recoveries)
    yield _with_all_kinds(run)
    for more in range(1, _MOST_STEPS + 1):
        yield run._replace(steps=run.steps + more)
    yield _with_all_kinds(_recovered(run, max(run.recoveries, _MANY)))


def _recovered(run: Facts, recoveries: int) -> Facts:
    steps = run.steps + recoveries - run.recoveries
    return run._replace(kinds=run.kinds | {_RECOVERY}, recoveries=recoveries, steps=steps)


def _with_all_kinds(run: Facts) -> Facts:
    """One step of each that is missing, with a tool that it had."""
    missing = (_ALL_KINDS if run.tools else _WITHOUT_A_TOOL) - run.kinds
    return run._replace(
        kinds=run.kinds | missing,
        steps=run.steps + len(missing),
        recoveries=run.recoveries + (_RECOVERY in missing),
    )


def _simpler(run: Facts) -> Iterator[Facts]:
    if run.recoveries >= _MANY:
        fewer = run.steps - run.recoveries + _MANY - 1
        yield run._replace(recoveries=_MANY - 1, steps=fewer)
    if 0 < run.recoveries < run.steps:
        kinds, steps = run.kinds - {_RECOVERY}, run.steps - run.recoveries
        yield run._replace(kinds=kinds, recoveries=0, steps=steps)
    if not run.tools and run.steps > 1:
        yield run._replace(kinds=frozenset({"thought"}), recoveries=0, steps=1)


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
