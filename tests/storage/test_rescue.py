"""What can be read of a damaged file stays, and a copy of it as it was."""

import fcntl
import os
import stat
from contextlib import closing

import pytest
from stored_runs import kept

from kp_middleware.database import connect
from kp_middleware.errors import DatabaseError
from kp_middleware.storage import TraceStore, rescue
from kp_middleware.storage._rescue import _kept_open
from kp_middleware.storage._resting_connection import _left_open

PAGE = 4096
TABLES = ("traces", "documents", "steps", "vectors")


@pytest.fixture(autouse=True)
def _nothing_left_open():
    """What a process keeps open for good, this one shall not take to the next test."""
    yield
    while _left_open:
        _left_open.pop().close()
    while _kept_open:
        os.close(_kept_open.pop())


@pytest.fixture
def full(db):
    """A file with two hundred traces."""
    with closing(connect(db)) as connection:
        store = TraceStore(connection, scorer="test")
        [kept(store, f"objective {number} " + "x" * 400, score=0.5) for number in range(200)]
        connection.execute(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " SELECT seq, id, 'e', seq, zeroblob(1536) FROM traces"
        )
    return db


def overwrite(path, first, last, byte=0xA5):
    with path.open("r+b") as file:
        file.seek(first)
        file.write(bytes([byte]) * (last - first))


def middle_of(path):
    pages = path.stat().st_size // PAGE
    return pages // 3 * PAGE, (pages // 3 + 3) * PAGE


def rows(path):
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO traces_fts (traces_fts) VALUES ('integrity-check')")
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in TABLES
        }


def test_middle_pages_that_were_overwritten_cost_what_was_on_them(full):
    overwrite(full, *middle_of(full))
    before = full.read_bytes()

    found = rescue(full)

    assert 150 < found.traces <= 200
    assert rows(full)["traces"] == found.traces
    assert found.aside.read_bytes() == before
    assert found.aside.name.startswith("kp.db.corrupt-2")
    assert stat.S_IMODE(found.aside.stat().st_mode) == 0o600


def test_half_a_file_keeps_the_half_that_is_there(full):
    os.truncate(full, full.stat().st_size // 2)

    found = rescue(full)

    assert found.traces == rows(full)["traces"]


@pytest.mark.parametrize("start", [PAGE, 5 * PAGE, 40 * PAGE, 100 * PAGE])
def test_wherever_it_is_damaged_the_file_can_be_used_again(full, start):
    overwrite(full, start, start + 2 * PAGE)

    assert rescue(full) is not None

    rows(full)


def test_nothing_but_a_header_leaves_an_empty_file_that_works(full):
    overwrite(full, 100, full.stat().st_size)

    found = rescue(full)

    assert (found.traces, rows(full)["traces"]) == (0, 0)


def test_the_wal_is_set_aside_too(full):
    with closing(connect(full)) as connection:
        connection.execute("INSERT INTO meta VALUES ('in', 'the WAL')")
        overwrite(full, *middle_of(full))

        found = rescue(full)

    assert found.aside.with_name(f"{found.aside.name}-wal").stat().st_size > 0


def test_others_who_have_it_open_go_on_with_what_is_left(full):
    with closing(connect(full)) as other:
        (before,) = other.execute("SELECT count(*) FROM traces").fetchone()
        overwrite(full, *middle_of(full))
        found = rescue(full)

        kept(TraceStore(other, scorer="test"), "after")

    assert before == 200
    assert rows(full)["traces"] == found.traces + 1


def test_a_full_text_index_that_does_not_fit_is_made_anew(full):
    with closing(connect(full)) as connection:
        connection.execute("UPDATE traces_fts_data SET block = x'00' WHERE id > 10")

    found = rescue(full)

    assert (found.traces, rows(full)["traces"]) == (200, 200)


def test_what_waits_to_be_scored_without_its_document_has_failed(full):
    with closing(connect(full)) as connection:
        connection.execute("UPDATE traces SET state = 'recorded', score = NULL")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'documents'"
        ).fetchone()
    overwrite(full, (page - 1) * PAGE, page * PAGE)

    rescue(full)

    with closing(connect(full)) as connection:
        assert connection.execute("SELECT DISTINCT state, reason FROM traces").fetchall() == [
            ("failed", "what was recorded was lost in a damaged file")
        ]


def test_a_healthy_file_is_left_as_it_is(full):
    before = full.read_bytes()

    assert rescue(full) is None

    assert full.read_bytes() == before
    assert not [*full.parent.glob("*.corrupt*")]


@pytest.mark.parametrize("size", [7, 100_000])
def test_what_does_not_say_that_it_is_ours_is_left_as_it_is(db, size):
    db.write_bytes(b"a letter to my aunt, " * size)
    before = db.read_bytes()

    assert rescue(db) is None

    assert db.read_bytes() == before


def test_without_room_for_the_copies_nothing_changes(full):
    overwrite(full, *middle_of(full))
    before = full.read_bytes()
    full.with_name("kp.db.rescued").mkdir()

    with pytest.raises(DatabaseError, match=r"kp\.db: cannot be opened"):
        rescue(full)

    assert full.read_bytes() == before


def test_while_another_process_is_at_it_nothing_is_done(full):
    overwrite(full, *middle_of(full))
    before = full.read_bytes()
    folder = os.open(full.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)

    assert rescue(full) is None

    os.close(folder)
    assert full.read_bytes() == before
    assert rescue(full) is not None
