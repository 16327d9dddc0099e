"""Replay a history of runs, in the order of recording, against several gates at once."""

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from statistics import median
from typing import Final, NamedTuple

from kp_middleware.core.gates import DAY_S, SettingsGate
from kp_middleware.core.share import Ranking

_DAY_MS: Final = DAY_S * 1000
_BINS: Final = 20
_TELL_EVERY: Final = 5000


class ScoredRun(NamedTuple):
    """A scored run in a gate's history; the last four are not read where no gate is replayed."""

    seq: int
    domain: str
    score: float
    is_private: bool  # never leaves
    is_cleared: bool  # its gate forwarded it
    key: float = 0.0  # by which it was ranked
    started_ms: int = 0
    decided_ms: int = 0
    success: int | None = None  # None: it is not known today whether the task was done


def replay(runs: Iterable[ScoredRun], gates: Sequence[SettingsGate]) -> Iterator[tuple[int, ...]]:
    """Decide on runs in order, and yield for each the numbers of the gates that forward it.

    Args:
        runs: In the order of recording.
        gates: Each decides as if it had always been the gate.
    """
    pasts = [Past(gate) for gate in gates]
    for run in runs:
        yield tuple(number for number, past in enumerate(pasts) if past.forwards(run))


class Past:
    """The decisions of one gate so far: a `GateHistory` in memory.

    Args:
        gate: Decides.
    """

    def __init__(self, gate: SettingsGate) -> None:
        self.rank_key = 0.0
        self._gate = gate
        self._domain = ""
        self._now_ms = 0
        self._rankings: dict[str, Ranking] = {}
        self._let_through_ms: list[int] = []

    def forwards(self, run: ScoredRun) -> bool:
        """Decide on the next run, and count it."""
        gate, ranking = self._gate, _NO_RUNS
        self.rank_key, self._domain, self._now_ms = run.key, run.domain, run.decided_ms
        if gate.last:
            ranking = self.ranking(gate.name, gate.last)
        choice = gate.choose(run.score, run.key, ranking)
        if gate.last:
            ranking.add(run.key, gone=choice.goes, credit=choice.credit)
        goes = choice.goes and gate.has_room(self)
        if goes and not run.is_private:
            self._add(run.decided_ms)
        return goes

    def ranking(self, gate: str, last: int) -> Ranking:  # noqa: ARG002 - there is one gate
        """Return the last runs of the same domain."""
        if self._domain not in self._rankings:
            self._rankings[self._domain] = Ranking(last)
        return self._rankings[self._domain]

    def forwarded_in_a_day(self) -> int:
        """Return the number of runs forwarded in the last 24 hours that may leave."""
        until = bisect_right(self._let_through_ms, self._now_ms)
        return until - bisect_left(self._let_through_ms, self._now_ms - _DAY_MS)

    def _add(self, decided_ms: int) -> None:
        if not self._let_through_ms or self._let_through_ms[-1] <= decided_ms:
            self._let_through_ms.append(decided_ms)
        else:
            insort(self._let_through_ms, decided_ms)


_NO_RUNS: Final = Ranking(0)


class Outcome(NamedTuple):
    """The runs that one gate would have forwarded, counted.

    Attributes:
        let_through: How many runs.
        succeeded: How many of them are known today to have done their task.
        domains: How many, by domain, the most runs first.
        if_not_private: How many private runs it would have forwarded as well, if they were not.
        known: Of how many of them it is known today how they ended.
    """

    let_through: int
    succeeded: int
    domains: Mapping[str, int]
    if_not_private: int = 0
    known: int = 0


class DomainScores(NamedTuple):
    """The distribution of the scores of one domain.

    Attributes:
        domain: Its name.
        runs: How many have a score.
        median: Half of them score as much or more.
        top_tenth: The best tenth score as much or more.
        best: The highest.
        bins: How many score from 0, 0.05, … 0.95; 1 is in the last.
    """

    domain: str
    runs: int
    median: float
    top_tenth: float
    best: float
    bins: tuple[int, ...]


class Trial:
    """A trial of gates on a history of runs.

    Private runs take part, but never leave, and are not counted.

    Args:
        runs: In the order of recording.
        domain: Counts only this domain, though the others still use up the daily limit; None
            means any.
        since_ms: Counts only what started then or later, in ms since the epoch; None means all.
    """

    def __init__(
        self,
        runs: Sequence[ScoredRun],
        *,
        domain: str | None = None,
        since_ms: int | None = None,
    ) -> None:
        self._runs = runs
        asked = [
            (domain is None or run.domain == domain)
            and (since_ms is None or run.started_ms >= since_ms)
            for run in runs
        ]
        self._asked = asked
        self._is_counted = [
            one and not run.is_private for one, run in zip(asked, runs, strict=True)
        ]
        self._counted = [*compress(runs, self._is_counted)]
        self.private = sum(asked) - len(self._counted)

    @property
    def runs(self) -> int:
        """The number of runs counted."""
        return len(self._counted)

    @property
    def days(self) -> float:
        """The days from the first counted run's start to the last one's, at least 1."""
        started_ms = [run.started_ms for run in self._counted] or [0]
        return max(1.0, (max(started_ms) - min(started_ms)) / _DAY_MS)

    def domains(self) -> list[DomainScores]:
        """Return the distribution of scores in each domain, the most runs first."""
        scores: defaultdict[str, list[float]] = defaultdict(list)
        for run in self._counted:
            scores[run.domain].append(run.score)
        return [_spread(domain, sorted(scores[domain])) for domain in self._names()]

    def outcomes(
        self, gates: Sequence[SettingsGate], reach: Callable[[int, int], None] = lambda *_: None
    ) -> list[Outcome]:
        """Return the outcome of each gate.

        Args:
            gates: Each decides as if it had always been the gate.
            reach: Is told now and then how many runs of how many are decided on.
        """
        went = [dict.fromkeys(self._names(), 0) for _ in gates]
        succeeded, known, private = ([0 for _ in gates] for _ in range(3))
        decided = zip(self._runs, self._asked, replay(self._runs, gates), strict=True)
        for number, (run, is_asked, numbers) in enumerate(decided):
            for gate in numbers if is_asked else ():
                if run.is_private:
                    private[gate] += 1
                else:
                    went[gate][run.domain] += 1
                    succeeded[gate] += run.success or 0
                    known[gate] += run.success is not None
            if not number % _TELL_EVERY:
                reach(number, len(self._runs))
        return [
            Outcome(sum(domains.values()), count, domains, *more)
            for domains, count, *more in zip(went, succeeded, private, known, strict=True)
        ]

    def _names(self) -> list[str]:
        counts = Counter(run.domain for run in self._counted)
        return sorted(counts, key=lambda name: (-counts[name], name))


def _spread(domain: str, scores: Sequence[float]) -> DomainScores:
    bins = [0] * _BINS
    for score in scores:
        bins[min(int(score * _BINS + 1e-9), _BINS - 1)] += 1
    return DomainScores(
        domain,
        len(scores),
        median(scores),
        scores[-math.ceil(len(scores) / 10)],
        scores[-1],
        tuple(bins),
    )
