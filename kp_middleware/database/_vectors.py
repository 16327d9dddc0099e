"""The vectors in the file."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kp_middleware.database._file import Connection, transaction
from kp_middleware.database._queries import DISTINCT, Queries, beginning_with

_CHUNK: Final = 1024  # rows: 1.6 MB

# One row for a thousand: sqlite3 releases the GIL for each, and a busy agent keeps it for 5 ms.
# Flat lists: one for each vector would trigger the garbage collector, 25 ms with the GIL.
_SINCE: Final = f"""
    SELECT json_group_array(seq), json_group_array(added_at_ms), json_group_array(key),
           CAST(group_concat(vector, '') AS BLOB)
    FROM (SELECT seq, added_at_ms, key, vector FROM vectors
          WHERE embedder = ? AND seq > ? AND length(vector) = ? AND added_at_ms > ?
          ORDER BY seq LIMIT {_CHUNK})
"""


class StoredVectors(NamedTuple):
    """Some vectors as columns, oldest first."""

    units: bytes  # float32, little-endian, one after the other, of length 1 or all zero
    keys: Sequence[str | None]
    stamps_ms: Sequence[int]  # since the epoch
    seqs: Sequence[int]


class VectorTable(Queries):
    """The vectors of one file. A cache never deletes a row that a trace owns."""

    def __init__(self, connection: Connection, dimensions: int = 384) -> None:
        super().__init__(connection)
        self._size_bytes = 4 * dimensions

    def before_newest(self, embedder: str, limit: int) -> int:
        """Return the ``seq`` of the row before an embedder's last ``limit``, 0 if there is none."""
        seq = self._value(
            "SELECT seq FROM vectors WHERE embedder = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (embedder, limit),
        )
        return int(seq or 0)

    def since(
        self, embedder: str, seq: int, *, after_ms: int | None = None
    ) -> Iterator[StoredVectors]:
        """Yield an embedder's vectors after a ``seq``, of any process, in order and in chunks."""
        while True:
            *facts, units = self._row(
                _SINCE, (embedder, seq, self._size_bytes, -1 if after_ms is None else after_ms)
            )
            if units is None:
                return
            seqs, stamps_ms, keys = map(json.loads, facts)
            yield StoredVectors(units, keys, stamps_ms, seqs)
            if len(seqs) < _CHUNK:
                return
            seq = seqs[-1]

    def embedders(self) -> list[str]:
        """Return the embedders that have vectors, with one index look-up for each."""
        sql = DISTINCT.format(table="vectors", column="embedder")
        return self._column(sql, beginning_with("", most=-1))

    def last_seq(self) -> int:
        """Return the highest ``seq``, 0 if there is none."""
        return int(self._value("SELECT coalesce(max(seq), 0) FROM vectors"))

    def insert(self, embedder: str, unit: bytes, *, key: str | None, added_at_ms: int) -> int:
        """Insert a row, owned by the trace with the key as id if stored, and return its ``seq``."""
        cursor = self._run(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " VALUES ((SELECT seq FROM traces WHERE id = ?), ?, ?, ?, ?)",
            (key, key, embedder, added_at_ms, unit),
        )
        assert cursor.lastrowid is not None  # noqa: S101 - an INSERT has one
        return cursor.lastrowid

    def forget(self, seqs: Iterable[int]) -> None:
        """Delete these rows, except those that a trace owns."""
        with transaction(self._connection):
            self._connection.executemany(
                "DELETE FROM vectors WHERE seq = ? AND trace_seq IS NULL",
                ((seq,) for seq in seqs),
            )

    def forget_all(self, *, up_to_ms: int | None = None) -> None:
        """Delete the rows that no trace owns: all, or those added at this time or earlier."""
        with transaction(self._connection):
            self._run(
                "DELETE FROM vectors WHERE trace_seq IS NULL AND (? IS NULL OR added_at_ms <= ?)",
                (up_to_ms, up_to_ms),
            )
