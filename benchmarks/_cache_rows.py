"""The cost of the vector cache, beside reading the same memory once."""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kp_middleware import VectorCache
from kp_middleware.database import VectorTable, connect, transaction
from kp_middleware.embedding._index import Ring

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
SCAN_TARGET: Final = "≤ 1.35 x"
DIMENSIONS: Final = 384
ROUNDS: Final = 30
EMBEDDER: Final = "benchmark"
STORED: Final = 100_000
EVICTING_BYTES: Final = 64_000_000  # more than the processor's caches hold


class Row(NamedTuple):
    """One line of the table, in microseconds."""

    what: str
    ours_us: float
    floor_us: float
    floor: str
    target: str


def fastest_us(*candidates: Callable[[], object], repeat: int = 1) -> list[float]:
    """Return each candidate's fastest round, in microseconds a call; they take turns."""
    best = [float("inf")] * len(candidates)
    for _ in range(ROUNDS):
        for number, candidate in enumerate(candidates):
            started = time.perf_counter()
            for _ in range(repeat):
                candidate()
            best[number] = min(best[number], (time.perf_counter() - started) / repeat * 1e6)
    return best


def cache_rows() -> Iterator[Row]:
    """Measure all rows; a million vectors need 1.6 GB."""
    for size in SIZES:
        ring = _full_ring(size)
        yield from _scan_rows(ring, size)
        yield from _change_rows(ring, size)
        del ring
    yield _whole_add_row()
    yield from _start_up_rows()


def _scan_rows(ring: Ring, size: int) -> Iterator[Row]:
    """Measure ours, and the same vectors row by row, beside reading them once."""
    memory, unit = ring._blocks, _units(1)[0]
    rows = _RowByRow(memory) if size <= STORED else None
    repeat = min(50, max(1, 50_000 // size))
    read, nearest, *other = fastest_us(
        lambda: _read(memory),
        lambda: ring.nearest(unit),
        *([] if rows is None else [lambda: rows.nearest(unit)]),
        repeat=repeat,
    )
    yield Row(f"nearest of {size:,}", nearest, read, "reading them once", SCAN_TARGET)
    for other_us in other:
        yield Row("  row by row", other_us, read, "reading them once", "")
    if size == SIZES[0]:
        others = np.ones(EVICTING_BYTES // 4, dtype=np.float32)
        cold = min(_after(others.sum, lambda: ring.nearest(unit)) for _ in range(ROUNDS))
        yield Row("  after 64 MB of other memory", cold, read, "reading them", "≤ 250 µs")


class _RowByRow:
    """The layout that was not chosen: each vector's numbers side by side, products of 20."""

    def __init__(self, blocks: np.ndarray) -> None:
        vectors = blocks.transpose(0, 2, 1).reshape(-1, DIMENSIONS)
        self._vectors = vectors[: len(vectors) // 20 * 20].reshape(-1, 20, DIMENSIONS)
        self._products = np.zeros(self._vectors.shape[:2], dtype=np.float32)

    def nearest(self, unit: np.ndarray) -> int:
        np.matmul(self._vectors, unit, out=self._products)
        return int(self._products.argmax())


def _change_rows(ring: Ring, size: int) -> Iterator[Row]:
    unit, stamps_ms = _units(1)[0], iter(range(2 * size, 2**62))

    def add() -> None:
        ring.append(unit, key="key", stamp_ms=next(stamps_ms), seq=1)

    (added,) = fastest_us(add, repeat=20)
    yield Row(f"  add to a full ring of {size:,}", added, 0, "", "≤ 2 µs")
    oldest_ms = iter(range(int(ring._stamps_ms[ring._head]), 2**62))
    (expired,) = fastest_us(lambda: ring.expire_until(next(oldest_ms)), repeat=10)
    yield Row(f"  expire the oldest of {size:,}", expired, 0, "", "≤ 5 µs")
    half_ms = next(oldest_ms) + size // 2
    many = _after(lambda: None, lambda: ring.expire_until(half_ms))
    yield Row(f"  expire half of {size:,} at once", many, 0, "", "")


def _whole_add_row() -> Row:
    cache, vector = VectorCache(), _units(1)[0]
    whole, unit = fastest_us(lambda: cache.add(vector), lambda: cache.unit(vector), repeat=50)
    return Row("VectorCache.add, in memory", whole, unit, "making it a unit vector", "")


def _start_up_rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kp.db"
        _store(path)
        for size in (SIZES[0], STORED):
            with closing(connect(path)) as connection:
                ours = min(_load_us(connection, size) for _ in range(5))
                sql = "SELECT vector FROM vectors ORDER BY seq DESC LIMIT ?"
                floor = min(_fetch_us(connection, sql, size) for _ in range(5))
            target = "≤ 500,000 µs" if size == STORED else ""
            yield Row(f"load {size:,} of {STORED:,}", ours, floor, "fetching the BLOBs", target)


def _load_us(connection: sqlite3.Connection, size: int) -> float:
    cache = VectorCache(size, table=VectorTable(connection))
    return _after(lambda: None, lambda: cache.load(embedder=EMBEDDER))


def _fetch_us(connection: sqlite3.Connection, sql: str, size: int) -> float:
    return _after(lambda: None, lambda: connection.execute(sql, (size,)).fetchall())


def _store(path: Path) -> None:
    with closing(connect(path)) as connection, transaction(connection):
        for first in range(0, STORED, 10_000):
            connection.executemany(
                "INSERT INTO vectors (key, embedder, added_at_ms, vector) VALUES (?, ?, ?, ?)",
                [
                    (f"kp:trace:{first + at:036}", EMBEDDER, first + at, unit.tobytes())
                    for at, unit in enumerate(_units(10_000))
                ],
            )


def _full_ring(size: int) -> Ring:
    """Return a ring with its oldest row at a third: every look-up takes two slices."""
    ring, block = Ring(size, DIMENSIONS), _units(1_000)
    for first in range(0, size + size // 3, 1_000):
        for at, unit in enumerate(block, start=first):
            ring.append(unit, key="key", stamp_ms=at, seq=at)
    return ring


def _units(count: int) -> np.ndarray:
    units = np.random.default_rng(count).standard_normal((count, DIMENSIONS), dtype=np.float32)
    return units / np.linalg.norm(units, axis=1, keepdims=True)


def _read(memory: np.ndarray) -> float:
    flat = memory.reshape(-1)
    step = 2**19
    return sum(
        float(np.dot(part, part))
        for part in (flat[at : at + step] for at in range(0, flat.size, step))
    )


def _after(before: Callable[[], object], timed: Callable[[], object]) -> float:
    before()
    started = time.perf_counter()
    timed()
    return (time.perf_counter() - started) * 1e6
