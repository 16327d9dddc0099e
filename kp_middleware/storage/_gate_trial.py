"""What other gates would have let through of the stored runs: the gates' own rules, all at once.

`GateHistory` looks back for one run; here all runs of a file look back together, in numpy, which is
loaded when it is needed.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kp_middleware.database import Connection
from kp_middleware.storage._domain_scores import DomainScores, spread
from kp_middleware.storage._gate_history import DAY_S, LAST_RUNS
from kp_middleware.storage._scored_runs import (
    Numbers,
    milliseconds,
    read_decided_ms,
    read_scored_runs,
)
from kp_middleware.storage._standings import WINDOW_MS, Standings, standings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Flags: TypeAlias = "NDArray[np.bool_]"

_DAY_MS: Final = DAY_S * 1000


class Outcome(NamedTuple):
    """What one gate would have let through.

    Attributes:
        let_through: How many runs.
        succeeded: How many of them did their task, as far as is known today.
        domains: How many, by domain, the most runs first.
    """

    let_through: int
    succeeded: int
    domains: Mapping[str, int]


class GateTrial:
    """The scored runs of a file, each beside those recorded before it.

    What is private is looked back on as by the gate, but never leaves, and is not counted. A day's
    room goes to those that were decided on first.

    Args:
        connection: To the file; it stays open as long as the trial is asked.
        domain: Counts only this domain, beside which the others have their part of each day; None
            means any.
        since: Counts only what started at this instant or later; what was before is looked back on
            all the same. None means all.
    """

    def __init__(
        self, connection: Connection, *, domain: str | None = None, since: str | None = None
    ) -> None:
        import numpy as np

        self._connection = connection
        self._all = read_scored_runs(connection)
        self._beside = [*self._all.domains.values()]
        self._domain_of = np.zeros(len(self._all.scores), dtype=np.int64)
        for number, places in enumerate(self._beside):
            self._domain_of[places] = number
        self._counted = np.full(len(self._all.scores), domain is None)
        if domain is not None:
            self._counted[self._all.domains.get(domain, [])] = True
        if since is not None:
            self._counted &= self._all.started_ms >= milliseconds((since[:23],))[0]
        self._left_out = self._counted & self._all.private
        self._counted &= ~self._all.private

    @cached_property
    def _decided_ms(self) -> Numbers:
        return read_decided_ms(self._connection, self._all)

    @property
    def runs(self) -> int:
        """How many are counted."""
        return int(self._counted.sum())

    @property
    def private(self) -> int:
        """How many more there are that never leave."""
        return int(self._left_out.sum())

    @property
    def days(self) -> float:
        """From the start of the first that is counted to that of the last, at least 1."""
        if not self.runs:
            return 1.0
        started_ms = self._all.started_ms[self._counted]
        return max(1.0, float(started_ms.max() - started_ms.min()) / _DAY_MS)

    def domains(self) -> list[DomainScores]:
        """How the scores are spread in each, the most runs first."""
        return [spread(name, self._all.scores[places]) for name, places in self._counted_places()]

    def threshold(self, least: float, *, most: int | None = None) -> Outcome:
        """What reaches a score.

        Args:
            least: From 0 to 1.
            most: How many in 24 hours; None means any number.
        """
        return self._outcome(self._let_through(self._all.scores >= least, most))

    def top_share(
        self, share: float, *, fewest: int, until_then: float, most: int | None = None
    ) -> Outcome:
        """The best share of each domain's last runs.

        Args:
            share: From 0.01 to 1.
            fewest: How many runs a domain must have for it.
            until_then: The score that is asked for before.
            most: How many in 24 hours; None means any number.
        """
        import numpy as np

        found = self._standings
        room, early = np.round(share * found.runs, 6), found.runs < fewest
        may_go = np.where(early, self._all.scores >= until_then, found.more < room)
        doubtful = ~early & (found.more + found.equal >= room)
        spare = np.where(doubtful, room - found.more, math.inf)
        return self._outcome(self._let_through(may_go, most, spare))

    def _let_through(
        self, may_go: Flags, most: int | None, spare: "Numbers | None" = None
    ) -> Flags:
        """One by one where what goes takes room from what scores as much, or of its day.

        Args:
            may_go: By the score alone.
            most: How many in 24 hours; None means any number.
            spare: Room for how many that score as much; None means for any number.
        """
        import numpy as np

        if most is None and spare is None:
            return may_go
        went, gone_ms = np.zeros(len(may_go), dtype=bool), list[int]()
        if most is None:
            went = may_go & (spare == math.inf)
        places = np.flatnonzero(may_go & ~went)
        if most is not None:  # of several processes, one may decide first on what came later
            places = places[np.argsort(self._decided_ms[places], kind="stable")]
        for place in places.tolist():
            if spare is not None and self._is_full(place, spare[place], went):
                continue
            if most is not None:
                at_ms = int(self._decided_ms[place])
                if _in_the_day_before(gone_ms, at_ms) >= most:
                    continue
                if not self._all.private[place]:
                    gone_ms.append(at_ms)
            went[place] = True
        return went

    def _is_full(self, place: int, spare: float, went: Flags) -> bool:
        """Whether so many have gone of those that scored as much, in its domain and time."""
        if spare == math.inf:
            return False
        of_domain = self._beside[self._domain_of[place]]
        rank = int(of_domain.searchsorted(place))
        last = of_domain[max(0, rank - LAST_RUNS) : rank]
        young = self._all.started_ms[last] >= self._all.started_ms[place] - WINDOW_MS
        equal = young & (self._all.scores[last] == self._all.scores[place])
        return bool(went[last[equal]].sum() >= spare)

    @cached_property
    def _standings(self) -> Standings:
        """Of all, domain by domain."""
        import numpy as np

        found = Standings(*(np.zeros(len(self._all.scores), dtype=np.int64) for _ in range(3)))
        for places in self._beside:
            parts = [*standings(self._all.scores[places], self._all.started_ms[places])]
            for of_all, of_domain in zip(found, zip(*parts, strict=True), strict=True):
                of_all[places] = np.concatenate(of_domain)
        return found

    def _outcome(self, went: Flags) -> Outcome:
        counted = went & self._counted
        return Outcome(
            int(counted.sum()),
            int((counted & self._all.succeeded).sum()),
            {name: int(went[places].sum()) for name, places in self._counted_places()},
        )

    def _counted_places(self) -> list[tuple[str, Numbers]]:
        """Of each domain, the most first."""
        all_of = self._all.domains.items()
        found = ((name, places[self._counted[places]]) for name, places in all_of)
        return sorted((one for one in found if len(one[1])), key=lambda one: (-len(one[1]), one[0]))


def _in_the_day_before(gone_ms: list[int], at_ms: int) -> int:
    return len(gone_ms) - bisect_left(gone_ms, at_ms - _DAY_MS)
