"""What happened lately: runs a day, how they ended, their time and tokens, what failed most."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from kp_middleware.core.endings import known_success
from kp_middleware.database import Queries

DAYS: Final = 30
_MOST_RUNS: Final = 20_000
_FAILURES_OF: Final = 2_000  # runs
_MOST_FAILURES: Final = 6
_MOST_MODELS: Final = 6
_LINE: Final = 100
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

    A tool's errors that differ only in decimals and long numbers are one, told by the commonest.
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
    """The tokens of one model in one run; those that no step tells count for the run's model."""

    seq: int
    day: str
    model: str | None
    input: int
    output: int


class Activity(NamedTuple):
    """The runs of the 30 days up to the newest, at most 20,000 of them."""

    days: tuple[Period, ...] = ()
    models: tuple[Period, ...] = ()
    failures: tuple[Failure, ...] = ()
    endings: tuple[Endings, ...] = ()


class _Seen(NamedTuple):
    day: str
    model: str | None
    success: bool | None
    duration_ms: int | None
    tokens: int
    score: float | None


_SEEN: Final = """
    SELECT substr(started_at, 1, 10), model, success, success_source, duration_ms,
           coalesce(input_tokens, 0) + coalesce(output_tokens, 0), score
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


class Activities(Queries):
    """Queries of the recent activity in one file."""

    def activity(self, *, since: str | None = None) -> Activity:
        """Return what happened in the 30 days up to the newest run, and since an instant."""
        values = {"since": since or "", "days": f"-{DAYS - 1} days", "most": _MOST_RUNS}
        seen = [
            _Seen(day, model, known_success(bool(success), source), *rest)
            for day, model, success, source, *rest in self._run(_SEEN, values)
        ]
        models = _periods((one.model, one) for one in seen if one.model)
        models.sort(key=lambda period: (-period.runs, period.name))
        days = sorted(_periods((one.day, one) for one in seen))
        failures = self._failures(since or "")
        return Activity((*days,), (*models[:_MOST_MODELS],), (*failures,), (*_endings(seen),))

    def tokens(self, seqs: Iterable[int] | None = None, *, since: str = "") -> list[ModelTokens]:
        """Return the tokens by model of these runs, or of those that started since an instant."""
        given = None if seqs is None else json.dumps([*seqs])
        return self._all(ModelTokens, _TOKENS, {"given": given, "since": since})

    def _failures(self, since: str) -> list[Failure]:
        times: Counter[tuple[str | None, str]] = Counter()
        lines: dict[tuple[str | None, str], tuple[int, str]] = {}
        for tool, text, number in self._run(_FAILURES, {"since": since, "runs": _FAILURES_OF}):
            line = next(iter(str(text).strip().splitlines()), "")[:_LINE]
            same = tool, line if tool is None else _NUMBER.sub("0", line)
            times[same] += number
            lines[same] = max(lines.get(same, (0, "")), (number, line))
        most = times.most_common(_MOST_FAILURES)
        return [Failure(same[0], lines[same][1], number) for same, number in most]


def _endings(seen: Iterable[_Seen]) -> list[Endings]:
    known = [one for one in seen if one.score is not None and one.success is not None]
    ends = Counter((int(100 * (one.score or 0) + 1e-9), one.success) for one in known)
    return [Endings(at, ends[at, True], ends[at, False]) for at in sorted({at for at, _ in ends})]


def _periods(named: Iterable[tuple[str | None, _Seen]]) -> list[Period]:
    groups: defaultdict[str, list[_Seen]] = defaultdict(list)
    for name, one in named:
        groups[name or ""].append(one)
    return [_period(name, runs) for name, runs in groups.items()]


def _period(name: str, runs: list[_Seen]) -> Period:
    took = sorted(one.duration_ms for one in runs if one.duration_ms is not None)
    p50, p99 = (took[int(part * (len(took) - 1))] if took else None for part in (0.5, 0.99))
    ends = Counter(one.success for one in runs)
    tokens = sum(one.tokens for one in runs)
    return Period(name, len(runs), ends[True], ends[False], p50, p99, tokens)
