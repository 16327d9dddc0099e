"""Replay a history of runs, in the order of recording, against several gates at once."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kp_middleware.core.gates import DAY_S, DailyLimit, SettingsGate
from kp_middleware.core.share import Ranking

_DAY_MS: Final = DAY_S * 1000
_NO_RUNS: Final = Ranking(0)


class ScoredRun(NamedTuple):
    """A scored run in a gate's history; ``success`` is None where it is not known today."""

    domain: str
    score: float
    key: float
    started_ms: int
    decided_ms: int
    is_private: bool
    success: int | None


def replay(runs: Iterable[ScoredRun], gates: Sequence[SettingsGate]) -> Iterator[tuple[int, ...]]:
    """Decide on runs in the order of recording; yield the numbers of the gates each passes."""
    pasts = [Past(gate) for gate in gates]
    for run in runs:
        yield tuple(number for number, past in enumerate(pasts) if past.forwards(run))


class Past:
    """The decisions of one gate so far: a `GateHistory` in memory."""

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
        goes = choice.goes and (not isinstance(gate, DailyLimit) or gate.has_room(self))
        if goes and not run.is_private:
            insort(self._let_through_ms, run.decided_ms)
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
