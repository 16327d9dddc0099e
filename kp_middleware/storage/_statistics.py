"""Counts and means of runs and tools."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._records import Row

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
        SELECT (SELECT count(*) FROM traces WHERE state = 'recorded'),
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
                   (SELECT count(*) FROM traces WHERE state = 'recorded'),
                   (SELECT count(*) FROM traces WHERE state = 'paused'),
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


def read_tool_usage(
    connection: Connection, *, domain: str | None = None, limit: int | None = None
) -> list[Row]:
    """Read the most called tools; uses only an index, because the file may be large.

    Args:
        connection: The connection to the file.
        domain: Only calls in traces of this domain; None means any.
        limit: The maximum number of tools; None means all.
    """
    cursor = connection.execute(
        """
        WITH used AS (
          SELECT tool, type, count(*) AS times, count(DISTINCT trace_seq) AS traces,
                 sum(latency_ms) AS took_ms, count(latency_ms) AS timed, max(latency_ms) AS most_ms
          FROM steps
          WHERE tool IS NOT NULL AND (:domain IS NULL
                OR trace_seq IN (SELECT seq FROM traces WHERE domain = :domain))
          GROUP BY tool, type)
        SELECT tool, sum(iif(type = 'tool_call', times, 0)) AS calls,
               sum(iif(type = 'error_recovery', times, 0)) AS failures,
               sum(iif(type = 'tool_call', traces, 0)) AS traces,
               sum(took_ms) / sum(timed) AS mean_ms, max(most_ms) AS max_ms
        FROM used GROUP BY tool ORDER BY calls DESC, tool LIMIT :limit
        """,
        {"domain": domain, "limit": -1 if limit is None else limit},
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


if TYPE_CHECKING:  # it counts with this module
    from kp_middleware.storage._records import Row

_PART: Final = """
    SELECT {key} AS key, count(*) AS traces, sum(decision = 'forward') AS cleared,
           count(score) AS scores, sum(score) AS all_scores, max(score) AS best,
           count(novelty) AS novelties, sum(novelty) AS all_novelties
    FROM traces {where} GROUP BY {key}
