"""The distribution of scores by hundredth, for charts."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._distribution import HUNDREDTH, Distribution, Hundredth


class Slice(NamedTuple):
    """The number of traces of one domain that reach ``hundredth / 100`` but not the next.

    Attributes:
        domain: Their domain.
        hundredth: From 0 to 100.
        traces: The number of traces.
        above: The number that reach the threshold, which may lie between two hundredths; without
            a fixed threshold, the number that cleared.
    """

    domain: str
    hundredth: int
    traces: int
    above: int


class ScoreSlices(NamedTuple):
    """The distribution of scores in all domains.

    Attributes:
        threshold: The fixed threshold of the last decision; None if it is relative or missing.
        slices: The slices that have traces.
        private: The private traces among them.
    """

    threshold: float | None
    slices: tuple[Slice, ...] = ()
    private: tuple[Slice, ...] = ()

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains with scores, the most traces first."""
        counts: dict[str, int] = {}
        for one in self.slices:
            counts[one.domain] = counts.get(one.domain, 0) + one.traces
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    @property
    def traces(self) -> int:
        """The number of traces with a score."""
        return sum(one.traces for one in self.slices)

    @property
    def above(self) -> int:
        """The number that reach the threshold, or that cleared if it is not fixed."""
        return sum(one.above for one in self.slices)

    @property
    def leaving(self) -> "ScoreSlices":
        """The slices without private traces."""
        never = {one[:2]: one[2:] for one in self.private}
        left = []
        for domain, hundredth, traces, above in self.slices:
            private, private_above = never.get((domain, hundredth), (0, 0))
            left.append(Slice(domain, hundredth, traces - private, above - private_above))
        return ScoreSlices(self.threshold, (*(one for one in left if one.traces),))

    def renamed(self, name_of: Callable[[str], str]) -> "ScoreSlices":
        """Return the slices with renamed domains; domains with the same new name are merged."""
        return ScoreSlices(
            self.threshold, _renamed(self.slices, name_of), _renamed(self.private, name_of)
        )

    def of(self, domain: str) -> "ScoreSlices":
        """Return the slices of one domain."""
        slices, private = (
            tuple(one for one in some if one.domain == domain)
            for some in (self.slices, self.private)
        )
        return ScoreSlices(self.threshold, slices, private)

    def reaching(self, hundredth: int) -> int:
        """Count the traces that would reach a threshold, given in hundredths."""
        return sum(one.traces for one in self.slices if one.hundredth >= hundredth)


def read_score_slices(connection: Connection, *, since: str | None = None) -> ScoreSlices:
    """Read the distribution of scores, relative to the latest threshold.

    Args:
        connection: The connection to the file.
        since: Only traces that started at this instant or later; None means all.
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
    """Yield each slice with the number of traces that the gate forwarded."""
    cleared = {
        (one.domain, one.hundredth): one.traces for one in distribution.hundredths(cleared=True)
    }
    for one in distribution.hundredths():
        yield Slice(*one, cleared.get((one.domain, one.hundredth), 0))


def _divided(
    hundredths: list[Hundredth], threshold: float, above: dict[str, int]
) -> Iterator[Slice]:
    """Yield each slice with the number of traces that reach the threshold."""
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
