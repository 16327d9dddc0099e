"""Queries for the overview of all runs."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.storage._learning import EXTERNAL_SQL
from kp_middleware.storage._listing import Listing
from kp_middleware.storage._records import RunSummary
from kp_middleware.storage._statistics import (
    DAYS,
    Endings,
    Failure,
    Funnel,
    Period,
    Statistics,
    ToolUse,
    endings,
    periods,
)

_LAST: Final = 100
_MIN_RUNS_OF_DOMAIN: Final = 10  # fewer runs have no best tenth
_DOMAINS: Final = 3
_MORE: Final = "kp-middleware calibrate shows what each setting would do"
_LARGER_SHARE: Final = "earlier runs were better: a larger share lets more through"
_REMEDIES: Final = {
    "daily_limit": "{} scored high enough but hit max_per_day: raise it",
    "gate_failed": "the gate raises errors: see your program's log",
    "warming_up": f"{DEFAULT_THRESHOLD:g} applies until a domain has enough runs to rank:"
    " nothing to do",
    "below_share": _LARGER_SHARE,
    "tied_with_share": _LARGER_SHARE,
    "below_threshold": 'KP_THRESHOLD="top 10%", or threshold="top 10%" in the program, lets the'
    " best tenth of each domain through",
}
"""The remedies, by the most frequent verdict."""


class LastDecisions(NamedTuple):
    """The gate's decisions on the last scored runs of a file, at most 100."""

    runs: int = 0
    cleared: int = 0
    gate: str = ""  # of the last run; empty: none
    best: float = 0.0
    top_tenth: float = 0.0  # the lowest score of the best tenth
    domains: Mapping[str, float] = {}  # the same for those with 10 runs or more, largest first
    withheld: Mapping[str, int] = {}
    gates: int = 1
    private: int = 0  # never sent, whatever the gate decides

    @property
    def is_dry(self) -> bool:
        return self.runs >= _LAST and not self.cleared and 2 * self.private < self.runs

    def in_words(self) -> str:
        """Describe how many runs cleared; if none of 100 did, add their scores and a remedy."""
        if not self.runs:
            return "no run is scored yet"
        their_gate = f"cleared the gate ({self.gate})"
        if self.gates > 1:
            their_gate = f"cleared their gate; the last was {self.gate}"
        if not self.is_dry:
            last = "1 scored run" if self.runs == 1 else f"the last {self.runs} scored runs"
            return f"{self.cleared} of {last} {their_gate}"
        domains = [f"{name!r} {score:.3f}" for name, score in self.domains.items()]
        domains[_DOMAINS:] = ["…"] if len(domains) > _DOMAINS else []
        by_domain = f" ({', '.join(domains)})" if len(domains) > 1 else ""
        known = {name: runs for name, runs in self.withheld.items() if name in _REMEDIES}
        # at the daily limit, no other remedy lets more through
        why = max(known, key=lambda name: (name == "daily_limit", known[name]), default="")
        remedy = _REMEDIES.get(why, "your program uses a custom gate").format(known.get(why))
        return (
            f"none of the last {self.runs} scored runs {their_gate}:"
            f" the best scored {self.best:.3f}, the best tenth at least"
            f" {self.top_tenth:.3f}{by_domain}; {remedy}; {_MORE}"
        )


def _top_tenth(scores: list[float]) -> float:
    return sorted(scores, reverse=True)[math.ceil(len(scores) * 0.1) - 1]


_HUNDREDTH: Final = "CAST(score * 100 + 1e-9 AS INTEGER)"  # 0.29 times 100 is 28.999…
_HUNDREDTHS: Final = f"""
    SELECT domain, group_concat({_HUNDREDTH} + 1000 * ({{above}}) + 2000 * (visibility = 'private'))
    FROM traces INDEXED BY traces_counted
    WHERE score IS NOT NULL AND (:since IS NULL OR started_at >= :since)
    GROUP BY domain
"""  # in index order, and counted in Python: SQLite would sort all rows
_BINS: Final = """
    SELECT value / 100.0, (
      SELECT count(*) FROM traces WHERE score >= value / 100.0 - 1e-11
        AND score < iif(value + :width < 100, (value + :width) / 100.0 - 1e-11, 2))
    FROM json_each(:starts)
"""


class Slice(NamedTuple):
    """The number of traces of one domain from ``hundredth / 100`` up to the next."""

    domain: str
    hundredth: int
    traces: int
    above: int  # reach the threshold; without a fixed one, cleared
    is_private: bool = False


