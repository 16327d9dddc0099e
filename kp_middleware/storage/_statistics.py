"""Counts and means of runs and tools, and the runs that stand out."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from kp_middleware.database import Queries

_WITHHELD: Final = (
    *("below_threshold", "below_share", "tied_with_share", "warming_up", "daily_limit"),
    *("gate_failed", "custom"),
)
"""The verdicts of withheld traces, as in the generated column ``verdict``."""


class Counts(NamedTuple):
    """The numbers of traces by state, as `Stats` describes them."""

    recorded: int = 0
    unscored: int = 0
    paused: int = 0
    scored: int = 0
    incomplete: int = 0
    failed: int = 0
    pending: int = 0
    sent: int = 0
    rejected: int = 0
    blocked: int = 0
    recalled: int = 0


class Backlog(NamedTuple):
    """Work that is not done yet; falsy when there is none.

    Attributes:
        unscored: Runs that are not scored yet, in memory or in the file.
        unsent: Traces in the outbox that are not sent.
    """

    unscored: int = 0
    unsent: int = 0

    def __bool__(self) -> bool:
        return any(self)


class ToolUse(NamedTuple):
    """One tool: its calls and the errors that runs recovered from, with the latency of both."""

    tool: str
    calls: int
    failures: int
    mean_ms: float | None
    max_ms: float | None = None
    traces: int | None = None  # the runs that called it; None: not counted


class GroupCounts(NamedTuple):
    """The runs of one domain, model, day or week, which is named by its Monday."""

    key: str | None
    traces: int
    cleared: int
    mean_score: float | None
    best_score: float | None
    mean_novelty: float | None


class GateCounts(NamedTuple):
    """The runs that one gate decided on: all, those forwarded, the others by `_WITHHELD`."""

    gate: str
    traces: int
    cleared: int
    withheld: Mapping[str, int]


class Funnel(NamedTuple):
    recorded: int
    cleared: int
    queued: int  # are or were in the outbox
    waiting: int  # pending, or being sent
    sent: int
    blocked: int
    rejected: int
    reasons: Mapping[str, int]  # of the blocked ones, the most frequent first
    private: int = 0  # scored, but never leave
    if_not_private: int = 0  # of them: would be forwarded


class TopRun(NamedTuple):
    id: str
    figure: float
    objective: str


_UNSCORED: Final = "FROM traces WHERE score IS NULL AND state ="
_OPEN: Final = "FROM outbox WHERE state IN ('pending', 'sending')"
_COUNTS: Final = f"""
    SELECT (SELECT count(*) FROM traces), (SELECT count(*) {_UNSCORED} 'recorded'),
           (SELECT count(*) {_UNSCORED} 'paused'),
           (SELECT count(*) FROM traces) - (SELECT count(*) FROM traces WHERE score IS NULL),
           (SELECT count(*) {_UNSCORED} 'incomplete'), (SELECT count(*) {_UNSCORED} 'failed'),
           (SELECT count(*) {_OPEN}), (SELECT count(*) FROM outbox WHERE state = 'sent'),
           (SELECT count(*) FROM outbox WHERE state = 'rejected'),
           (SELECT count(*) FROM outbox WHERE state = 'blocked'),
           (SELECT count(*) FROM traces WHERE recalled IS NOT NULL)
"""  # one statement, and so one snapshot
_NOT_QUEUED: Final = """
    SELECT count(*) FROM (
      SELECT seq FROM traces INDEXED BY traces_cleared
      WHERE decision = 'forward' AND state = 'scored'
      EXCEPT SELECT trace_seq FROM outbox WHERE state = 'sent' ORDER BY 1 LIMIT -1)
    WHERE seq NOT IN (SELECT +trace_seq FROM outbox WHERE state < 'sent' OR state > 'sent')
"""  # most are sent: two indices in order, merged (which the limit keeps), not a list
_RECENT: Final = 2_000  # runs whose tokens and failures are counted
_WITHOUT_TOKENS: Final = """
    SELECT coalesce(sum(coalesce(input_tokens, output_tokens) IS NULL), 0), count(*)
    FROM (SELECT model, input_tokens, output_tokens FROM traces ORDER BY seq DESC LIMIT ?)
    WHERE model IS NOT NULL
"""
BACKLOG: Final = f"SELECT (SELECT count(*) {_UNSCORED} 'recorded'), (SELECT count(*) {_OPEN})"
_SINCE: Final = "seq >= :first AND (:first = 0 OR started_at >= :since)"  # imports are older
_REACHED: Final = f"""
    SELECT (SELECT count(*) FROM traces WHERE started_at >= :since),
           (SELECT count(*) FROM traces WHERE decision = 'forward' AND {_SINCE})
