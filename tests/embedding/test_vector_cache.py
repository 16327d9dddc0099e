import sqlite3

import numpy as np
import pytest
from hypothesis import strategies as st

from kp_middleware import VectorCache
from kp_middleware.database import VectorTable, connect

ORIGIN = [0.0, 0.0]
EAST, NORTH, WEST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]
FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


@pytest.fixture(params=["memory", "file"])
def cache(request, tmp_path, clock):
    path = tmp_path / "kp.db" if request.param == "file" else None
    made = VectorCache(3, 2, ttl_ms=1000, path=path, clock=clock.ms)
    yield made
    made.close()


def test_an_empty_cache_is_like_nothing(cache):
    assert cache.max_cosine_similarity(EAST) == 0
    assert cache.nearest(EAST) is None
    assert len(cache) == 0


def test_the_nearest_is_found_with_its_key(cache):
    cache.add(EAST, "east")
    cache.add(NORTH, "north")

    assert cache.nearest([1.0, 2.0]) == (pytest.approx(2 / 5**0.5), "north")


def test_opposite_vectors_are_less_than_unrelated(cache):
    cache.add(WEST)

    assert cache.max_cosine_similarity(EAST) == -1


def test_vectors_need_not_be_of_length_one(cache):
    cache.add([1e-30, 1e-30])

    assert cache.max_cosine_similarity([1e30, 1e30]) == pytest.approx(1)


def test_a_zero_vector_is_like_nothing_but_takes_room(cache):
    cache.add(ORIGIN)

    assert cache.max_cosine_similarity(EAST) == 0
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


def test_evicting_tells_how_many_went(cache, clock):
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


def test_no_room_at_all_keeps_nothing(tmp_path):
    cache = VectorCache(0, 2, path=tmp_path / "kp.db")

    cache.add(EAST)

    assert len(cache) == 0
    cache.close()


def test_vectors_of_different_embedders_are_kept_apart(cache):
    cache.add(EAST, embedder="one")

    assert cache.nearest(EAST, embedder="other") is None
    assert len(cache) == 1


def test_a_vector_whose_embedder_was_not_said_is_compared_with_all(cache):
    cache.add(EAST, "anybody")
    cache.add(NORTH, "named", embedder="one")

    assert cache.nearest(EAST, embedder="one") == (1, "anybody")
    assert cache.nearest(NORTH) == (1, "named")