class ScoreSlices(NamedTuple):
    """The distribution of scores in all domains; private runs are in separate slices."""

    threshold: float | None  # of the last decision; None: relative, or missing
    slices: tuple[Slice, ...] = ()

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains with scores, the most traces first."""
        counts = Counter[str]()
        for one in self.slices:
            counts[one.domain] += one.traces
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    @property
    def traces(self) -> int:
        return sum(one.traces for one in self.slices)

    @property
    def above(self) -> int:
        """The number that reach the threshold, or that cleared if it is not fixed."""
        return sum(one.above for one in self.slices)

    @property
    def without_private(self) -> "ScoreSlices":
        return self._replace(slices=tuple(one for one in self.slices if not one.is_private))

    def of(self, domain: str) -> "ScoreSlices":
        return self._replace(slices=tuple(one for one in self.slices if one.domain == domain))

    def count_reaching(self, hundredth: int) -> int:
        """Count the traces that would reach a threshold, given in hundredths."""
        return sum(one.traces for one in self.slices if one.hundredth >= hundredth)


class Removal(NamedTuple):
    """The number of redactions of one kind, in the week that begins on this Monday."""

    week: str
    kind: str
    times: int


MOST_POINTS: Final = 2000
"""The maximum number of traces on a map, the newest first."""


class MapPoint(NamedTuple):
    """One trace with its vector: float32, little-endian, of length 1."""

    seq: int
    id: str
    domain: str
    objective: str
    score: float | None
    cleared: bool
    vector: bytes


class NoveltyDay(NamedTuple):
    """The 10th, 50th and 90th percentile of the novelty of one day's traces."""

    day: str
    low: float
    median: float
    high: float


UNJUDGED: Final = """(
    coalesce(t.success_source, 'assumed') = 'assumed' OR t.success_source = 'said' AND t.success
)"""
"""The runs ``t`` whose success is unknown, or only the agent's own word."""

RECENT: Final = 500
"""The number of last runs to review."""

_KNOWN: Final = f"""
    FROM traces INDEXED BY traces_known
    WHERE score IS NOT NULL AND success_source IN ({EXTERNAL_SQL}) AND seq >= :first
      AND visibility IN ('network', 'org') AND success = v.success
"""
_SUCCESSES: Final = f"""
    WITH ends AS MATERIALIZED (
      SELECT success, (SELECT count(*) {_KNOWN}) AS known,
             (SELECT count(*) {_KNOWN} AND chosen = 1) AS chosen
      FROM (SELECT 0 AS success UNION ALL SELECT 1) v)
    SELECT sum(known), sum(known * success), sum(chosen), sum(chosen * success), EXISTS (
             SELECT 1 FROM (SELECT reason_args FROM traces WHERE decision = 'forward'
                            ORDER BY seq DESC LIMIT :recent)
             WHERE reason_args ->> 'delivery' IN ('unconfirmed', 'not_done', 'too_late'))
    FROM ends
"""  # counted in ranges of the index


class ReviewBacklog(NamedTuple):
    """The number of the last forwarded runs, and of unreviewed ones among them."""

    unreviewed: int
    forwarded: int


class SuccessRecord(NamedTuple):
    """The successes among the scored runs whose outcome is known."""

    known: int = 0  # without private ones
    succeeded: int = 0
    forwarded_known: int = 0  # of them: chosen before it was known
    forwarded_succeeded: int = 0
    some_stay: bool = False  # chosen, but awaiting a confirmation

    @property
    def is_worse_than_chance(self) -> bool:
        """True if of ten or more forwarded runs a smaller share succeeded than of all."""
        return (
            self.forwarded_known >= 10  # forwarded runs needed to judge a gate
            and self.forwarded_succeeded * self.known < self.succeeded * self.forwarded_known
        )


class Overview(NamedTuple):
    scores: ScoreSlices
    funnel: Funnel
    last: LastDecisions = LastDecisions()  # regardless of ``since``
    novelty: tuple[NoveltyDay, ...] = ()
    tools: tuple[ToolUse, ...] = ()  # the most used first
    missed: tuple[RunSummary, ...] = ()  # nearest to their threshold, those that reach it first
    points: tuple[MapPoint, ...] = ()  # the newest
    removals: tuple[Removal, ...] = ()  # of twelve weeks up to the newest run
    successes: SuccessRecord = SuccessRecord()
    review_backlog: ReviewBacklog = ReviewBacklog(0, 0)  # regardless of ``since``
    days: tuple[Period, ...] = ()  # of 30 days up to the newest run; so are the next three
    models: tuple[Period, ...] = ()
    failures: tuple[Failure, ...] = ()
    endings: tuple[Endings, ...] = ()
    outcomes: tuple[int, int] = (0, 0)  # succeeded, failed


