"""The ring beside a plain list, across its end and the borders of its products."""

import subprocess
import sys
import tracemalloc
from textwrap import dedent
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.database import StoredVectors
from kp_middleware.embedding._index import Ring

# A block has 16 vectors of 384 or 3 numbers, and 4 of 2048.
DIMENSIONS = (3, 384, 2048)
QUERY = 99


class Entry(NamedTuple):
    unit: np.ndarray
    key: str
    stamp_ms: int
    seq: int


class PlainList:
    """What the ring has to equal: the entries in a list, compared one by one."""

    def __init__(self, capacity):
        self._capacity = capacity
        self.entries = []

    def add(self, entries):
        for entry in entries:
            stamp_ms = max([entry.stamp_ms, *(old.stamp_ms for old in self.entries[-1:])])
            self.entries.append(entry._replace(stamp_ms=stamp_ms))
        return self._keep_last(self._capacity)

    def drop_until(self, stamp_ms):
        return self._keep_last(sum(entry.stamp_ms > stamp_ms for entry in self.entries))

    def clear(self):
        self.entries.clear()

    def _keep_last(self, count):
        dropped = self.entries[: max(0, len(self.entries) - count)]
        del self.entries[: len(dropped)]
        return [entry.seq for entry in dropped]

    def similarities(self, unit):
        return {entry.key: float(entry.unit @ unit) for entry in self.entries}


class Pair:
    """A ring and a list to which the same is done."""

    def __init__(self, capacity, dimensions):
        self.ring, self.plain = Ring(capacity, dimensions), PlainList(capacity)
        self._dimensions = dimensions
        self._latest_ms, self._added = 1000, 0

    def do(self, event):
        """Do it to both; whether both agree afterwards."""
        action, number = event
        return getattr(self, f"_{action}")(number) and self._agree()

    def _append(self, step_ms):
        (entry,) = self._new(1, step_ms)
        evicted = self.ring.append(
            entry.unit, key=entry.key, stamp_ms=entry.stamp_ms, seq=entry.seq
        )
        return ([] if evicted is None else [evicted]) == self.plain.add([entry])

    def _extend(self, count):
        entries = self._new(count, -3)  # the clock of another process lags behind
        units, keys, stamps_ms, seqs = zip(*entries, strict=True)
        self.ring.extend(StoredVectors(np.stack(units).tobytes(), keys, stamps_ms, seqs))
        self.plain.add(entries)
        return True

    def _expire(self, age_ms):
        until_ms = self._latest_ms - age_ms
        return self.ring.drop_until(until_ms) == self.plain.drop_until(until_ms)

    def _clear(self, _):
        self.ring.clear()
        self.plain.clear()
        return True

    def _new(self, count, step_ms):
        entries = []
        for _ in range(count):
            self._added += 1
            stamp_ms = self._latest_ms + step_ms
            self._latest_ms = max(self._latest_ms, stamp_ms) + 1
            unit = unit_of(self._added, self._dimensions)
            entries.append(Entry(unit, f"key {self._added}", stamp_ms, self._added))
        return entries

    def _agree(self):
        unit = unit_of(QUERY, self._dimensions)
        found, expected = self.ring.nearest(unit), self.plain.similarities(unit)
        if len(self.ring) != len(expected) or found is None:
            return len(self.ring) == len(expected) == 0 and found is None
        highest = max(expected.values())
        return abs(found.similarity - highest) < 1e-6 and abs(expected[found.key] - highest) < 1e-6


def unit_of(seed, dimensions):
    vector = np.random.default_rng(seed).standard_normal(dimensions)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


EVENTS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3)),
    st.tuples(st.just("extend"), st.integers(1, 50)),
    st.tuples(st.just("expire"), st.integers(0, 60)),
    st.tuples(st.just("clear"), st.none()),
)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
@given(capacity=st.integers(0, 45), events=st.lists(EVENTS, max_size=30))
def test_the_ring_equals_a_list(dimensions, capacity, events):
    pair = Pair(capacity, dimensions)

    results = [pair.do(event) for event in events]

    assert all(results)


def test_of_several_that_are_as_near_the_oldest_is_found_also_behind_the_end():
    ring = Ring(3, 384)
    for number in range(5):
        ring.append(unit_of(QUERY, 384), key=f"{number}", stamp_ms=number, seq=number)

    found = ring.nearest(unit_of(QUERY, 384))

    assert found.key == "2"


def test_a_look_up_copies_no_row():
    ring, unit = Ring(5000, 384), unit_of(QUERY, 384)
    for number in range(7500):
        ring.append(unit, key=None, stamp_ms=number, seq=number)
    ring.nearest(unit)

    tracemalloc.start()
    ring.nearest(unit)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 2048  # a row is 1536, all similarities 20,000


def test_a_look_up_starts_no_threads_of_the_algebra_library():
    others = printed_by(
        """
        n, unit = 20_000, np.ones(384, np.float32)
        ring = Ring(n, 384)
        ring.extend(StoredVectors(bytes(4 * 384 * n), (None,) * n, (0,) * n, (0,) * n))
        whole_s, own_s = time.process_time(), time.thread_time()
        for _ in range(50):
            ring.nearest(unit)
        whole_s, own_s = time.process_time() - whole_s, time.thread_time() - own_s
        print(1 - own_s / whole_s)
        """
    )

    assert others < 0.1  # of the processor's time; a half or more when OpenBLAS shares it out


def test_room_for_a_million_takes_no_memory_before_it_is_used():
    taken = printed_by(
        """
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ring = Ring(1_000_000, 384)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / before)
        """
    )

    assert taken < 2


def printed_by(script):
    """The number that a new process prints."""
    imports = "import resource, time, numpy as np\n"
    imports += "from kp_middleware.database import StoredVectors\n"
    imports += "from kp_middleware.embedding._index import Ring\n"
    done = subprocess.run(
        [sys.executable, "-c", imports + dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
