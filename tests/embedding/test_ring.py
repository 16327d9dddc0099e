"""The cache beside a plain list, across the end of its ring and the borders of its products."""

import subprocess
import sys
import tracemalloc
from itertools import count, islice
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


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    connection = connect(tmp_path_factory.mktemp("ring") / "kp.db")
    yield connection
    connection.close()


def unit_of(seed, dimensions):
    vector = np.random.default_rng(seed).standard_normal(dimensions)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


EVENT = st.tuples(
    st.integers(0, 3) | st.integers(0, 60),  # milliseconds before it
    st.sampled_from(["add", "add by another", "clear"]),
    st.integers(0, 3) | st.integers(1, 50),  # vectors
)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
@given(capacity=st.integers(0, 45), events=st.lists(EVENT, max_size=30))
@settings(deadline=None, max_examples=50)
def test_the_ring_equals_a_list(connection, dimensions, capacity, events):
    connection.rollback()  # of the last example
    connection.execute("BEGIN")
    clock, table = FakeClock(), VectorTable(connection, dimensions)
    cache, other = (
        VectorCache(size, dimensions, TTL_MS, table=table, clock=clock.ms)
        for size in (capacity, 10_000)
    )
    query, plain, numbers = unit_of(QUERY, dimensions), [], count(1)

    for age_ms, action, vectors in events:
        clock.advance(age_ms / 1000)
        if action == "clear":
            cache.clear()
            plain.clear()
        else:
            for number in islice(numbers, vectors):
                unit = unit_of(number, dimensions)
                (cache if action == "add" else other).add(unit, str(number))
                plain.append((clock.ms(), str(number), float(unit @ query)))
        plain = [entry for entry in plain if clock.ms() - entry[0] < TTL_MS]
        del plain[: max(0, len(plain) - capacity)]
        expected, found = {key: similarity for _, key, similarity in plain}, cache.nearest(query)

        assert len(cache) == len(expected)
        assert (found is None) == (not expected)
        if expected:
            highest = pytest.approx(max(expected.values()), abs=1e-6)
            assert (found.similarity, expected[found.key]) == (highest, highest)


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


def test_a_look_up_starts_no_threads_and_room_for_a_million_takes_no_memory_before_it_is_used():
    others, taken = printed_by(
        """
        VectorCache(1).add(np.ones(384))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        VectorCache(1_000_000).add(np.ones(384))
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / before
        cache, unit = VectorCache(20_000), np.ones(384, np.float32)
        for _ in range(20_000):
            cache.add(unit)
        whole_s, own_s = time.process_time(), time.thread_time()
        for _ in range(50):
            cache.nearest(unit)
        whole_s, own_s = time.process_time() - whole_s, time.thread_time() - own_s
        print(1 - own_s / whole_s, taken)
        """
    )

    assert others < 0.1  # of the processor's time; a half or more when OpenBLAS shares it out
    assert taken < 2


def printed_by(script):
    """The numbers that a new process prints."""
    imports = (
        "import resource, time, numpy as np\nfrom kp_middleware import VectorCache\nVectorCache\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", imports + dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    return map(float, done.stdout.split())
