"""The vectors of the file, as the caches of several processes share them."""

import json
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from kp_middleware.database import Connection, transaction
from kp_middleware.embedding._embedder import Vector
from kp_middleware.embedding._ring import Rows

_CHUNK: Final = 1024  # rows: 1.6 MB

# One row for a thousand: sqlite3 gives up the GIL for each, and a busy agent keeps it for 5 ms.
# Flat lists: one for each vector would set off the garbage collector, 25 ms with the GIL.
_SINCE: Final = f"""
    SELECT json_group_array(seq), json_group_array(added_at_ms), json_group_array(key),
           CAST(group_concat(vector, '') AS BLOB)
    FROM (SELECT seq, added_at_ms, key, vector FROM vectors
          WHERE embedder = ? AND seq > ? AND length(vector) = ? AND added_at_ms > ?
          ORDER BY seq LIMIT {_CHUNK})
"""  # noqa: S608 - a number of ours


class VectorTable:
    """The rows of one file. A row with a trace lives as long as its trace, whatever caches do."""

    def __init__(self, connection: Connection, dimensions: int) -> None:
        self._connection = connection
        self._size_bytes = 4 * dimensions

    def before_newest(self, embedder: str, limit: int) -> int:
        """The highest ``seq`` below the last ``limit`` rows of an embedder, 0 if there is none."""
        row = self._connection.execute(
            "SELECT seq FROM vectors WHERE embedder = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (embedder, limit),
        ).fetchone()
        return 0 if row is None else int(row[0])

    def since(self, embedder: str, seq: int, *, after_ms: int | None = None) -> Iterator[Rows]:
        """What an embedder's vectors are that were added after ``seq``, by any process, in order.

        Args:
            embedder: Whose vectors.
            seq: The last that is known.
            after_ms: Those added at this time or before are left out; None leaves none out.
        """
        while True:
            *facts, units = self._connection.execute(
                _SINCE, (embedder, seq, self._size_bytes, -1 if after_ms is None else after_ms)
            ).fetchone()
            if units is None:
                return
            seqs, stamps_ms, keys = map(json.loads, facts)
            unit_rows = np.frombuffer(units, dtype="<f4").reshape(len(seqs), -1)
            yield Rows(unit_rows, keys, stamps_ms, seqs)
            if len(seqs) < _CHUNK:
                return
            seq = seqs[-1]

    def embedders(self) -> list[str]:
        """Whose vectors there are: one look into the index for each of them."""
        rows = self._connection.execute(
            """
            WITH RECURSIVE names (name) AS (
              SELECT min(embedder) FROM vectors
              UNION ALL
              SELECT (SELECT min(embedder) FROM vectors WHERE embedder > name) FROM names
              WHERE name IS NOT NULL
            )
            SELECT name FROM names WHERE name IS NOT NULL
            """
        ).fetchall()
        return [embedder for (embedder,) in rows]

    def last_seq(self) -> int:
        """The highest ``seq`` there is, 0 for none."""
        (seq,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM vectors").fetchone()
        return int(seq)

    def insert(self, embedder: str, unit: Vector, *, key: str | None, added_at_ms: int) -> int:
        """Add a row, tied to the trace whose id is its key where that is stored here."""
        cursor = self._connection.execute(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " VALUES ((SELECT seq FROM traces WHERE id = ?), ?, ?, ?, ?)",
            (key, key, embedder, added_at_ms, unit.astype("<f4", copy=False).tobytes()),
        )
        assert cursor.lastrowid is not None  # noqa: S101 - an INSERT has one
        return cursor.lastrowid

    def forget(self, seqs: Iterable[int]) -> None:
        """Delete those of these rows that no trace owns."""
        with transaction(self._connection):
            self._connection.executemany(
                "DELETE FROM vectors WHERE seq = ? AND trace_seq IS NULL",
                ((seq,) for seq in seqs),
            )

    def forget_all(self, *, up_to_ms: int | None = None) -> None:
        """Delete the rows that no trace owns: all, or those added up to and at a time."""
        with transaction(self._connection):
            self._connection.execute(
                "DELETE FROM vectors WHERE trace_seq IS NULL AND (? IS NULL OR added_at_ms <= ?)",
                (up_to_ms, up_to_ms),
            )
