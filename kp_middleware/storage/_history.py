"""Queries for single runs: lookup by id, details, adjacent and similar runs."""

import json
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.reasons import reason_text
from kp_middleware.storage._records import Row
from kp_middleware.storage._statistics import read_totals

_ID_PREFIX = "kp:trace:"
_OUTBOX_COLUMNS = (
    "state, reason, attempts, next_attempt_at, last_error, http_status, sent_at, remote_id,"
    " registry, redactor, redactions"
)

_CANDIDATES: Final = 5
_NAMES: Final = {"@last": "seq DESC", "@best": "score DESC, seq DESC"}


class History:
    """The stored traces, newest first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def latest(self, limit: int) -> list[Row]:
        """Return the newest traces, as in the view ``history``; use `Listing` to filter."""
        rows = self._rows(
            """
            SELECT h.id, h.started_at, h.domain, h.score, h.margin, h.success, h.step_count,
                   h.tool_count, h.state, h.reason, t.reason_code, t.reason_args, h.objective
            FROM history h JOIN traces t ON t.seq = h.seq ORDER BY h.seq DESC LIMIT ?
            """,
            (limit,),
        )

        return [*map(worded, rows)]

    def count(self) -> int:
        """Count the stored traces."""
        return int(self._connection.execute("SELECT count(*) FROM traces").fetchone()[0])

    def find(self, name: str) -> int:
        """Return the ``seq`` of the trace with this id prefix, with or without ``kp:trace:``.

        The ids of parts that were joined to a trace also lead to it.

        ``@last`` is the newest trace and ``@best`` the one with the highest score.

        Raises:
            TraceNotFoundError: If no trace matches, or more than one.
        """
        order = _NAMES.get(name)
        if order:
            found = self._rows(f"SELECT seq FROM traces ORDER BY {order} LIMIT 1")  # noqa: S608 - ours
            if not found:
                raise TraceNotFoundError(f"there is no trace yet for {name}: record a run")
            return int(found[0]["seq"])
        if not name:
            raise TraceNotFoundError("type the beginning of an id, @last or @best")
        found = self._beginning(name) or self._beginning(name.lower())
        if not found:
            raise TraceNotFoundError(f"no trace starts with {name}{_remedy(name)}")
        start = _whole(name)
        if len(found) > 1 and start not in (row["id"] for row in found):
            raise TraceNotFoundError(f"several traces start with {name}: {_candidates(found)}")
        return int(found[0]["seq"])  # a complete id may be the prefix of another

    def _beginning(self, name: str) -> list[Row]:
        """Return up to six traces whose id or alias starts with a prefix, in order of that id."""
        start = _whole(name)
        return self._rows(
            """
            SELECT seq, min(id) AS id FROM (
              SELECT seq, id FROM traces WHERE id >= :start AND id < :end
              UNION ALL SELECT trace_seq, id FROM aliases WHERE id >= :start AND id < :end
            ) GROUP BY seq ORDER BY id LIMIT :most
            """,
            {"start": start, "end": start + chr(sys.maxunicode), "most": _CANDIDATES + 1},
        )

    def trace(self, seq: int) -> Row:
        """Return one trace with its columns, nearest trace, steps, outbox item and feedback."""
        (row,) = self._rows(
            """
            SELECT t.*, n.id AS nearest_id, n.objective AS nearest_objective
            FROM traces t LEFT JOIN traces n ON n.seq = t.nearest_seq WHERE t.seq = ?
            """,
            (seq,),
        )
        if row["margin"] == 0:
            row["margin"] = row["score"] - row["threshold"]  # it is rounded
        row["reason"] = reason_text(row["reason_code"], row["reason_args"])
        row["reason_args"] = json.loads(row["reason_args"] or "{}")
        row["rules"] = json.loads(row["rules"])
        row["tags"] = json.loads(row["tags"] or "[]")
        row["redactions"] = json.loads(row["redactions"])
        row["steps"] = [_present(step) for step in self._steps(seq)]
        row["outbox"] = self._outbox(seq)
        row["feedback"] = self._rows(
            "SELECT given_at, success, confidence, success_before, confidence_before FROM feedback"
            " WHERE trace_seq = ? ORDER BY seq",
            (seq,),
        )
        return row

    def document(self, seq: int) -> str | None:
        """Return the recorded ReasoningTrace as JSON; None if it was lost in a damaged file."""
        rows = self._rows("SELECT body FROM documents WHERE trace_seq = ?", (seq,))
        return str(rows[0]["body"]) if rows else None

    def stats(self) -> Row:
        """Return counts and means: in total, by domain, by state, by gate and by tool."""
        return read_totals(self._connection)

    def _steps(self, seq: int) -> list[Row]:
        steps = self._rows(
            "SELECT step_id, type, tool, mcp_server, content, input, output_summary, latency_ms,"
            " started_at, agent, call_id, parent, model, input_tokens, output_tokens,"
            " model_latency_ms"
            " FROM steps WHERE trace_seq = ? ORDER BY step_id",
            (seq,),
        )
        return [step | {"input": json.loads(step["input"] or "null")} for step in steps]

    def _outbox(self, seq: int) -> Row | None:
        rows = self._rows(f"SELECT {_OUTBOX_COLUMNS} FROM outbox WHERE trace_seq = ?", (seq,))  # noqa: S608 - ours
        return rows[0] | {"redactions": json.loads(rows[0]["redactions"])} if rows else None

    def _rows(self, sql: str, values: tuple[Any, ...] | Mapping[str, Any] = ()) -> list[Row]:
        cursor = self._connection.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def worded(row: Row) -> Row:
    """Replace the reason code of a listed row by its text, unless the outbox gives a reason."""
    args, code = row.pop("reason_args"), row["reason_code"]
    if row["reason"] == code:
        row["reason"] = reason_text(code, args)
    return row


def _present(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _whole(name: str) -> str:
    return _ID_PREFIX + name.removeprefix(_ID_PREFIX)


def _remedy(name: str) -> str:
    return "; the names that there are: @last, @best" if name.startswith("@") else ""


def _candidates(found: Sequence[Row]) -> str:
    ids = [row["id"].removeprefix(_ID_PREFIX) for row in found[:_CANDIDATES]]
    more = " …" if len(found) > _CANDIDATES else ""
    return f"give more of the id; there are {', '.join(ids)}{more}"


class AdjacentTraces(NamedTuple):
    """The ids of the traces recorded just before and just after a trace; None if there is none."""

    earlier: str | None
    later: str | None


def adjacent_traces(connection: Connection, seq: int) -> AdjacentTraces:
    """Return the traces recorded just before and just after a ``seq``."""
    found = connection.execute(
        """
        SELECT (SELECT id FROM traces WHERE seq < :seq ORDER BY seq DESC LIMIT 1),
               (SELECT id FROM traces WHERE seq > :seq ORDER BY seq LIMIT 1)
        """,
        {"seq": seq},
    )
    return AdjacentTraces._make(found.fetchone())


class TraceVector(NamedTuple):
    """The embedding of one trace.

    Attributes:
        trace_seq: The ``seq`` of the trace.
        embedder: The fingerprint of its embedding model; vectors of other models do not compare.
        blob: float32, little-endian, of length 1 or all zero.
    """

    trace_seq: int
    embedder: str
    blob: bytes


class Neighbours:
    """The vectors of the traces in one file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def vector(self, trace_seq: int) -> TraceVector | None:
        """Return the newest vector of a trace; None if it has none."""
        row = self._connection.execute(
            "SELECT trace_seq, embedder, vector FROM vectors WHERE trace_seq = ?"
            " ORDER BY seq DESC LIMIT 1",
            (trace_seq,),
        ).fetchone()
        return None if row is None else TraceVector(*row)

    def count(self) -> int:
        """Count the vectors that belong to a trace, of any embedder."""
        (count,) = self._connection.execute(
            "SELECT count(*) FROM vectors WHERE trace_seq IS NOT NULL"
        ).fetchone()
        return int(count)

    def others(self, of: TraceVector) -> Iterator[TraceVector]:
        """Yield the comparable vectors of all other traces."""
        rows = self._connection.execute(
            "SELECT trace_seq, embedder, vector FROM vectors"
            " WHERE trace_seq <> ? AND embedder = ? AND length(vector) = ? ORDER BY seq",
            (of.trace_seq, of.embedder, len(of.blob)),
        )
        return map(TraceVector._make, rows)

    def traces(self, trace_seqs: Sequence[int]) -> list[Row]:
        """Return the list columns of these traces, in the given order."""
        cursor = self._connection.execute(
            f"""
            SELECT seq, id, started_at, domain, score, success, objective FROM traces
            WHERE seq IN ({", ".join("?" * len(trace_seqs))})
            """,  # noqa: S608 - question marks
            trace_seqs,
        )
        names = [column[0] for column in cursor.description]
        rows = {row[0]: dict(zip(names, row, strict=True)) for row in cursor}
        return [rows[seq] for seq in trace_seqs]


