"""The cache beside a plain list, across the end of its ring and the borders of its products."""

import subprocess
import sys
import tracemalloc
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_middleware import VectorCache
from kp_middleware.database import VectorTable, connect
from kp_middleware.testing import FakeClock

# A block has 16 vectors of 384 or 3 numbers, and 4 of 2048.
DIMENSIONS = (3, 384, 2048)
QUERY = 99
TTL_MS = 60


class Pair:
    """A cache and a list of stamps and vectors to which the same is done."""

    def __init__(self, capacity, dimensions, connection):
        self._clock = FakeClock()
        table = VectorTable(connection, dimensions)
        sizes = {"dimensions": dimensions, "ttl_ms": TTL_MS, "table": table}
        self._cache = VectorCache(capacity, **sizes, clock=self._clock.ms)
        self._other = VectorCache(10_000, **sizes, clock=self._clock.ms)
        self._capacity, self._dimensions = capacity, dimensions
        self._plain, self._added = [], 0

    def do(self, event):
        """Do it to both; whether both agree afterwards."""
        action, number = event
        getattr(self, f"_{action}")(number)
        return self._agree()

    def _append(self, step_ms):
        self._clock.advance(step_ms / 1000)
        self._add(self._cache, 1)

    def _extend(self, count):
        self._add(self._other, count)

    def _expire(self, age_ms):
        self._clock.advance(age_ms / 1000)

    def _clear(self, _):
        self._cache.clear()
        self._plain.clear()

    def _add(self, cache, count):
        for _ in range(count):
            self._added += 1
            vector, key = unit_of(self._added, self._dimensions), f"key {self._added}"
            cache.add(vector, key)
            self._plain.append((self._clock.ms(), key, vector))

    def _agree(self):
        alive = [entry for entry in self._plain if self._clock.ms() - entry[0] < TTL_MS]
        self._plain[:] = alive[len(alive) - min(len(alive), self._capacity) :]
        query = unit_of(QUERY, self._dimensions)
        found = self._cache.nearest(query)
        expected = {key: float(vector @ query) for _, key, vector in self._plain}
        if found is None:
            return len(self._cache) == len(expected) == 0
        highest = max(expected.values(), default=-2)
        return (
            len(self._cache) == len(expected)
            and abs(found.similarity - highest) < 1e-6
            and abs(expected[found.key] - highest) < 1e-6
        )


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    connection = connect(tmp_path_factory.mktemp("ring") / "kp.db")
    yield connection
    connection.close()


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
@settings(deadline=None, max_examples=50)
def test_the_ring_equals_a_list(connection, dimensions, capacity, events):
    connection.execute("BEGIN")
    pair = Pair(capacity, dimensions, connection)

    results = [pair.do(event) for event in events]
    connection.rollback()

    assert all(results)


def test_of_several_that_are_as_near_the_oldest_is_found_also_behind_the_end():
    cache = VectorCache(3)
    for number in range(5):
        cache.add(unit_of(QUERY, 384), f"{number}")

    found = cache.nearest(unit_of(QUERY, 384))

    assert found.key == "2"


def test_a_look_up_copies_none_of_the_rows():
    cache, unit = VectorCache(5000), unit_of(QUERY, 384)
    for _ in range(7500):
        cache.add(unit)
    cache.nearest(unit)

    tracemalloc.start()
    cache.nearest(unit)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < 16_000  # of the query; all similarities are 20,000, a block 24,576


def test_a_look_up_starts_no_threads_of_the_algebra_library():
    others = printed_by(
        """
        cache, unit = VectorCache(20_000), np.ones(384, np.float32)
        for _ in range(20_000):
            cache.add(unit)
        whole_s, own_s = time.process_time(), time.thread_time()
        for _ in range(50):
            cache.nearest(unit)
        whole_s, own_s = time.process_time() - whole_s, time.thread_time() - own_s
        print(1 - own_s / whole_s)
        """
    )

    assert others < 0.1  # of the processor's time; a half or more when OpenBLAS shares it out


def test_room_for_a_million_takes_no_memory_before_it_is_used():
    taken = printed_by(
        """
        VectorCache(1).add(np.ones(384))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        VectorCache(1_000_000).add(np.ones(384))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / before)
        """
    )

    assert taken < 2


def printed_by(script):
    """The number that a new process prints."""
    imports = (
        "import resource, time, numpy as np\nfrom kp_middleware import VectorCache\nVectorCache\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", imports + dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
