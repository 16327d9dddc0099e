"""The vectors of the file, as the caches of several processes share them."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kp_middleware.database import transaction
from kp_middleware.scoring._embedder import Vector


class StoredVector(NamedTuple):
    """One row: ``seq`` grows and is never used again, so that nobody misses one."""

    seq: int
    added_at_ms: int
    key: str | None
    vector: Vector


class VectorTable:
    """The rows of one file. A row with a trace lives as long as its trace, whatever caches do."""

    def __init__(self, connection: sqlite3.Connection, dimensions: int) -> None:
        self._connection = connection
        self._size_bytes = 4 * dimensions

    def newest(self, embedder: str, *, limit: int, after_ms: int | None) -> list[StoredVector]:
        """The last ``limit`` rows of an embedder added after a time, oldest first."""
        rows = self._connection.execute(
            "SELECT seq, added_at_ms, key, vector FROM vectors"
            " WHERE embedder = ? AND length(vector) = ? AND added_at_ms > ?"
            " ORDER BY seq DESC LIMIT ?",
            (embedder, self._size_bytes, -1 if after_ms is None else after_ms, limit),
        ).fetchall()
        return [*_read(reversed(rows))]

    def since(self, embedder: str, seq: int) -> Iterator[StoredVector]:
        """What was added after ``seq``, in order: by this process or any other."""
        return _read(
            self._connection.execute(
                "SELECT seq, added_at_ms, key, vector FROM vectors"
                " WHERE seq > ? AND embedder = ? AND length(vector) = ? ORDER BY seq",
                (seq, embedder, self._size_bytes),
            )
        )

    def embedders(self) -> list[str]:
        """Whose vectors there are."""
        rows = self._connection.execute("SELECT DISTINCT embedder FROM vectors").fetchall()
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


def _read(rows: Iterable[tuple[int, int, str | None, bytes]]) -> Iterator[StoredVector]:
    for seq, added_at_ms, key, blob in rows:
        yield StoredVector(seq, added_at_ms, key, np.frombuffer(blob, dtype="<f4"))
