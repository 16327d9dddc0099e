import sqlite3

import numpy as np
import pytest

from kp_middleware import VectorCache
from kp_middleware.database import VectorTable

ORIGIN = [0.0, 0.0]
EAST, NORTH, WEST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]


@pytest.fixture
def open_cache(db, clock):
    """Opens caches on one file, as several processes do, until the test ends."""
    opened = []

    def open_(max_elements=10, dimensions=2, **how):
        opened.append(VectorCache(max_elements, dimensions, path=db, clock=clock.ms, **how))
        return opened[-1]

    yield open_
    [cache.close() for cache in opened]


@pytest.fixture(params=["memory", "file"])
def cache(request, open_cache, clock):
    if request.param == "file":
        return open_cache(3, ttl_ms=1000)
    return VectorCache(3, 2, ttl_ms=1000, clock=clock.ms)


def test_an_empty_cache_is_like_nothing(cache):
    assert cache.max_cosine_similarity(EAST) == 0
    assert cache.nearest(EAST) is None
    assert len(cache) == 0


def test_the_nearest_is_found_with_its_key(cache):
    cache.add(EAST, "east")
    cache.add(NORTH, "north")

    assert cache.nearest([1.0, 2.0]) == (pytest.approx(2 / 5**0.5), "north")


@pytest.mark.parametrize(
    ("added", "query", "similarity"),
    [(WEST, EAST, -1), ([1e-30, 1e-30], [1e30, 1e30], 1), (ORIGIN, EAST, 0)],
    ids=["opposite", "of any length", "zero"],
)
def test_similarity_is_the_cosine(cache, added, query, similarity):
    cache.add(added)

    assert cache.max_cosine_similarity(query) == pytest.approx(similarity)
    assert len(cache) == 1


def test_beyond_its_size_the_oldest_goes(cache):
    cache.add(EAST)
    cache.add(NORTH)
    cache.add(NORTH)
    cache.add(NORTH)

    assert cache.max_cosine_similarity(EAST) == 0
    assert cache.size == 3


@pytest.mark.parametrize(
    ("age_s", "size"), [(0.999, 1), (1.0, 0)], ids=["just alive", "exactly as old"]
)
def test_an_entry_lives_while_its_age_is_less_than_its_time(cache, clock, age_s, size):
    cache.add(EAST)

    clock.advance(age_s)

    assert cache.size == size


def test_a_clock_that_goes_back_keeps_the_order(cache, clock):
    cache.add(EAST)
    clock.advance(-50)
    cache.add(NORTH)

    clock.advance(51)

    assert len(cache) == 0


def test_evicting_returns_how_many_expired(cache, clock):
    cache.add(EAST)
    cache.add(NORTH)
    clock.advance(2)

    assert cache.evict_expired() == 2


def test_clearing_forgets_everything(cache):
    cache.add(EAST)

    cache.clear()
    cache.add(NORTH, "north")

    assert cache.nearest(EAST) == (0, "north")
    assert len(cache) == 1


def test_what_the_caller_does_to_an_array_later_changes_nothing(cache):
    array = np.array(EAST)
    cache.add(array)

    array[:] = NORTH

    assert cache.max_cosine_similarity(EAST) == 1


@pytest.mark.parametrize(
    "vector",
    [[1.0], [1.0, 2.0, 3.0], [], [[1.0, 2.0]], 1.0],
    ids=["1", "3", "0", "1 x 2", "scalar"],
)
@pytest.mark.parametrize("method", ["add", "nearest", "max_cosine_similarity"])
def test_another_dimension_is_an_error_that_names_both(cache, method, vector):
    with pytest.raises(ValueError, match="expected a vector of 2 dimensions, got"):
        getattr(cache, method)(vector)


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=["NaN", "infinity"])
@pytest.mark.parametrize("method", ["add", "nearest"])
def test_what_is_no_number_is_an_error(cache, method, number):
    with pytest.raises(ValueError, match="NaN or infinity"):
        getattr(cache, method)([1.0, number])


@pytest.mark.parametrize(
    "sizes", [{"max_elements": -1}, {"dimensions": 0}, {"ttl_ms": -1}], ids=["room", "width", "ttl"]
)
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match=">="):
        VectorCache(**sizes)


def test_no_room_at_all_keeps_nothing(open_cache):
    cache = open_cache(0)

    cache.add(EAST)

    assert len(cache) == 0


def test_vectors_of_different_embedders_are_kept_apart(cache):
    cache.add(EAST, embedder="one")

    assert cache.nearest(EAST, embedder="other") is None
    assert len(cache) == 1


def test_a_vector_without_an_embedder_is_compared_with_all(cache):
    cache.add(EAST, "anybody")
    cache.add(NORTH, "named", embedder="one")

    assert cache.nearest(EAST, embedder="one") == (1, "anybody")
    assert cache.nearest(NORTH) == (1, "named")


def test_opening_a_cache_without_expiry_does_not_wait_for_who_writes(open_cache, db):
    open_cache()
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    assert len(open_cache()) == 0
    writer.close()


