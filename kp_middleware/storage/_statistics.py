"""Counts and means of runs and tools, and the runs that stand out."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kp_middleware.database import Connection

WITHHELD: Final = (
    "below_threshold",
    "below_share",
    "tied_with_share",
    "warming_up",
    "daily_limit",
    "gate_failed",
    "custom",
)
"""The verdicts of withheld traces, as in the generated column ``verdict``."""


class Counts(NamedTuple):
    """The numbers of traces by state.

    Attributes:
        recorded: All traces.
        unscored: Traces that wait to be scored.
        paused: Traces that wait for a person, or for their thread's next turn.
        incomplete: Traces that were cancelled, timed out or never resumed; they are not scored.
        failed: Traces that could not be scored.
        pending: Traces that are pending or being sent.
        blocked: Traces that may not be clean, or had too many failed attempts.
    """

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


def count_backlog(connection: Connection) -> tuple[int, int]:
    """Count the backlog: runs that wait to be scored, and traces that wait to be sent."""
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM traces WHERE score IS NULL AND state = 'recorded'),
               (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending'))
        """
    ).fetchone()
    return int(row[0]), int(row[1])


def count_without_tokens(connection: Connection) -> tuple[int, int]:
    """Count the runs that used a model: those without token counts, and all of them."""
    row = connection.execute(
        """
        SELECT coalesce(sum(input_tokens IS NULL AND output_tokens IS NULL), 0), count(*)
        FROM traces WHERE model IS NOT NULL
        """
    ).fetchone()
    return int(row[0]), int(row[1])


def count_all(connection: Connection) -> Counts:
    """Count traces by state, in one snapshot."""
    return Counts._make(
        connection.execute(
            """
            SELECT (SELECT count(*) FROM traces),
                   (SELECT count(*) FROM traces WHERE score IS NULL AND state = 'recorded'),
                   (SELECT count(*) FROM traces WHERE score IS NULL AND state = 'paused'),
                   (SELECT count(*) FROM traces WHERE score IS NOT NULL),
                   (SELECT count(*) FROM traces WHERE score IS NULL AND state = 'incomplete'),
                   (SELECT count(*) FROM traces WHERE score IS NULL AND state = 'failed'),
                   (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')),
                   (SELECT count(*) FROM outbox WHERE state = 'sent'),
                   (SELECT count(*) FROM outbox WHERE state = 'rejected'),
                   (SELECT count(*) FROM outbox WHERE state = 'blocked')
            """
        ).fetchone()
    )


class ToolUse(NamedTuple):
    """One tool.

    Attributes:
        tool: Its name.
        calls: The number of calls.
        failures: The number of errors that a run recovered from.
        mean_ms: The mean latency; None if none was measured.
        max_ms: The highest latency.
        traces: The number of runs that called it; None if they were not counted.
    """

    tool: str
    calls: int
    failures: int
    mean_ms: float | None
    max_ms: float | None = None
    traces: int | None = None


class GroupCounts(NamedTuple):
    """The statistics of the runs of one domain, model, day or week.

    Attributes:
        key: The domain or model; the day, or the Monday on which a week begins.
        traces: All runs.
        cleared: The runs that their gate forwarded.
        mean_score: From 0 to 1; None if none has a score.
        best_score: The highest.
        mean_novelty: From 0 to 1.
    """

    key: str | None
    traces: int
    cleared: int
    mean_score: float | None
    best_score: float | None
    mean_novelty: float | None


class StateCount(NamedTuple):
    """The number of runs in one state, as a list names it."""

    state: str
    traces: int


class GateCounts(NamedTuple):
    """The runs that one gate decided on.

    Attributes:
        gate: Its name.
        traces: All of them.
        cleared: Those that it forwarded.
        withheld: Those that it did not, by reason: each of `WITHHELD`.
    """

    gate: str
    traces: int
    cleared: int
    withheld: Mapping[str, int]


class Tenth(NamedTuple):
    """The number of runs that score this much, but not a tenth more."""

    at_least: float
    traces: int


class Funnel(NamedTuple):
    """The numbers of traces at each stage from recording to sending.

    Attributes:
        recorded: All traces.
        cleared: Traces that the gate forwarded.
        queued: Traces that are or were in the outbox.
        waiting: Traces that are pending or being sent.
        reasons: The number of blocked traces by reason, the most frequent first.
        private: Scored traces that never leave.
        if_not_private: Those of them that the gate would forward if they were not private.
    """

    recorded: int
    cleared: int
    queued: int
    waiting: int
    sent: int
    blocked: int
    rejected: int
    reasons: Mapping[str, int]
    private: int = 0
    if_not_private: int = 0


class Totals(NamedTuple):
    """The statistics of a file: in total, by domain, score, state and gate; ten tools."""

    funnel: Funnel
    domains: list[GroupCounts]
    scores: list[Tenth]
    states: list[StateCount]
    gates: list[GateCounts]
    tools: list[ToolUse]