"""
_OUTCOMES: Final = f"""
    SELECT (SELECT count(*) FROM traces INDEXED BY traces_done WHERE success = 1
              AND state = 'scored' AND success_source <> 'assumed' AND {_SINCE})
           + (SELECT count(*) FROM traces INDEXED BY traces_unscored WHERE score IS NULL
              AND success = 1 AND state <> 'scored' AND success_source <> 'assumed' AND {_SINCE}),
           (SELECT count(*) FROM traces INDEXED BY traces_failed WHERE success = 0
              AND success_source <> 'assumed' AND {_SINCE})
"""
_QUEUED: Final = "SELECT state, count(*) FROM outbox WHERE trace_seq >= ? GROUP BY state"
_BLOCKED: Final = """
    SELECT coalesce(reason, 'unknown'), count(*) FROM outbox
    WHERE state = 'blocked' AND trace_seq >= ? GROUP BY 1 ORDER BY 2 DESC, 1
"""
_PRIVATE: Final = """
    SELECT count(*), coalesce(sum(verdict = 'forwarded'), 0) FROM traces INDEXED BY traces_private
    WHERE score IS NOT NULL AND visibility = 'private' AND seq >= ?
"""
_GROUPS: Final = """
    SELECT {group} AS of, sum(runs) AS runs, sum(cleared), round(sum(score) / sum(scored), 4),
           max(best), round(sum(novelty) / sum(measured), 4)
    FROM (SELECT {key} AS key, count(*) AS runs, coalesce(sum(verdict = 'forwarded'), 0) AS cleared,
                 sum(score) AS score, count(*) AS scored, max(score) AS best,
                 sum(novelty) AS novelty, count(novelty) AS measured
          FROM traces {index} WHERE score IS NOT NULL GROUP BY 1
          UNION ALL SELECT {key}, count(*), 0, NULL, 0, NULL, NULL, 0
          FROM traces INDEXED BY traces_unscored WHERE score IS NULL GROUP BY 1)
    GROUP BY of ORDER BY {order}
"""
_TOOLS: Final = """
    SELECT tool, {calls} AS calls, {failures}, avg(latency_ms), max(latency_ms), {runs}
    FROM steps WHERE tool IS NOT NULL AND trace_seq >= :first {which}
    GROUP BY tool ORDER BY calls DESC, tool
"""  # in the order of the index, which has each use of a tool
_OF_TYPE: Final = """
    (SELECT count({}) FROM steps s
     WHERE s.tool = steps.tool AND s.type = '{}' AND s.trace_seq >= :first)
"""  # a range of the index
_OF_DOMAIN: Final = "AND +trace_seq IN (SELECT seq FROM traces WHERE domain = :domain)"
_GATES: Final = f"""
    SELECT gate, sum(runs), {
    ", ".join(f"sum(iif(verdict = '{verdict}', runs, 0))" for verdict in ("forwarded", *_WITHHELD))
}
    FROM (SELECT gate, verdict, count(*) AS runs, max(seq) AS last
          FROM traces INDEXED BY traces_gates WHERE score IS NOT NULL AND gate IS NOT NULL
          GROUP BY gate, verdict)
    GROUP BY gate ORDER BY max(last) DESC
"""
_STATES: Final = f"""
    WITH others AS MATERIALIZED (
      SELECT state, count(*) AS runs FROM outbox GROUP BY state
      UNION ALL
      SELECT state, count(*) FROM traces INDEXED BY traces_unscored
      WHERE score IS NULL AND seq NOT IN (SELECT +trace_seq FROM outbox) GROUP BY state
      UNION ALL SELECT 'not queued', ({_NOT_QUEUED}))
    SELECT state, sum(runs) FROM (
      SELECT * FROM others
      UNION ALL
      SELECT 'withheld', (SELECT count(*) FROM traces) - (SELECT sum(runs) FROM others))
    GROUP BY state HAVING sum(runs) > 0 ORDER BY 2 DESC, 1
"""  # most runs are withheld: what no other state has, without a look at each


DAYS: Final = 30
_MOST_SHOWN: Final = 6
_NUMBER: Final = re.compile(r"\d+\.\d+|\d{4,}")  # a shorter one may be a status


class Period(NamedTuple):
    """The runs of a day, or those that used a model."""

    name: str  # the day (``2026-11-01``), or the model
    runs: int
    succeeded: int  # as far as is known
    failed: int
    p50_ms: float | None  # None if none was timed
    p99_ms: float | None
    tokens: int  # in and out


class Failure(NamedTuple):
    """An error of a tool, or of a whole run if ``tool`` is None, and how often it happened.

    A tool's errors that differ only in decimals and long numbers count as one, the most frequent.
    """

    tool: str | None  # None: of a whole run
    error: str
    times: int


class Endings(NamedTuple):
    """The known endings of the runs that score from ``hundredth / 100`` up to the next."""

    hundredth: int
    succeeded: int
    failed: int


class ModelTokens(NamedTuple):
    """The tokens of one model in one run; those without a step count for the run's model."""

    seq: int
    day: str
    model: str | None
    input: int
    output: int