def test_caches_on_one_file_see_what_the_others_add_once(open_cache):
    here, there = open_cache(), open_cache()
    here.add(EAST, "one", embedder="one")
    there.add(NORTH, "two")

    assert [len(here) for _ in range(3)] == [2, 2, 2]
    assert (here.nearest(NORTH), there.nearest(EAST)) == ((1, "two"), (1, "one"))
    assert len(open_cache()) == 2


def test_an_entry_is_as_old_for_the_process_that_loads_it(open_cache, clock):
    open_cache(ttl_ms=1000).add(EAST)
    clock.advance(0.999)
    second = open_cache(ttl_ms=1000)
    alive = second.nearest(EAST)

    clock.advance(0.001)

    assert alive == (1, None)
    assert second.nearest(EAST) is None


def test_more_than_is_read_at_once_is_loaded_and_only_the_newest(open_cache, connection):
    vectors = np.random.default_rng(1).standard_normal((5000, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO vectors (key, embedder, added_at_ms, vector) VALUES (?, '', ?, ?)",
        [(f"{at}", at, vector.tobytes()) for at, vector in enumerate(vectors)],
    )
    connection.commit()

    cache = open_cache(4500, 3)

    found = [cache.nearest(vectors[number]).key for number in (500, 4595, 4596, 4999)]
    assert found == ["500", "4595", "4596", "4999"]
    assert cache.nearest(vectors[499]).key != "499"
    assert len(cache) == 4500


@pytest.mark.parametrize("key", [None, "", 'said "x"\n\\', "Grüße\u2028\0", "\U0001f600"])
def test_any_key_comes_back_from_the_file(open_cache, key):
    open_cache().add(EAST, key)

    assert open_cache().nearest(EAST) == (1, key)


def test_after_loading_a_look_up_asks_only_for_what_is_new(connection):
    VectorCache(10, table=VectorTable(connection)).add(np.ones(384), "first", embedder="one")
    cache = VectorCache(10, table=VectorTable(connection))
    cache.load(embedder="one")
    asked = []
    connection.set_trace_callback(asked.append)

    found = cache.nearest(np.ones(384), embedder="one")

    assert found.key == "first"
    assert not any("OFFSET" in sql for sql in asked)


def test_who_was_idle_while_others_added_much_reads_what_fits_and_no_more(
    open_cache, connection, clock
):
    idle, busy = VectorCache(10, 2, table=VectorTable(connection, 2), clock=clock.ms), open_cache()
    idle.add([1, 0], "ours")
    [busy.add([1, at], str(at)) for at in range(50)]
    before, after = [], []

    connection.set_trace_callback(before.append)
    idle.load(embedder="")
    connection.set_trace_callback(after.append)
    found = [idle.nearest([1, at]).key for at in (39, 40, 49)]

    assert found == ["40", "40", "49"]
    assert len(idle) == 10
    assert any("OFFSET 10" in sql for sql in before)
    assert not any("OFFSET" in sql for sql in after)


def test_vectors_that_expired_meanwhile_are_not_loaded_and_leave_the_file(
    open_cache, connection, clock
):
    open_cache(ttl_ms=1000).add(EAST)
    clock.advance(1)

    assert open_cache(ttl_ms=1000).nearest(EAST) is None
    assert count_in(connection) == 0


def test_what_had_expired_before_the_start_is_not_read_later_either(connection, clock):
    first, second = (
        VectorCache(10, ttl_ms=1000, clock=clock.ms, table=VectorTable(connection))
        for _ in range(2)
    )
    first.add(np.ones(384))
    clock.advance(1)
    asked = []
    connection.set_trace_callback(asked.append)
    second.load(embedder="")

    found = second.nearest(np.ones(384))

    assert found is None
    assert not any("DELETE" in sql for sql in asked)


def test_what_is_evicted_leaves_the_file_unless_a_trace_owns_it(open_cache, connection):
    connection.execute(
        "INSERT INTO traces (id, state, started_at, domain, objective, success, confidence,"
        " privacy_level, visibility, step_count, tool_count, recovery_count) VALUES"
        " ('owner', 'recorded', '', 'd', 'o', 1, 1, 'private', 'private', 1, 0, 0)"
    )
    cache = open_cache(1)

    cache.add(EAST, "owner")
    cache.add(EAST, "nobody")
    cache.add(NORTH)

    assert count_in(connection) == 2


def test_a_shared_connection_takes_part_in_its_transaction(connection):
    cache = VectorCache(10, table=VectorTable(connection))
    connection.execute("BEGIN IMMEDIATE")
    cache.add(np.ones(384))

    connection.rollback()
    cache.reload()

    assert cache.nearest(np.ones(384)) is None


def test_a_vector_of_another_length_in_the_file_is_left_alone(open_cache):
    open_cache(dimensions=3).add([1.0, 0.0, 0.0])

    assert open_cache(dimensions=2).nearest(EAST) is None


def count_in(connection):
    return connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
