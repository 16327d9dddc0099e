"""A stored score, computed again: with other weights, or with one signal changed.

The scorer's arithmetic, operation by operation, on plain numbers: a command that reads must not
load what scores. The rules are those that fired; whether others would, `Facts` says.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kp_middleware.specified import SIGNALS
from kp_middleware.storage import Row

_RULES: Final[Mapping[str, Callable[[float], float]]] = {
    "single_thought": lambda _: 0.1,
    "many_recoveries": lambda before: min(1.0, before + 0.1),
    "single_tool": lambda before: max(0.0, before - 0.1),
}


class Change(NamedTuple):
    """What one rule does to the score: after minus before."""

    rule: str
    delta: float


class Parts(NamedTuple):
    """What a score is made of.

    Attributes:
        signals: The four measures, each from 0 to 1, in the order of `SIGNALS`.
        weights: What each counts, from 0 to 1, in the same order; together 1.
        rules: The names of the rules that fired, in order.
    """

    signals: tuple[float, ...]
    weights: tuple[float, ...]
    rules: tuple[str, ...]

    @classmethod
    def of(cls, trace: Row) -> "Parts":
        """The parts of a trace that has a score, as they are stored."""
        return cls(
            tuple(trace[name] for name in SIGNALS),
            tuple(trace[f"{name}_weight"] for name in SIGNALS),
            tuple(rule["rule"] for rule in trace["rules"]),
        )

    def changed(self, signal: str, value: float) -> "Parts":
        """The same, but for the value of one signal."""
        at = SIGNALS.index(signal)
        return self._replace(signals=(*self.signals[:at], value, *self.signals[at + 1 :]))

    @property
    def score(self) -> float:
        """From 0 to 1, as the scorer would give it."""
        score = self._weighted()
        for rule in self.rules:
            score = _RULES[rule](score)
        return min(1.0, max(0.0, score))

    @property
    def changes(self) -> list[Change]:
        """What each rule does, in order."""
        score, changes = self._weighted(), []
        for rule in self.rules:
            before, score = score, _RULES[rule](score)
            changes.append(Change(rule, score - before))
        return changes

    def least(self, signal: str, threshold: float) -> float | None:
        """The least value of one signal that reaches the threshold, while the others stay.

        The score never falls when a signal rises, so halving finds it to the last bit.

        Returns:
            From 0 to 1, 0 where any value does; None where not even 1 does.
        """
        if self.changed(signal, 1.0).score < threshold:
            return None
        if self.changed(signal, 0.0).score >= threshold:
            return 0.0
        fails, reaches = 0.0, 1.0
        while fails < (middle := (fails + reaches) / 2) < reaches:
            if self.changed(signal, middle).score >= threshold:
                reaches = middle
            else:
                fails = middle
        return reaches

    def _weighted(self) -> float:
        c, n, d, o = self.signals
        c_weight, n_weight, d_weight, o_weight = self.weights
        return c * c_weight + n * n_weight + d * d_weight + o * o_weight