_LIMIT_S: Final = 0.2
_OFTEN: Final = 1_000  # virtual instructions: some microseconds
_MOST: Final = 50
_DOMAINS: Final = """
    WITH RECURSIVE names(name) AS (
      SELECT min(domain) FROM traces WHERE domain >= :start
      UNION ALL SELECT (SELECT min(domain) FROM traces WHERE domain > name) FROM names
      WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name < :end LIMIT :most
"""
_TOOLS: Final = """
    WITH RECURSIVE names(name) AS (
      SELECT min(tool) FROM steps WHERE tool >= :start
      UNION ALL SELECT (SELECT min(tool) FROM steps WHERE tool > name) FROM names
      WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name < :end LIMIT :most
"""


def trace_ids(path: Path, start: str) -> list[tuple[str, str]]:
    """Return ids and objectives of the newest traces whose id starts with a prefix.

    The prefix may omit ``kp:trace:``. Like the other completions of this module, the result is
    empty if the file cannot be read in time.
    """
    with suppress(sqlite3.Error, OSError, RuntimeError), _quickly(path) as connection:
        return connection.execute(
            """
            SELECT id, objective FROM traces WHERE seq IN (
              SELECT seq FROM traces WHERE id >= :start AND id < :end ORDER BY seq DESC LIMIT :most
            ) ORDER BY seq DESC
            """,
            _between(_ID_PREFIX + start.removeprefix(_ID_PREFIX)),
        ).fetchall()
    return []


def domain_names(path: Path, start: str) -> list[str]:
    """Return the domains that start with a prefix."""
    return _names(path, _DOMAINS, start)


def tool_names(path: Path, start: str) -> list[str]:
    """Return the tools that start with a prefix."""
    return _names(path, _TOOLS, start)


def _names(path: Path, sql: str, start: str) -> list[str]:
    """Return distinct names, skipping through the index from one name to the next."""
    with suppress(sqlite3.Error, OSError, RuntimeError), _quickly(path) as connection:
        return [name for (name,) in connection.execute(sql, _between(start))]
    return []


def _between(start: str) -> dict[str, str | int]:
    return {"start": start, "end": start + chr(sys.maxunicode), "most": _MOST}


@contextmanager
def _quickly(path: Path) -> Iterator[sqlite3.Connection]:
    until = time.monotonic() + _LIMIT_S
    uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_LIMIT_S)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > until, _OFTEN)
        yield connection