def test_opening_a_cache_without_expiry_does_not_wait_for_who_writes(tmp_path):
    VectorCache(dimensions=2, path=tmp_path / "kp.db").close()
    writer = sqlite3.connect(tmp_path / "kp.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    cache = VectorCache(dimensions=2, path=tmp_path / "kp.db")

    assert len(cache) == 0
    cache.close()
    writer.close()


def test_a_new_process_knows_at_once_how_many_there_are(tmp_path):
    first = VectorCache(dimensions=2, path=tmp_path / "kp.db")
    first.add(EAST, embedder="one")
    first.add(NORTH)

    second = VectorCache(dimensions=2, path=tmp_path / "kp.db")
    first.add(NORTH)

    assert len(second) == 3
    first.close()
    second.close()


def test_an_entry_is_as_old_for_the_process_that_loads_it(tmp_path, clock):
    first = VectorCache(dimensions=2, ttl_ms=1000, path=tmp_path / "kp.db", clock=clock.ms)
    first.add(EAST)
    first.close()
    clock.advance(0.999)
    second = VectorCache(dimensions=2, ttl_ms=1000, path=tmp_path / "kp.db", clock=clock.ms)
    alive = second.nearest(EAST)

    clock.advance(0.001)

    assert alive == (1, None)
    assert second.nearest(EAST) is None
    second.close()


def test_the_next_process_finds_the_vectors_of_the_last(tmp_path):
    first = VectorCache(dimensions=2, path=tmp_path / "kp.db")
    first.add(EAST, "east")
    first.close()

    second = VectorCache(dimensions=2, path=tmp_path / "kp.db")

    assert second.nearest(EAST) == (1, "east")
    second.close()


def test_a_smaller_cache_loads_the_newest(tmp_path):
    first = VectorCache(dimensions=2, path=tmp_path / "kp.db")
    first.add(EAST, "old")
    first.add(NORTH, "new")
    first.close()

    second = VectorCache(1, 2, path=tmp_path / "kp.db")

    assert second.nearest(EAST) == (0, "new")
    second.close()


def test_more_than_is_read_at_once_is_loaded_and_only_the_newest(tmp_path):
    vectors = np.random.default_rng(1).standard_normal((5000, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    _store(tmp_path / "kp.db", vectors)

    cache = VectorCache(4500, 3, path=tmp_path / "kp.db")

    found = [cache.nearest(vectors[number]).key for number in (500, 4595, 4596, 4999)]
    assert found == ["500", "4595", "4596", "4999"]
    assert cache.nearest(vectors[499]).key != "499"
    assert len(cache) == 4500
    cache.close()


@pytest.mark.parametrize("key", [None, "", 'said "x"\n\\', "Grüße\u2028\0", "\U0001f600"])
def test_any_key_comes_back_from_the_file(tmp_path, key):
    first = VectorCache(dimensions=2, path=tmp_path / "kp.db")
    first.add(EAST, key)
    first.close()

    second = VectorCache(dimensions=2, path=tmp_path / "kp.db")

    assert second.nearest(EAST) == (1, key)
    second.close()


def test_after_loading_a_look_up_asks_only_for_what_is_new(tmp_path):
    connection = connect(tmp_path / "kp.db")
    VectorCache(10, table=VectorTable(connection)).add(np.ones(384), "first", embedder="one")
    cache = VectorCache(10, table=VectorTable(connection))
    cache.load(embedder="one")
    asked = []
    connection.set_trace_callback(asked.append)

    found = cache.nearest(np.ones(384), embedder="one")

    assert found.key == "first"
    assert not any("OFFSET" in sql for sql in asked)
    connection.close()


def test_who_was_idle_while_others_added_much_reads_what_fits_and_no_more(tmp_path):
    idle, busy = (VectorCache(10, dimensions=2, path=tmp_path / "kp.db") for _ in range(2))
    idle.add([1, 0], "ours")
    [busy.add([1, at], str(at)) for at in range(50)]
    before, after = [], []

    idle._connection.set_trace_callback(before.append)
    idle.load(embedder="")
    idle._connection.set_trace_callback(after.append)
    found = [idle.nearest([1, at]).key for at in (39, 40, 49)]

    assert found == ["40", "40", "49"]
    assert len(idle) == 10
    assert any("OFFSET 10" in sql for sql in before)
    assert not any("OFFSET" in sql for sql in after)


def test_caches_on_one_file_see_what_the_other_adds(tmp_path):
    here, there = (VectorCache(dimensions=2, path=tmp_path / "kp.db") for _ in range(2))
    here.add(EAST, "one")
    there.add(NORTH, "two")

    assert (len(here), here.nearest(NORTH), there.nearest(EAST)) == (2, (1, "two"), (1, "one"))
    here.close()
    there.close()


def test_what_another_process_added_is_taken_once(tmp_path):
    here, there = (VectorCache(dimensions=2, path=tmp_path / "kp.db") for _ in range(2))
    here.add(EAST)
    there.add(NORTH)

    sizes = [len(here) for _ in range(3)]

    assert sizes == [2, 2, 2]
    here.close()
    there.close()


def test_vectors_that_expired_meanwhile_are_not_loaded_and_leave_the_file(tmp_path, clock):
    first = VectorCache(dimensions=2, ttl_ms=1000, path=tmp_path / "kp.db", clock=clock.ms)
    first.add(EAST)
    first.close()
    clock.advance(1)

    second = VectorCache(dimensions=2, ttl_ms=1000, path=tmp_path / "kp.db", clock=clock.ms)

    assert second.nearest(EAST) is None
    assert _stored(tmp_path / "kp.db") == 0
    second.close()


def test_what_had_expired_before_the_start_is_not_read_later_either(tmp_path, clock):
    connection = connect(tmp_path / "kp.db")
    first, second = (
        VectorCache(10, ttl_ms=1000, clock=clock.ms, table=VectorTable(connection))
        for _ in range(2)
    )
    first.add(np.ones(384))
    clock.advance(1)
    second.load(embedder="")
    asked = []
    connection.set_trace_callback(asked.append)

    found = second.nearest(np.ones(384))

    assert found is None
    assert not any("DELETE" in sql for sql in asked)
    connection.close()


def test_what_is_evicted_leaves_the_file_unless_a_trace_owns_it(tmp_path):
    path = tmp_path / "kp.db"
    connection = connect(path)
    connection.execute(
        "INSERT INTO traces (id, state, started_at, domain, objective, success, confidence,"
        " privacy_level, visibility, step_count, tool_count, recovery_count) VALUES"
        " ('owner', 'recorded', '', 'd', 'o', 1, 1, 'private', 'private', 1, 0, 0)"
    )
    connection.close()
    cache = VectorCache(1, 2, path=path)
    cache.add(EAST, "owner")
    cache.add(EAST, "nobody")

    cache.add(NORTH)

    assert _stored(path) == 2
    cache.close()


def test_a_shared_connection_takes_part_in_its_transaction(tmp_path):
    connection = connect(tmp_path / "kp.db")
    cache = VectorCache(10, table=VectorTable(connection))
    vector = np.ones(384)
    connection.execute("BEGIN IMMEDIATE")
    cache.add(vector)

    connection.rollback()
    cache.reload()

    assert cache.nearest(vector) is None
    connection.close()


def test_a_vector_of_another_length_in_the_file_is_left_alone(tmp_path):
    wide = VectorCache(dimensions=3, path=tmp_path / "kp.db")
    wide.add([1.0, 0.0, 0.0])
    wide.close()

    narrow = VectorCache(dimensions=2, path=tmp_path / "kp.db")

    assert narrow.nearest(EAST) is None
    narrow.close()


def _store(path, vectors):
    connection = connect(path)
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO vectors (key, embedder, added_at_ms, vector) VALUES (?, '', ?, ?)",
        [(f"{at}", at, vector.tobytes()) for at, vector in enumerate(vectors)],
    )
    connection.commit()
    connection.close()


def _stored(path):
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
    connection.close()
    return count
