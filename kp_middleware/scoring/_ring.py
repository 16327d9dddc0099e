"""Unit vectors in the order in which they came, in one block of memory that never moves.

The rows that are alive are at most two slices of the block: one matrix-vector product each finds
the nearest, without a copy. Dropping the oldest moves the head and touches no row.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kp_middleware.scoring._embedder import Vector


class Neighbour(NamedTuple):
    """The most similar vector: its cosine similarity, -1 to 1, and whose it is."""

    similarity: float
    key: str | None


class Ring:
    """At most ``capacity`` unit vectors; a further one takes the place of the oldest."""

    def __init__(self, capacity: int, dimensions: int) -> None:
        self._capacity = capacity
        self._rows = np.empty((capacity, dimensions), dtype=np.float32)
        self._similarities = np.empty(capacity, dtype=np.float32)
        self._stamps_ms = np.empty(capacity, dtype=np.int64)
        self._seqs = np.empty(capacity, dtype=np.int64)
        self._keys: list[str | None] = [None] * capacity
        self._head = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def newest_ms(self) -> int:
        """When the newest row was added, or 0 if there is none."""
        return int(self._stamps_ms[(self._head + self._length - 1) % self._capacity]) if self else 0

    def append(self, unit: Vector, *, key: str | None, stamp_ms: int, seq: int) -> int | None:
        """Copy a row in; returns the ``seq`` of the row that had to go, or None."""
        if not self._capacity:
            return seq
        evicted = self.drop_oldest() if self._length == self._capacity else None
        at = (self._head + self._length) % self._capacity
        self._rows[at] = unit
        self._stamps_ms[at] = stamp_ms
        self._seqs[at] = seq
        self._keys[at] = key
        self._length += 1
        return evicted

    def drop_oldest(self) -> int:
        """Let the oldest row go; returns its ``seq``."""
        seq = int(self._seqs[self._head])
        self._keys[self._head] = None
        self._head = (self._head + 1) % self._capacity
        self._length -= 1
        return seq

    def drop_until(self, stamp_ms: int) -> list[int]:
        """Let go the rows stamped up to and at this time; returns their ``seq``, oldest first."""
        dropped = []
        while self._length and self._stamps_ms[self._head] <= stamp_ms:
            dropped.append(self.drop_oldest())
        return dropped

    def clear(self) -> None:
        """Let all rows go."""
        self._keys = [None] * self._capacity
        self._head = self._length = 0

    def nearest(self, unit: Vector) -> Neighbour | None:
        """The row most like this one, or None if there is no row."""
        found = None
        for rows in self._alive():
            similarities = self._similarities[rows]
            np.dot(self._rows[rows], unit, out=similarities)
            at = int(similarities.argmax())
            similarity = float(similarities[at])
            if found is None or similarity > found.similarity:
                found = Neighbour(similarity, self._keys[rows.start + at])
        return found

    def _alive(self) -> Iterator[slice]:
        end = self._head + self._length
        if self._length:
            yield slice(self._head, min(end, self._capacity))
        if end > self._capacity:
            yield slice(0, end - self._capacity)