def read_tools(
    connection: Connection,
    *,
    first: int = 0,
    domain: str | None = None,
    counts_runs: bool = False,
) -> list[ToolUse]:
    """Read the tools, the most called first, in the order of the index of the steps.

    Args:
        connection: The connection to the file.
        first: Only calls in runs from this ``seq`` on.
        domain: Only calls in runs of this domain; None means any.
        counts_runs: Count the runs of each tool, which takes longer.
    """
    runs = "count(DISTINCT trace_seq)" if counts_runs else "NULL"
    all_runs = "sum(iif(type = 'tool_call', traces, 0))" if counts_runs else "NULL"
    rows = connection.execute(
        f"""
        WITH used AS (
          SELECT tool, type, count(*) AS times, {runs} AS traces, sum(latency_ms) AS took_ms,
                 count(latency_ms) AS timed, max(latency_ms) AS max_ms
          FROM steps
          WHERE tool IS NOT NULL AND trace_seq >= :first AND (:domain IS NULL
                OR trace_seq IN (SELECT seq FROM traces WHERE domain = :domain))
          GROUP BY tool, type)
        SELECT tool, sum(iif(type = 'tool_call', times, 0)) AS calls,
               sum(iif(type = 'error_recovery', times, 0)), sum(took_ms) / sum(timed), max(max_ms),
               {all_runs}
        FROM used GROUP BY tool ORDER BY calls DESC, tool
        """,  # noqa: S608 - ours
        {"first": first, "domain": domain},
    )
    return [*map(ToolUse._make, rows)]


_PART: Final = """
    SELECT {key} AS key, count(*) AS traces, sum(decision = 'forward') AS cleared,
           count(score) AS scores, sum(score) AS all_scores, max(score) AS best,
           count(novelty) AS novelties, sum(novelty) AS all_novelties
    FROM traces {where} GROUP BY {key}
"""


def _of_indices(key: str) -> str:
    return " UNION ALL ".join(
        _PART.format(key=key, where=where)
        for where in (
            "INDEXED BY traces_counted WHERE score IS NOT NULL",
            "INDEXED BY traces_unscored WHERE score IS NULL",
        )
    )


_PARTS: Final[Mapping[str, str]] = {
    "domain": _of_indices("domain"),
    "model": _PART.format(key="model", where="NOT INDEXED"),
    "day": _of_indices("day"),
    "week": _of_indices("day"),
}
_WEEK: Final = "date(key, 'weekday 0', '-6 days')"
_TENTHS: Final = """
    WITH RECURSIVE tenths(tenth) AS (SELECT 0 UNION ALL SELECT tenth + 1 FROM tenths LIMIT 10)
    SELECT tenth / 10.0 AS at_least,
           (SELECT count(*) FROM traces WHERE score >= tenth / 10.0
            AND score < iif(tenth = 9, 2.0, (tenth + 1) / 10.0)) AS traces
    FROM tenths WHERE traces
"""
_VERDICTS: Final = """
    SELECT gate, verdict, state, count(*) AS traces, max(seq) AS last
    FROM traces INDEXED BY traces_counted WHERE score IS NOT NULL GROUP BY gate, verdict, state
"""
_UNSCORED: Final = """
    SELECT state, verdict, count(*) FROM traces INDEXED BY traces_unscored
    WHERE score IS NULL GROUP BY state, verdict
"""
_QUEUED_THOUGH_NOT_CLEARED: Final = """
    SELECT iif(t.state = 'scored', 'withheld', t.state), count(*)
    FROM outbox o CROSS JOIN traces t ON t.seq = o.trace_seq
    WHERE NOT EXISTS (
      SELECT 1 FROM traces c INDEXED BY traces_cleared
      WHERE c.seq = o.trace_seq AND c.decision = 'forward')
    GROUP BY 1
"""


class _Verdicts(NamedTuple):
    """The number of scored runs with one gate, verdict and state."""

    gate: str | None
    verdict: str | None
    state: str
    traces: int
    last: int


def read_totals(connection: Connection) -> Totals:
    """Read the statistics in total, by domain, score, state and gate, and the tools used."""
    verdicts = _verdicts(connection)
    return Totals(
        read_funnel(connection, 0),
        read_groups(connection, "domain"),
        [*map(Tenth._make, connection.execute(_TENTHS))],
        _states(connection, verdicts),
        _gates(verdicts),
        read_tools(connection)[:10],
    )