_SAMPLE: Final = 6_000  # of 90 days: a median of 66 traces a day
_FIRST_DAY: Final = """
    SELECT first FROM (SELECT date(max(started_at), ?) AS first FROM traces)
    WHERE first > (SELECT min(started_at) FROM traces)
"""
_NEAREST_TO_THRESHOLD: Final = """
    SELECT * FROM (SELECT seq FROM traces WHERE margin >= 0 AND above AND seq >= :first
                   ORDER BY margin, seq DESC LIMIT :side)
    UNION ALL
    SELECT * FROM (SELECT seq FROM traces WHERE margin <= 0 AND NOT above AND seq >= :first
                   ORDER BY margin DESC, seq DESC LIMIT :side)
"""
_NOVELTY: Final = """
    SELECT substr(started_at, 1, 10) AS day, novelty FROM traces INDEXED BY traces_counted
    WHERE started_at >= (SELECT date(max(started_at), ?) FROM traces) AND seq >= ? AND seq % ? = 0
      AND novelty IS NOT NULL AND score IS NOT NULL
    ORDER BY day
"""
# Grouped by day and text first, so that few texts are read as JSON.
_REMOVALS: Final = """
    WITH daily AS (
      SELECT t.day, o.redactions, count(*) AS rows
      FROM outbox o CROSS JOIN traces t ON t.seq = o.trace_seq
      WHERE o.redactions <> '{}' AND t.day >= (SELECT date(max(started_at), :weeks) FROM traces)
        AND o.trace_seq >= max(:first, (
          SELECT min(+seq) FROM traces
          WHERE started_at >= (SELECT date(max(started_at), :weeks) FROM traces)))
      GROUP BY 1, 2)
    SELECT date(day, 'weekday 0', '-6 days'), r.key, sum(r.value * rows)
    FROM daily CROSS JOIN json_each(redactions) r GROUP BY 1, 2 ORDER BY 1, 2
"""
_POINTS: Final = """
    SELECT t.seq, t.id, t.domain, t.objective, t.score, coalesce(t.decision = 'forward', 0),
           v.vector
    FROM vectors v CROSS JOIN traces t ON t.seq = v.trace_seq
    WHERE (v.embedder, length(v.vector)) = (
        SELECT embedder, length(vector) FROM vectors WHERE seq = (
          SELECT max(seq) FROM vectors WHERE {of}))
      AND {which} ORDER BY v.seq DESC LIMIT :limit
"""
_ITSELF: Final = "v.trace_seq = :around"
_NEAREST: Final = "v.trace_seq = (SELECT nearest_seq FROM traces WHERE seq = :around)"


