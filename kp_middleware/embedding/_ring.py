"""Unit vectors in the order in which they came, in one block of memory that never moves.

The rows that are alive are at most two slices of the block: one product each finds the nearest,
without a copy. Dropping the oldest moves the head and touches no row. The block is zero pages that
the system gives memory when they are written: it grows with use, not with the capacity.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kp_middleware.embedding._embedder import Vector

_UNSHARED: Final = 8192  # numbers: an OpenBLAS gives a larger product to threads, which then spin


class Neighbour(NamedTuple):
    """The most similar vector: its cosine similarity, -1 to 1, and whose it is."""

    similarity: float
    key: str | None


class Rows(NamedTuple):
    """Rows as columns, oldest first.

    Attributes:
        units: float32, shape ``(rows, dimensions)``, each of length 1 or all zero.
        keys: Whose each is.
        stamps_ms: When each was added, in milliseconds since the epoch.
        seqs: Their places in a file; 0 without one.
    """

    units: NDArray[np.float32]
    keys: Sequence[str | None]
    stamps_ms: Sequence[int]
    seqs: Sequence[int]


class Ring:
    """At most ``capacity`` unit vectors; a further one takes the place of the oldest.

    A product is one call of numpy over many small ones, each too small for OpenBLAS's threads. In
    a loop of Python each would give up the GIL, and a busy agent give it back after 5 ms.
    """

    def __init__(self, capacity: int, dimensions: int) -> None:
        self._capacity = capacity
        self._run = max(4, _UNSHARED // dimensions // 4 * 4)  # OpenBLAS takes four rows at a time
        runs = -(-capacity // self._run)
        self._runs = np.zeros((runs, self._run, dimensions), dtype=np.float32)
        self._products = np.zeros((runs, self._run), dtype=np.float32)
        self._units = self._runs.reshape(runs * self._run, dimensions)
        self._similarities = self._products.reshape(runs * self._run)
        self._stamps_ms = np.zeros(capacity, dtype=np.int64)
        self._seqs = np.zeros(capacity, dtype=np.int64)
        self._keys = np.empty(capacity, dtype=object)  # the garbage collector walks through lists
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
        at = (self._head + self._length) % self._capacity
        evicted = None
        if self._length == self._capacity:
            evicted = int(self._seqs[at])
            self._drop(1)
        self._units[at] = unit
        self._stamps_ms[at] = stamp_ms
        self._seqs[at] = seq
        self._keys[at] = key
        self._length += 1
        return evicted

    def extend(self, rows: Rows) -> None:
        """Copy many rows in, of which none is stamped earlier than those before it."""
        count = min(len(rows.seqs), self._capacity)
        stamps_ms = np.maximum.accumulate([self.newest_ms, *rows.stamps_ms])
        self._drop(max(0, self._length + count - self._capacity))
        taken = len(rows.seqs) - count
        for free in self._slices(self._head + self._length, count):
            these = slice(taken, taken := taken + free.stop - free.start)
            self._units[free] = rows.units[these]
            self._stamps_ms[free] = stamps_ms[1:][these]
            self._seqs[free] = rows.seqs[these]
            self._keys[free] = rows.keys[these]
        self._length += count

    def drop_until(self, stamp_ms: int) -> list[int]:
        """Let go the rows stamped up to and at this time; returns their ``seq``, oldest first."""
        if not self or self._stamps_ms[self._head] > stamp_ms:
            return []
        dropped: list[int] = []
        for rows in self._slices(self._head, self._length):
            count = int(self._stamps_ms[rows].searchsorted(stamp_ms, side="right"))
            gone = slice(rows.start, rows.start + count)
            dropped += self._seqs[gone].tolist()
            self._keys[gone] = None
        self._drop(len(dropped))
        return dropped

    def clear(self) -> None:
        """Let all rows go."""
        self._keys[:] = None
        self._head = self._length = 0

    def nearest(self, unit: Vector) -> Neighbour | None:
        """The row most like this one, the oldest of several, or None if there is no row."""
        found = None
        for rows in self._slices(self._head, self._length):
            runs = slice(rows.start // self._run, -(-rows.stop // self._run))
            np.matmul(self._runs[runs], unit, out=self._products[runs])
            at = rows.start + int(self._similarities[rows].argmax())
            similarity = float(self._similarities[at])
            if found is None or similarity > found.similarity:
                found = Neighbour(similarity, self._keys[at])
        return found

    def _drop(self, count: int) -> None:
        self._head = (self._head + count) % max(1, self._capacity)
        self._length -= count

    def _slices(self, start: int, count: int) -> Iterator[slice]:
        """Where so many rows lie from a place on: one slice, or two where they pass the end."""
        start %= max(1, self._capacity)
        end = start + count
        if count:
            yield slice(start, min(end, self._capacity))
        if end > self._capacity:
            yield slice(0, end - self._capacity)