def read_funnel(connection: Connection, first: int) -> Funnel:
    """Count the runs at each stage, from the run ``first`` on."""
    counts = connection.execute(
        # the plus signs: counted in an index, not in the wide rows
        """
        SELECT (SELECT count(*) FROM traces WHERE +seq >= :first),
               (SELECT count(*) FROM traces WHERE decision = 'forward' AND seq >= :first),
               (SELECT count(*) FROM outbox WHERE +trace_seq >= :first),
               (SELECT count(*) FROM outbox
                WHERE state IN ('pending', 'sending') AND trace_seq >= :first),
               (SELECT count(*) FROM outbox WHERE state = 'sent' AND trace_seq >= :first),
               (SELECT count(*) FROM outbox WHERE state = 'blocked' AND trace_seq >= :first),
               (SELECT count(*) FROM outbox WHERE state = 'rejected' AND trace_seq >= :first)
        """,
        {"first": first},
    ).fetchone()
    reasons = connection.execute(
        "SELECT coalesce(reason, 'unknown'), count(*) FROM outbox"
        " WHERE state = 'blocked' AND trace_seq >= ? GROUP BY 1 ORDER BY 2 DESC, 1",
        (first,),
    )
    private = connection.execute(
        "SELECT count(*), coalesce(sum(decision = 'forward'), 0) FROM traces INDEXED BY"
        " traces_counted WHERE score IS NOT NULL AND visibility = 'private' AND seq >= ?",
        (first,),
    ).fetchone()
    return Funnel._make((*counts, dict(reasons.fetchall()), *private))


def read_groups(connection: Connection, by: str) -> list[GroupCounts]:
    """Read the statistics by one property, the most runs first; days and weeks in order.

    Args:
        connection: The connection to the file.
        by: ``domain``, ``model``, ``day`` or ``week`` (the Monday it begins on).
    """
    rows = connection.execute(
        f"""
        SELECT {_WEEK if by == "week" else "key"}, sum(traces), coalesce(sum(cleared), 0),
               round(sum(all_scores) / sum(scores), 4), round(max(best), 4),
               round(sum(all_novelties) / sum(novelties), 4)
        FROM ({_PARTS[by]}) GROUP BY 1 ORDER BY {"1" if by in {"day", "week"} else "2 DESC, 1"}
        """,  # noqa: S608 - ours
    )
    return [*map(GroupCounts._make, rows)]


def read_states(connection: Connection) -> list[StateCount]:
    """Count runs by the states of the view ``history``, without its join with the outbox."""
    return _states(connection, _verdicts(connection))


def read_gates(connection: Connection) -> list[GateCounts]:
    """Count forwarded and withheld runs by gate, the latest gate first."""
    return _gates(_verdicts(connection))


def _verdicts(connection: Connection) -> list[_Verdicts]:
    return [*map(_Verdicts._make, connection.execute(_VERDICTS))]


def _states(connection: Connection, verdicts: Iterable[_Verdicts]) -> list[StateCount]:
    counts = Counter[str]()
    for one in verdicts:
        counts[_unqueued(one.state, one.verdict)] += one.traces
    for state, verdict, traces in connection.execute(_UNSCORED):
        counts[_unqueued(state, verdict)] += traces
    for state, traces in connection.execute("SELECT state, count(*) FROM outbox GROUP BY state"):
        counts[state] += traces
        counts["not queued"] -= traces
    for counted_as, traces in connection.execute(_QUEUED_THOUGH_NOT_CLEARED):
        counts["not queued"] += traces
        counts[counted_as] -= traces
    found = sorted((+counts).items(), key=lambda item: (-item[1], item[0]))
    return [StateCount(state, traces) for state, traces in found]


def _unqueued(state: str, verdict: str | None) -> str:
    if state != "scored":
        return state
    return "not queued" if verdict == "forwarded" else "withheld"


def _gates(verdicts: Iterable[_Verdicts]) -> list[GateCounts]:
    kinds, last = dict[str, Counter[str | None]](), Counter[str]()
    for one in verdicts:
        if one.gate is not None:
            kinds.setdefault(one.gate, Counter())[one.verdict] += one.traces
            last[one.gate] = max(last[one.gate], one.last)
    return [
        GateCounts(gate, of.total(), of["forwarded"], {kind: of[kind] for kind in WITHHELD})
        for gate, of in ((gate, kinds[gate]) for gate, _ in last.most_common())
    ]


class Highlight(NamedTuple):
    """A run, and the figure for which it is shown."""

    id: str
    figure: float
    objective: str


class Highlights(NamedTuple):
    """The runs that stand out, the first one most; a ranking, not a judgement."""

    unlike: tuple[Highlight, ...]
    richest: tuple[Highlight, ...]
    hardest: tuple[Highlight, ...]


def highlights(connection: Connection, frameworks: Collection[str], *, limit: int) -> Highlights:
    """Return the runs most unlike all others, those that score most, and the hardest successes."""

    def best(figure: str, condition: str = "TRUE") -> tuple[Highlight, ...]:
        rows = connection.execute(
            f"SELECT id, {figure}, objective FROM traces WHERE state = 'scored' AND {condition}"  # noqa: S608
            " AND framework IN (SELECT value FROM json_each(?))"
            f" ORDER BY {figure} DESC, seq LIMIT ?",
            (json.dumps([*frameworks]), limit),
        )
        return tuple(Highlight(*row) for row in rows)

    return Highlights(
        best("novelty"), best("score"), best("recovery_count", "success = 1 AND recovery_count > 0")
    )