class Overviews(Listing, Statistics):
    def overview(self, *, since: str | None = None) -> Overview:
        """Return the numbers of the overview, from one snapshot; ``since`` of None means all."""
        self._run("BEGIN")
        try:
            first = 0 if since is None else self.first_since(since)
            scope: Any = {"first": first, "since": since or ""}
            funnel, seen = self.funnel(**scope), self.seen(since or "")
            weeks = {"first": first, "weeks": "-83 days"}  # twelve
            return Overview(
                scores=self.scores(since=since),
                funnel=funnel,
                outcomes=self.outcomes(**scope),
                last=self.last_decisions(),
                novelty=(*self._novelty(first, nth=max(1, funnel.recorded // _SAMPLE)),),
                tools=(*self.tools(first=first, counts_runs=False),),
                missed=(*self._nearest_to_threshold(first),),
                points=self.points(first=first),
                removals=(*self._all(Removal, _REMOVALS, weeks),),
                successes=self.success_record(first=first),
                review_backlog=self.review_backlog(),
                days=periods(seen, "day"),
                models=periods(seen, "model"),
                failures=self.failures(since or ""),
                endings=endings(seen),
            )
        finally:
            self._run("ROLLBACK")

    def first_day(self) -> str:
        """Return the first of the 30 days up to the newest run; empty if no run is older."""
        return self._text(_FIRST_DAY, (f"-{DAYS - 1} days",)) or ""

    def first_since(self, since: str) -> int:
        """Return the lowest ``seq`` of the runs that started at this instant or later."""
        # With seq alone, SQLite would look for it row by row from the first one on.
        seq = self._seq("SELECT min(+seq) FROM traces WHERE started_at >= ?", (since,))
        return seq or int(self._value("SELECT coalesce(max(seq), 0) + 1 FROM traces"))

    def threshold(self) -> float | None:
        """Return the fixed threshold of the last decision; None if it is relative or missing."""
        last = self._row(
            "SELECT gate, threshold FROM traces WHERE decision IS NOT NULL"
            " ORDER BY seq DESC LIMIT 1"
        )
        gate, threshold = last or ("", None)
        if threshold is None or gate.partition(",")[0] != f"threshold {exact(threshold)}":
            return None
        return float(threshold)

    def scores(self, *, since: str | None = None) -> ScoreSlices:
        """Return the distribution of scores, relative to the latest threshold."""
        threshold = self.threshold()
        traces = Counter[tuple[str, int, bool]]()
        above = Counter[tuple[str, int, bool]]()
        sql = _HUNDREDTHS.format(
            above="verdict IS 'forwarded'" if threshold is None else "score >= :threshold"
        )
        rows = self._run(sql, {"threshold": threshold, "since": since})
        for domain, packed in rows:
            for one, number in Counter(packed.split(",")).items():
                flags, at = divmod(int(one), 1000)
                traces[domain, at, flags > 1] += number
                above[domain, at, flags > 1] += number * (flags & 1)
        slices = (Slice(*key[:2], traces[key], above[key], key[2]) for key in sorted(traces))
        return ScoreSlices(threshold, (*slices,))

    def score_bins(self, hundredths: int) -> list[tuple[float, int]]:
        """Count runs by score; the last bin includes 1."""
        starts = json.dumps([*range(0, 100, hundredths)])
        return self._run(_BINS, {"starts": starts, "width": hundredths}).fetchall()

    def review_backlog(self) -> ReviewBacklog:
        """Count the last forwarded runs, and the unreviewed ones among them."""
        sql = (
            f"SELECT coalesce(sum(un), 0), count(*) FROM (SELECT {UNJUDGED} AS un FROM traces t"
            " WHERE decision = 'forward' AND visibility <> 'private' ORDER BY seq DESC LIMIT ?)"
        )
        return ReviewBacklog(*self._row(sql, (RECENT,)))

    def success_record(self, *, first: int = 0) -> SuccessRecord:
        """Count the known outcomes of scored and of forwarded runs, from ``first`` on."""
        return self._all(SuccessRecord, _SUCCESSES, {"recent": RECENT, "first": first})[0]

    def last_decisions(self) -> LastDecisions:
        rows = self._run(
            "SELECT domain, score, gate, visibility = 'private', verdict FROM traces"
            " WHERE score IS NOT NULL"
            f" ORDER BY seq DESC LIMIT {_LAST}"
        ).fetchall()
        if not rows:
            return LastDecisions()
        verdicts = Counter(verdict for *_, verdict in rows if verdict)
        scores = defaultdict[str, list[float]](list)
        for domain, score, *_ in rows:
            scores[domain].append(score)
        largest = sorted(scores.items(), key=lambda item: (-len(item[1]), item[0]))
        return LastDecisions(
            runs=len(rows),
            cleared=verdicts.pop("forwarded", 0),
            gate=rows[0][2] or "",
            best=max(score for _, score, *_ in rows),
            top_tenth=_top_tenth([score for _, score, *_ in rows]),
            domains={
                name: _top_tenth(of) for name, of in largest if len(of) >= _MIN_RUNS_OF_DOMAIN
            },
            withheld=verdicts,
            gates=len({gate for _, _, gate, *_ in rows if gate}),
            private=sum(is_private for *_, is_private, _ in rows),
        )

    def points(self, *, first: int = 0, around: int | None = None) -> tuple[MapPoint, ...]:
        """Return runs with comparable vectors, the newest first.

        With ``around``, that run comes first, then the nearest one before it.
        """
        found: dict[int, MapPoint] = {}
        of = "TRUE" if around is None else "trace_seq = :around"
        for which, limit in ((_ITSELF, 1), (_NEAREST, 1), ("t.seq >= :first", MOST_POINTS)):
            sql = _POINTS.format(of=of, which=which)
            values = {"around": around, "first": first, "limit": limit}
            found |= {one.seq: one for one in self._all(MapPoint, sql, values)}
        return (*found.values(),)

    def _novelty(self, first: int, *, nth: int) -> Iterator[NoveltyDay]:
        from statistics import quantiles  # 7 ms, which only the overview needs

        rows = self._run(_NOVELTY, ("-89 days", first, nth))  # 90 with the last
        for day, of_day in groupby(rows, key=lambda row: str(row[0])):
            values = [novelty for _, novelty in of_day]
            tenths = quantiles(values if len(values) > 1 else values * 2, n=10, method="inclusive")
            yield NoveltyDay(day, *tenths[::4])

    def _nearest_to_threshold(self, first: int) -> list[RunSummary]:
        """Return the runs nearest to their threshold on each side, from high to low."""
        seqs = self._column(_NEAREST_TO_THRESHOLD, {"first": first, "side": 5})
        return sorted(self._listed(seqs, {}), key=lambda run: run.margin or 0, reverse=True)