class SeenRun(NamedTuple):
    day: str
    model: str | None
    success: bool | None  # None: not known
    duration_ms: int | None
    tokens: int
    score: float | None


_SEEN: Final = """
    SELECT substr(started_at, 1, 10), model,
           iif(coalesce(success_source, 'assumed') = 'assumed', NULL, success),
           duration_ms, coalesce(input_tokens, 0) + coalesce(output_tokens, 0), score
    FROM traces
    WHERE started_at >= (SELECT max(:since, date(max(started_at), :days)) FROM traces)
    ORDER BY started_at DESC LIMIT :most
"""
_TOKENS: Final = """
    WITH chosen AS MATERIALIZED (
      SELECT value AS seq FROM json_each(:given)
      UNION ALL SELECT seq FROM traces WHERE :given IS NULL AND started_at >= :since),
    called AS MATERIALIZED (
      SELECT trace_seq, model, total(input_tokens) AS input, total(output_tokens) AS output
      FROM chosen CROSS JOIN steps ON trace_seq = seq WHERE model IS NOT NULL GROUP BY 1, 2),
    used AS (
      SELECT trace_seq AS seq, model, input, output FROM called
      UNION ALL
      SELECT seq, model, max(0, coalesce(input_tokens, 0) - coalesce(
               (SELECT sum(input) FROM called WHERE trace_seq = seq), 0)),
             max(0, coalesce(output_tokens, 0) - coalesce(
               (SELECT sum(output) FROM called WHERE trace_seq = seq), 0))
      FROM chosen CROSS JOIN traces USING (seq))
    SELECT seq, t.day, used.model, CAST(sum(input) AS INTEGER), CAST(sum(output) AS INTEGER)
    FROM used CROSS JOIN traces t USING (seq)
    GROUP BY seq, used.model HAVING sum(input) + sum(output) > 0
"""
_FAILURES: Final = """
    WITH newest AS (SELECT seq, error_type FROM traces WHERE started_at >= :since
                    ORDER BY started_at DESC LIMIT :runs)
    SELECT tool, coalesce(output_summary, content, ''), count(*)
    FROM newest JOIN steps ON trace_seq = newest.seq WHERE type = 'error_recovery'
    GROUP BY 1, 2
    UNION ALL
    SELECT NULL, error_type, count(*) FROM newest WHERE error_type IS NOT NULL GROUP BY 2
"""


