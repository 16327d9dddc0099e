"""Unit vectors in the order in which they came, in memory that never moves.

Vectors lie dimension by dimension in blocks of 16: a product then reads at the speed of memory
with each of OpenBLAS's AVX kernels; row by row it takes up to 2.8 times as long. Live vectors are
at most two slices: one product each finds the nearest, without a copy. Dropping the oldest moves
the head and touches no vector. The blocks are zero pages that the system backs once they are
written: memory grows with use, not with the capacity.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kp_middleware.embedding._embedder import Vector

_UNSHARED: Final = 8192  # numbers: OpenBLAS may give a larger product to threads, which then spin
_WIDTH: Final = 16  # vectors in a block: narrower and wider ones were slower


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
    """Keep at most ``capacity`` unit vectors; a further one takes the place of the oldest.

    A look-up is one numpy call over many small products, each too small for OpenBLAS's threads. In
    a Python loop each would release the GIL, and a busy agent returns it after 5 ms.
    """

    def __init__(self, capacity: int, dimensions: int) -> None:
        self._capacity = capacity
        self._width = min(_WIDTH, max(4, _UNSHARED // dimensions // 4 * 4))
        blocks = -(-capacity // self._width)
        self._blocks = np.zeros((blocks, dimensions, self._width), dtype=np.float32)
        self._products = np.zeros((blocks, self._width), dtype=np.float32)
        self._similarities = self._products.reshape(-1)
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
        self._blocks[at // self._width, :, at % self._width] = unit
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
            places = np.arange(free.start, free.stop)
            self._blocks[places // self._width, :, places % self._width] = rows.units[these]
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
            blocks = slice(rows.start // self._width, -(-rows.stop // self._width))
            np.matmul(unit, self._blocks[blocks], out=self._products[blocks])
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
