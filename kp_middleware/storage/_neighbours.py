"""Which traces are there to compare with, and by which vectors."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._history import Row


class TraceVector(NamedTuple):
    """The embedding of one trace.

    Attributes:
        trace_seq: The trace.
        embedder: The fingerprint of the model that made it: others' cannot be compared with it.
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
        """The newest vector of a trace; None where it has none."""
        row = self._connection.execute(
            "SELECT trace_seq, embedder, vector FROM vectors WHERE trace_seq = ?"
            " ORDER BY seq DESC LIMIT 1",
            (trace_seq,),
        ).fetchone()
        return None if row is None else TraceVector(*row)

    def count(self) -> int:
        """How many vectors belong to a trace, whoever made them."""
        (count,) = self._connection.execute(
            "SELECT count(*) FROM vectors WHERE trace_seq IS NOT NULL"
        ).fetchone()
        return int(count)

    def others(self, of: TraceVector) -> Iterator[TraceVector]:
        """The vectors of all other traces that may be compared with this one, in turn."""
        rows = self._connection.execute(
            "SELECT trace_seq, embedder, vector FROM vectors"
            " WHERE trace_seq <> ? AND embedder = ? AND length(vector) = ? ORDER BY seq",
            (of.trace_seq, of.embedder, len(of.blob)),
        )
        return map(TraceVector._make, rows)

    def traces(self, trace_seqs: Sequence[int]) -> list[Row]:
        """What a list tells of these traces, in this order."""
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
