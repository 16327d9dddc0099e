"""How the scores are spread, finely enough for every picture of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._distribution import HUNDREDTH, Distribution, Hundredth


class Slice(NamedTuple):
    """The traces of one domain that reach ``hundredth / 100``, and not the next.

    Attributes:
        domain: Of all of them.
        hundredth: From 0 to 100.
        traces: How many.
        above: How many of them reach the threshold, which may lie between two hundredths; where
            none is fixed, how many cleared the bar of their own run.
    """

    domain: str
    hundredth: int
    traces: int
    above: int


class ScoreSlices(NamedTuple):
    """All of them.

    Attributes:
        threshold: The fixed one in force when the last trace was scored; None where none was, or
            where the bar is another for each run.
        slices: Those that have traces.
        private: What of them never leaves.
    """

    threshold: float | None
    slices: tuple[Slice, ...] = ()
    private: tuple[Slice, ...] = ()

    @property
    def domains(self) -> tuple[str, ...]:
        """Those with scores, the most traces first."""
        counts: dict[str, int] = {}
        for one in self.slices:
            counts[one.domain] = counts.get(one.domain, 0) + one.traces
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    @property
    def traces(self) -> int:
        """How many have a score."""
        return sum(one.traces for one in self.slices)

    @property
    def above(self) -> int:
        """How many of them reach the threshold, or cleared where none is fixed."""
        return sum(one.above for one in self.slices)

    @property
    def leaving(self) -> "ScoreSlices":
        """Those that may leave: without the private ones."""
        never = {one[:2]: one[2:] for one in self.private}
        left = []
        for domain, hundredth, traces, above in self.slices:
            private, private_above = never.get((domain, hundredth), (0, 0))
            left.append(Slice(domain, hundredth, traces - private, above - private_above))
        return ScoreSlices(self.threshold, (*(one for one in left if one.traces),))

    def renamed(self, name_of: Callable[[str], str]) -> "ScoreSlices":
        """With other names of the domains; those that come to share one are added up."""
        return ScoreSlices(
            self.threshold, _renamed(self.slices, name_of), _renamed(self.private, name_of)
        )

    def of(self, domain: str) -> "ScoreSlices":
        """Those of one domain."""
        slices, private = (
            tuple(one for one in some if one.domain == domain)
            for some in (self.slices, self.private)
        )
        return ScoreSlices(self.threshold, slices, private)

    def reaching(self, hundredth: int) -> int:
        """How many traces would reach a threshold of so many hundredths."""
        return sum(one.traces for one in self.slices if one.hundredth >= hundredth)


def read_score_slices(connection: Connection, *, since: str | None = None) -> ScoreSlices:
    """How the scores are spread, against the latest threshold.

    Args:
        connection: To the file.
        since: Only what started at this instant or later; None means all.
    """
    distribution = Distribution(connection, since=since)
    threshold = distribution.threshold()
    private = (*_private(connection, threshold, since),)
    if threshold is None:
        return ScoreSlices(None, (*_by_verdict(distribution),), private)
    above = dict(
        connection.execute(
            "SELECT domain, count(*) FROM traces INDEXED BY traces_spread"
            " WHERE score >= ? AND (? IS NULL OR started_at >= ?) GROUP BY domain",
            (threshold, since, since),
        ).fetchall()
    )
    hundredths = distribution.hundredths()
    return ScoreSlices(threshold, (*_divided(hundredths, threshold, above),), private)


def _private(connection: Connection, threshold: float | None, since: str | None) -> Iterator[Slice]:
    rows = connection.execute(
        f"""
        SELECT domain, {HUNDREDTH} AS hundredth, count(*),
               sum(iif(:threshold IS NULL, decision IS 'forward', score >= :threshold))
        FROM traces INDEXED BY traces_spread
        WHERE visibility = 'private' AND score IS NOT NULL
          AND (:since IS NULL OR started_at >= :since)
        GROUP BY domain, hundredth
        """,  # noqa: S608 - ours
        {"threshold": threshold, "since": since},
    )
    return map(Slice._make, rows)


def _by_verdict(distribution: Distribution) -> Iterator[Slice]:
    """Each with how many of it the gate let through."""
    cleared = {
        (one.domain, one.hundredth): one.traces for one in distribution.hundredths(cleared=True)
    }
    for one in distribution.hundredths():
        yield Slice(*one, cleared.get((one.domain, one.hundredth), 0))


def _divided(
    hundredths: list[Hundredth], threshold: float, above: dict[str, int]
) -> Iterator[Slice]:
    """Each with how many of it reach the threshold."""
    beyond = dict.fromkeys(above, 0)
    for domain, hundredth, traces in hundredths:
        if hundredth / 100 >= threshold:
            beyond[domain] += traces
    for domain, hundredth, traces in hundredths:
        if hundredth / 100 >= threshold:
            yield Slice(domain, hundredth, traces, traces)
        elif (hundredth + 1) / 100 > threshold:
            yield Slice(domain, hundredth, traces, above.get(domain, 0) - beyond.get(domain, 0))
        else:
            yield Slice(domain, hundredth, traces, 0)


def _renamed(slices: Iterable[Slice], name_of: Callable[[str], str]) -> tuple[Slice, ...]:
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for domain, hundredth, traces, above in slices:
        key = name_of(domain), hundredth
        traces_before, above_before = sums.get(key, (0, 0))
        sums[key] = traces_before + traces, above_before + above
    return tuple(Slice(*key, *counts) for key, counts in sums.items())