class Statistics(Queries):
    def counts(self) -> Counts:
        return self._all(Counts, _COUNTS)[0]

    def without_tokens(self) -> tuple[int, int]:
        """Count the recent runs that used a model: those without token counts, and all of them."""
        without, total = self._row(_WITHOUT_TOKENS, (_RECENT,))
        return without, total

    def funnel(self, *, first: int = 0, since: str = "") -> Funnel:
        """Count the runs at each stage since an instant; ``first`` is the lowest ``seq`` since."""
        queued = Counter(dict[str, int](self._run(_QUEUED, (first,))))
        facts = (
            *self._row(_REACHED, {"first": first, "since": since}),
            queued.total(),
            queued["pending"] + queued["sending"],
            queued["sent"],
            queued["blocked"],
            queued["rejected"],
            dict(self._run(_BLOCKED, (first,))),
            *self._row(_PRIVATE, (first,)),
        )
        return Funnel._make(facts)

    def outcomes(self, *, first: int = 0, since: str = "") -> tuple[int, int]:
        """Count the runs that are known to have succeeded, and those that failed."""
        succeeded, failed = self._row(_OUTCOMES, {"first": first, "since": since})
        return succeeded, failed

    def groups(self, by: str) -> list[GroupCounts]:
        """Return the statistics by ``domain``, ``model``, ``day`` or ``week``.

        The most runs come first; days and weeks are in order.
        """
        is_time = by in {"day", "week"}
        indices = {"domain": "INDEXED BY traces_counted", "model": "NOT INDEXED"}
        sql = _GROUPS.format(
            group="date(key, 'weekday 0', '-6 days')" if by == "week" else "key",
            key="day" if is_time else by,
            index=indices.get(by, "INDEXED BY traces_day"),
            order="of" if is_time else "runs DESC, of",
        )
        return self._all(GroupCounts, sql)

    def states(self) -> dict[str, int]:
        """Return the numbers of runs by state, as in the view ``history``, the largest first."""
        return dict(self._run(_STATES))

    def not_queued(self) -> int:
        """Count the runs that passed the gate but never were in the outbox."""
        return int(self._value(_NOT_QUEUED))

    def gates(self) -> list[GateCounts]:
        """Return the numbers of forwarded and withheld runs by gate, the latest gate first."""
        return [
            GateCounts(gate, runs, cleared, dict(zip(_WITHHELD, withheld, strict=True)))
            for gate, runs, cleared, *withheld in self._run(_GATES)
        ]

    def tools(
        self, *, first: int = 0, domain: str | None = None, counts_runs: bool = True
    ) -> list[ToolUse]:
        some = _OF_TYPE if domain is None else "count({}) FILTER (WHERE type = '{}')"
        sql = _TOOLS.format(
            calls=some.format("*", "tool_call"),
            failures=some.format("*", "error_recovery"),
            runs=some.format("DISTINCT trace_seq", "tool_call") if counts_runs else "NULL",
            which="" if domain is None else _OF_DOMAIN,
        )
        return self._all(ToolUse, sql, {"first": first, "domain": domain})

    def top_runs(self, frameworks: Collection[str], *, limit: int) -> list[list[TopRun]]:
        """Return the most novel, the best and the hardest runs of these frameworks."""
        sql = """
            SELECT id, {0}, objective FROM traces WHERE state = 'scored' AND {1}
              AND framework IN (SELECT value FROM json_each(?)) ORDER BY {0} DESC, seq LIMIT ?
        """
        hardest = "success = 1 AND recovery_count > 0"
        figures = {"novelty": "embedder IS NOT NULL", "score": "TRUE", "recovery_count": hardest}
        asked = json.dumps([*frameworks]), limit
        return [self._all(TopRun, sql.format(*one), asked) for one in figures.items()]

    def seen(self, since: str) -> list[SeenRun]:
        """Return the runs of the 30 days up to the newest, at most 20,000 since an instant."""
        values = {"since": since, "days": f"-{DAYS - 1} days", "most": 20_000}
        return self._all(SeenRun, _SEEN, values)

    def tokens(self, seqs: Iterable[int] | None = None, *, since: str = "") -> list[ModelTokens]:
        """Return the tokens by model of these runs, or of those that started since an instant."""
        given = None if seqs is None else json.dumps([*seqs])
        return self._all(ModelTokens, _TOKENS, {"given": given, "since": since})

    def failures(self, since: str) -> tuple[Failure, ...]:
        """Return the most frequent errors of the newest 2,000 runs since an instant."""
        times: Counter[tuple[str | None, str]] = Counter()
        lines: dict[tuple[str | None, str], tuple[int, str]] = {}
        for tool, text, number in self._run(_FAILURES, {"since": since, "runs": _RECENT}):
            line = next(iter(str(text).strip().splitlines()), "")[:100]
            same = tool, line if tool is None else _NUMBER.sub("0", line)
            times[same] += number
            lines[same] = max(lines.get(same, (0, "")), (number, line))
        most = times.most_common(_MOST_SHOWN)
        return tuple(Failure(same[0], lines[same][1], number) for same, number in most)


def periods(seen: Iterable[SeenRun], by: Literal["day", "model"]) -> tuple[Period, ...]:
    """Return the days in order, or the models with the most runs."""
    groups = defaultdict[str, list[SeenRun]](list)
    for one in seen:
        if name := getattr(one, by):
            groups[name].append(one)
    if by == "day":
        return tuple(_period(day, groups[day]) for day in sorted(groups))
    most = sorted(groups, key=lambda model: (-len(groups[model]), model))[:_MOST_SHOWN]
    return tuple(_period(model, groups[model]) for model in most)


def _period(name: str, runs: Sequence[SeenRun]) -> Period:
    took = sorted(one.duration_ms for one in runs if one.duration_ms is not None)
    p50, p99 = (took[math.ceil(part * len(took)) - 1] if took else None for part in (0.5, 0.99))
    ends = Counter(one.success for one in runs)
    tokens = sum(one.tokens for one in runs)
    return Period(name, len(runs), ends[True], ends[False], p50, p99, tokens)


def endings(seen: Iterable[SeenRun]) -> tuple[Endings, ...]:
    ends = Counter(
        (int(100 * one.score + 1e-9), one.success)
        for one in seen
        if one.score is not None and one.success is not None
    )
    scores = sorted({at for at, _ in ends})
    return tuple(Endings(at, ends[at, True], ends[at, False]) for at in scores)
