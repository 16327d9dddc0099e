"""A bounded cache of vectors, in a ring buffer of constant size.

Vectors are stored dimension by dimension in blocks of 16: a product then runs at memory speed with
each of OpenBLAS's AVX kernels; row by row it takes up to 2.8 times as long. The blocks start as
zero pages, which the system allocates on the first write: memory grows with use.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kp_middleware.database import StoredVectors, VectorTable, connect, transaction
from kp_middleware.embedding._model import Vector

_MAX_PRODUCT: Final = 8192  # numbers: OpenBLAS may split a larger product among spinning threads
_WIDTH: Final = 16  # vectors in a block: narrower and wider blocks were slower
_ANY: Final = ""  # the embedder of vectors that are compared with all others
_BY_SIMILARITY: Final = attrgetter("similarity")


class Neighbour(NamedTuple):
    """The most similar vector: its cosine similarity, -1 to 1, and its key."""

    similarity: float
    key: str | None


class Ring:
    """A ring of at most ``capacity`` unit vectors, in which the newest replaces the oldest.

    Live vectors are at most two slices; a look-up in one is a numpy call over many products, each
    too small for OpenBLAS's threads. In a Python loop each would wait for the GIL, up to 5 ms.
    """

    def __init__(self, capacity: int, dimensions: int) -> None:
        self._capacity = capacity
        self._width = min(_WIDTH, max(4, _MAX_PRODUCT // dimensions // 4 * 4))
        blocks = -(-capacity // self._width)
        self._blocks = np.zeros((blocks, dimensions, self._width), dtype=np.float32)
        self._products = np.zeros((blocks, self._width), dtype=np.float32)
        self._similarities = self._products.reshape(-1)
        self._stamps_ms = np.zeros(capacity, dtype=np.int64)
        self._seqs = np.zeros(capacity, dtype=np.int64)
        self._keys = np.empty(capacity, dtype=object)  # not traversed by the gc
        self._head = 0
        self._length = 0
        self.seen_seq = 0  # the last row read from the file

    def __len__(self) -> int:
        return self._length

    def append(self, unit: Vector, *, key: str | None, stamp_ms: int, seq: int) -> int | None:
        """Add a row, and return the ``seq`` of the evicted row, or None."""
        if not self._capacity:
            return seq
        evicted = self._drop_oldest() if self._length == self._capacity else None
        at = (self._head + self._length) % self._capacity
        self._blocks[at // self._width, :, at % self._width] = unit
        self._stamps_ms[at] = stamp_ms
        self._seqs[at] = seq
        self._keys[at] = key
        self._length += 1
        return evicted

    def extend(self, rows: StoredVectors) -> None:
        """Add rows, only the newest if they exceed the capacity."""
        count = min(len(rows.seqs), self._capacity)
        for _ in range(self._length + count - self._capacity):
            self._drop_oldest()
        at = (self._head + self._length + np.arange(count)) % max(1, self._capacity)
        units = np.frombuffer(rows.units, "<f4").reshape(len(rows.seqs), -1)
        newest = slice(len(rows.seqs) - count, None)
        self._blocks[at // self._width, :, at % self._width] = units[newest]
        self._stamps_ms[at] = rows.stamps_ms[newest]
        self._seqs[at] = rows.seqs[newest]
        self._keys[at] = rows.keys[newest]
        self._length += count

    def expire_until(self, stamp_ms: int) -> Iterator[int]:
        """Drop the oldest rows, stamped at this time or earlier; yield the ``seq`` of each."""
        while self._length and self._stamps_ms[self._head] <= stamp_ms:
            yield self._drop_oldest()

    def nearest(self, unit: Vector) -> Neighbour | None:
        """Return the most similar row, of equals the oldest; None without rows."""
        best, end = None, self._head + self._length
        for start, stop in (self._head, min(end, self._capacity)), (0, end - self._capacity):
            if start < stop:  # else it does not wrap around, or is empty
                blocks = slice(start // self._width, -(-stop // self._width))
                np.matmul(unit, self._blocks[blocks], out=self._products[blocks])
                at = start + int(self._similarities[start:stop].argmax())
                similarity = min(1.0, max(-1.0, float(self._similarities[at])))
                if best is None or similarity > best.similarity:
                    best = Neighbour(similarity, self._keys[at])
        return best

    def _drop_oldest(self) -> int:
        seq = int(self._seqs[self._head])
        self._keys[self._head] = None
        self._head = (self._head + 1) % self._capacity
        self._length -= 1
        return seq


class VectorCache:
    """A thread-safe cache for exact nearest-neighbor search, in memory or in an SQLite file.

    Entries live while ``age < ttl_ms``; beyond ``max_elements`` the oldest is evicted first.
    Vectors are copied and normalized when they are added. Each embedder has a cache of its own, of
    ``max_elements``.

    Args:
        max_elements: Capacity for each embedder; 0 stores nothing.
        dimensions: Length of every vector's array.
        ttl_ms: Time to live of an entry, in milliseconds; None means no expiry.
        path: SQLite file of traces that stores the vectors for later and other processes; None
            means memory only.
        table: The vectors of an open file, instead of ``path``: joins its transactions.
        clock: Returns milliseconds since the epoch; None means the system's clock. If it goes
            back, entries are stamped with the latest time seen.

    Raises:
        ValueError: If a size is negative.
        DatabaseError: If ``path`` cannot be used.

    >>> cache = VectorCache(dimensions=2)
    >>> cache.max_cosine_similarity([1, 0])
    0.0
    >>> cache.add([3, 4])
    >>> round(cache.max_cosine_similarity([1, 0]), 6)
    0.6
    """

    def __init__(
        self,
        max_elements: int = 1000,
        dimensions: int = 384,
        ttl_ms: float | None = None,
        *,
        path: str | Path | None = None,
        table: VectorTable | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if max_elements < 0 or dimensions < 1 or (ttl_ms is not None and ttl_ms < 0):
            raise ValueError("max_elements and ttl_ms must be >= 0, dimensions >= 1")
        self.max_elements = max_elements
        self.dimensions = dimensions
        self.ttl_ms = ttl_ms
        self._clock = clock or (lambda: time.time() * 1000)
        self._latest_ms = 0  # never goes back: entries are in the order of their stamps
        self._lock = threading.RLock()
        self._rings: dict[str, Ring] = {}
        self._table = table
        self._connection = None if path is None else connect(path)
        self._transaction: Callable[[], Any] = nullcontext
        if self._connection is not None:
            self._transaction = partial(transaction, self._connection)
            self._table = VectorTable(self._connection, dimensions)
            if ttl_ms is not None:
                self._table.delete_unowned(up_to_ms=self._expired_ms(ttl_ms))

    def add(self, vector: ArrayLike, key: str | None = None, *, embedder: str = _ANY) -> None:
        """Add a vector.

        Args:
            vector: ``dimensions`` finite float32 numbers; a zero vector is similar to nothing.
            key: Its owner, usually the id of a trace.
            embedder: The fingerprint of the model that made it; a vector without one is compared
                with those of every embedder.

        Raises:
            ValueError: If it has another dimension, or contains NaN or infinity.
        """
        unit = self.unit(vector)
        with self._lock, self._transaction():
            self._current({embedder})
            self._append(unit, key, embedder)

    def nearest(self, query: ArrayLike, *, embedder: str | None = None) -> Neighbour | None:
        """Return the most similar live entry as ``(similarity, key)``, or None if there is none.

        Similarity is the cosine, from -1 to 1; of a zero vector it is 0. With an ``embedder``,
        entries of other embedders are left out. Raises as `add`.
        """
        unit = self.unit(query)
        with self._lock:
            names = self._names() if embedder is None else {embedder, _ANY}
            candidates = [ring.nearest(unit) for ring in self._current(names)]
        return max(filter(None, candidates), key=_BY_SIMILARITY, default=None)

    def nearest_then_add(
        self, vector: ArrayLike, key: str | None = None, *, embedder: str = _ANY
    ) -> Neighbour | None:
        """Return the `nearest` entry and `add` the vector, atomically."""
        unit = self.unit(vector)
        with self._lock, self._transaction():
            candidates = [ring.nearest(unit) for ring in self._current({embedder, _ANY})]
            best = max(filter(None, candidates), key=_BY_SIMILARITY, default=None)
            self._append(unit, key, embedder)
        return best

    def max_cosine_similarity(self, query: ArrayLike, *, embedder: str | None = None) -> float:
        """Return the similarity of the nearest entry as `nearest` does, or 0 if there is none."""
        best = self.nearest(query, embedder=embedder)
        return 0.0 if best is None else best.similarity

    def __len__(self) -> int:
        return self.size

    @property
    def size(self) -> int:
        """The number of live entries."""
        with self._lock:
            return sum(map(len, self._current(self._names())))

    def evict_expired(self) -> int:
        """Remove the expired entries, and return their number."""
        if self.ttl_ms is None:
            return 0
        with self._lock:
            return sum(self._expire(ring, self.ttl_ms) for ring in self._rings.values())

    def clear(self) -> None:
        """Remove all entries, except rows of the file that belong to a trace."""
        with self._lock:
            if self._table is not None:
                self._table.delete_unowned()
            for name in self._rings:
                self._rings[name] = Ring(self.max_elements, self.dimensions)
                self._rings[name].seen_seq = self._table.last_seq() if self._table else 0

    def load(self, *, embedder: str) -> None:
        """Load the vectors that a look-up needs, outside of a transaction.

        100,000 vectors take 0.3 s, for which a look-up within a transaction would block others.
        """
        with self._lock:
            self._current({embedder, _ANY})

    def reload(self) -> None:
        """Discard the loaded vectors, after a rollback on a shared connection."""
        with self._lock:
            self._rings.clear()

    def close(self) -> None:
        """Close the file at ``path``, if any."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def unit(self, vector: ArrayLike) -> Vector:
        """Return the vector as stored: float32, of length 1 or all zero. Raises as `add`."""
        values = np.array(vector, dtype=np.float64)
        if values.shape != (self.dimensions,):
            shape = " x ".join(map(str, values.shape))
            raise ValueError(f"expected a vector of {self.dimensions} dimensions, got {shape}")
        squares = float(values.dot(values))
        if not math.isfinite(squares):
            raise ValueError("a vector must not contain NaN or infinity")
        if squares:
            values /= math.sqrt(squares)
        return values.astype(np.float32)

    def _append(self, unit: Vector, key: str | None, embedder: str) -> None:
        ring, seq = self._rings[embedder], 0
        now_ms = self._latest_ms = max(self._latest_ms, int(self._clock()))
        if self._table is not None:
            bytes_ = unit.astype("<f4", copy=False).tobytes()
            seq = self._table.insert(embedder, bytes_, key=key, added_at_ms=now_ms)
            seen_seq = ring.seen_seq
            for other in self._rings.values():
                if other.seen_seq == seen_seq:
                    other.seen_seq = seq
        evicted = ring.append(unit, key=key, stamp_ms=now_ms, seq=seq)
        if self._table is not None and evicted is not None:
            self._table.delete([evicted])

    def _names(self) -> set[str]:
        return {*self._rings, *(self._table.embedders() if self._table else ())}

    def _current(self, embedders: set[str]) -> list[Ring]:
        """Return the rings of embedders, with the rows that other processes have added.

        Sequence numbers grow in commit order: no later row gets a lower one.
        """
        last_seq = 0 if self._table is None else self._table.last_seq()
        for name in embedders:
            if name not in self._rings:
                self._rings[name] = Ring(self.max_elements, self.dimensions)
            ring = self._rings[name]
            if self._table is not None and ring.seen_seq < last_seq:
                if last_seq - ring.seen_seq > self.max_elements:  # read only as much as fits
                    newest = self._table.seq_before_newest(name, self.max_elements)
                    ring.seen_seq = max(ring.seen_seq, newest)
                after_ms = -1 if self.ttl_ms is None else self._expired_ms(self.ttl_ms)
                for rows in self._table.since(name, ring.seen_seq, after_ms=after_ms):
                    ring.extend(rows)
                    self._latest_ms = max(self._latest_ms, *rows.stamps_ms)
                    ring.seen_seq = rows.seqs[-1]
                ring.seen_seq = max(ring.seen_seq, last_seq)
            if self.ttl_ms is not None:
                self._expire(ring, self.ttl_ms)
        return [self._rings[name] for name in embedders]

    def _expire(self, ring: Ring, ttl_ms: float) -> int:
        seqs = [*ring.expire_until(self._expired_ms(ttl_ms))]
        if seqs and self._table is not None:
            self._table.delete(seqs)
        return len(seqs)

    def _expired_ms(self, ttl_ms: float) -> int:
        self._latest_ms = max(self._latest_ms, int(self._clock()))
        return math.floor(self._latest_ms - ttl_ms)