"""
_BY_DAY: Final = _PART.format(key="day", where="INDEXED BY traces_day")
_PARTS: Final[Mapping[str, str]] = {
    "domain": " UNION ALL ".join(
        _PART.format(key="domain", where=where)
        for where in (
            "INDEXED BY traces_spread WHERE score IS NOT NULL",
            "INDEXED BY traces_score WHERE score IS NULL",
        )
    ),
    "model": _PART.format(key="model", where="NOT INDEXED"),
    "day": _BY_DAY,
    "week": _BY_DAY,
}
_WEEK: Final = "date(key, 'weekday 0', '-6 days')"
_IN_TIME: Final = ("day", "week")


def read_totals(connection: Connection) -> "Row":
    """Read the statistics in total, by domain, score, state and gate, and the tools used."""
    verdicts = _verdicts(connection)
    return {
        **_rows(connection, "SELECT * FROM funnel")[0],
        "domains": read_groups(connection, "domain"),
        "scores": _tenths(connection),
        "states": _states(connection, verdicts),
        "gates": _gates(verdicts),
        "tools": _tools(connection)[:10],
    }


def read_groups(connection: Connection, by: str) -> "list[Row]":
    """Read the statistics by one property, the most traces first; days and weeks in order.

    Args:
        connection: The connection to the file.
        by: ``domain``, ``model``, ``day``, ``week`` (the Monday it begins on), ``state``, ``gate``
            (with the reasons for withholding) or ``tool``.
    """
    if by == "state":
        return _states(connection, _verdicts(connection))
    if by == "gate":
        return _gates(_verdicts(connection))
    if by == "tool":
        return _tools(connection)
    order = f'"{by}"' if by in _IN_TIME else f'traces DESC, "{by}"'
    return _rows(
        connection,
        f"""
        SELECT {_WEEK if by == "week" else "key"} AS "{by}", sum(traces) AS traces,
               coalesce(sum(cleared), 0) AS cleared,
               round(sum(all_scores) / sum(scores), 4) AS mean_score,
               round(max(best), 4) AS best_score,
               round(sum(all_novelties) / sum(novelties), 4) AS mean_novelty
        FROM ({_PARTS[by]}) GROUP BY 1 ORDER BY {order}
        """,  # noqa: S608 - ours
    )


def _tenths(connection: Connection) -> "list[Row]":
    return _rows(
        connection,
        """
        WITH RECURSIVE tenths(tenth) AS (SELECT 0 UNION ALL SELECT tenth + 1 FROM tenths LIMIT 10)
        SELECT tenth / 10.0 AS at_least,
               (SELECT count(*) FROM traces WHERE score >= tenth / 10.0
                AND score < iif(tenth = 9, 2.0, (tenth + 1) / 10.0)) AS traces
        FROM tenths WHERE traces
        """,
    )


def _verdicts(connection: Connection) -> "list[Row]":
    """Count the scored traces by gate, verdict and state."""
    return _rows(
        connection,
        """
        SELECT gate, verdict, state, count(*) AS traces, max(seq) AS last
        FROM traces INDEXED BY traces_verdict WHERE score IS NOT NULL
        GROUP BY gate, verdict, state
        """,
    )


def _states(connection: Connection, verdicts: "Iterable[Row]") -> "list[Row]":
    """Count traces by the states of the view ``history``, without its join with the outbox."""
    counts = Counter[str]()
    for row in verdicts:
        counts[_unqueued(row["state"], row["verdict"])] += row["traces"]
    unscored = connection.execute(
        "SELECT state, verdict, count(*) FROM traces INDEXED BY traces_score"
        " WHERE score IS NULL GROUP BY state, verdict"
    )
    for state, verdict, traces in unscored:
        counts[_unqueued(state, verdict)] += traces
    for state, traces in connection.execute("SELECT state, count(*) FROM outbox GROUP BY state"):
        counts[state] += traces
        counts["not queued"] -= traces
    for counted_as, traces in _queued_though_not_cleared(connection):
        counts["not queued"] += traces
        counts[counted_as] -= traces
    found = sorted((+counts).items(), key=lambda item: (-item[1], item[0]))
    return [{"state": state, "traces": traces} for state, traces in found]


def _unqueued(state: str, verdict: str | None) -> str:
    if state != "scored":
        return state
    return "not queued" if verdict == "forwarded" else "withheld"


def _queued_though_not_cleared(connection: Connection) -> Iterable[tuple[str, int]]:
    """Count traces in the outbox that did not clear, by the state `_unqueued` gives them."""
    return connection.execute(
        """
        SELECT iif(t.state = 'scored', 'withheld', t.state), count(*)
        FROM outbox o CROSS JOIN traces t ON t.seq = o.trace_seq
        WHERE NOT EXISTS (
          SELECT 1 FROM traces c INDEXED BY traces_cleared
          WHERE c.seq = o.trace_seq AND c.decision = 'forward')
        GROUP BY 1
        """
    )


def _gates(verdicts: "Iterable[Row]") -> "list[Row]":
    """Count forwarded and withheld traces by gate, the latest gate first."""
    kinds, last = dict[str, Counter[str]](), Counter[str]()
    for row in verdicts:
        if (gate := row["gate"]) is not None:
            kinds.setdefault(gate, Counter())[row["verdict"]] += row["traces"]
            last[gate] = max(last[gate], row["last"])
    return [
        {
            "gate": gate,
            "traces": kinds[gate].total(),
            "cleared": kinds[gate]["forwarded"],
            **{kind: kinds[gate][kind] for kind in WITHHELD},
        }
        for gate, _ in last.most_common()
    ]


def _tools(connection: Connection) -> "list[Row]":
    """Read the view ``tool_usage`` without rounding, in the order of an index."""
    return _rows(
        connection,
        """
        WITH used AS (
          SELECT tool, type, count(*) AS steps, count(latency_ms) AS timed,
                 sum(latency_ms) AS total_ms, max(latency_ms) AS max_ms
          FROM steps WHERE tool IS NOT NULL GROUP BY tool, type)
        SELECT tool, sum(iif(type = 'tool_call', steps, 0)) AS calls,
               sum(iif(type = 'error_recovery', steps, 0)) AS failures,
               sum(total_ms) / sum(timed) AS mean_ms, max(max_ms) AS max_ms
        FROM used GROUP BY tool ORDER BY calls DESC, tool
        """,
    )


def _rows(connection: Connection, sql: str) -> "list[Row]":
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]
