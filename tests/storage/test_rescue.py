"""A damaged file keeps its readable part, and a copy as it was."""

import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from stored_runs import kept

from kp_middleware import Settings
from kp_middleware.database import connect, transaction
from kp_middleware.errors import DatabaseError
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.pipeline import Rescan
from kp_middleware.storage import (
    MAY_HAVE_BEEN_SENT,
    History,
    OutboxAdmin,
    OutboxTable,
    SqliteStore,
)

PAGE = 4096
TABLES = ("traces", "documents", "steps", "vectors")


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory):
    """A file with two hundred runs, to be copied."""
    path = tmp_path_factory.mktemp("undamaged") / "kp.db"
    with closing(connect(path)) as connection:
        store = SqliteStore(connection, scorer="test")
        with transaction(connection):
            for number in range(200):
                kept(store, f"objective {number} " + "x" * 400, score=0.5)
        connection.execute(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " SELECT seq, id, 'e', seq, zeroblob(1536) FROM traces"
        )
    return path


@pytest.fixture
def full(undamaged, db):
    """A file with two hundred runs, to be damaged."""
    shutil.copyfile(undamaged, db)
    return db


def rescue(path):
    return SqliteStore.at(path).repair(destination="https://registry.example", redactor="r 1")


def overwrite(path, first, last):
    with path.open("r+b") as file:
        file.seek(first)
        file.write(b"\xa5" * (last - first))


def overwrite_the_middle(path):
    middle = path.stat().st_size // PAGE // 2
    overwrite(path, middle * PAGE, (middle + 3) * PAGE)


def overwrite_the_root(path, table):
    """The page that all of a small table is on."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
    overwrite(path, (page - 1) * PAGE, page * PAGE)


def read(path, sql):
    with closing(connect(path)) as connection:
        return connection.execute(sql).fetchall()


def rows(path):
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO traces_fts (traces_fts) VALUES ('integrity-check')")
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in TABLES
        }


@pytest.mark.parametrize("start", [PAGE, 5 * PAGE, 40 * PAGE, 100 * PAGE])
def test_pages_that_were_overwritten_cost_what_was_on_them(full, start):
    overwrite(full, start, start + 2 * PAGE)
    before = full.read_bytes()

    found = rescue(full)

    assert rows(full)["traces"] == found.traces
    assert found.traces > 150 or start == PAGE
    assert found.damaged_copy.read_bytes() == before
    assert found.damaged_copy.name.startswith("kp.db.corrupt-2")
    for file in (found.damaged_copy, full.with_name("kp.db.rescue-lock")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("size", [50, 71, 72, 99, 100, None], ids=str)
def test_of_a_file_that_is_cut_the_part_that_is_there_stays(full, size):
    length = full.stat().st_size // 2 if size is None else size
    os.truncate(full, length)

    found = rescue(full)

    assert found.traces == rows(full)["traces"]
    assert (found.traces > 50) == (size is None)
    assert found.damaged_copy.stat().st_size == length


def test_nothing_but_a_header_leaves_an_empty_file_that_works(full):
    overwrite(full, 100, full.stat().st_size)

    found = rescue(full)

    assert (found.traces, rows(full)["traces"]) == (0, 0)


def test_a_key_that_no_row_can_have_costs_no_other_row(full):
    with closing(connect(full)) as connection:
        connection.execute(
            "INSERT INTO vectors (seq, embedder, added_at_ms, vector)"
            " SELECT -9e15, embedder, added_at_ms, vector FROM vectors LIMIT 1"
        )
    overwrite(full, 40 * PAGE, 41 * PAGE)

    assert rescue(full).traces > 150


def test_a_page_of_an_index_in_place_of_a_table_s_costs_only_that_table(full):
    roots = dict(read(full, "SELECT name, rootpage FROM sqlite_schema"))
    content = full.read_bytes()
    index = (roots["sqlite_autoindex_traces_1"] - 1) * PAGE
    with full.open("r+b") as file:
        file.seek((roots["steps"] - 1) * PAGE)
        file.write(content[index : index + PAGE])

    assert rescue(full).traces == 200
    assert rows(full)["documents"] == 200


def test_the_wal_is_set_aside_too_and_others_who_have_the_file_open_go_on_with_what_is_left(full):
    with closing(connect(full)) as other:
        other.execute("INSERT INTO meta VALUES ('in', 'the WAL')")
        overwrite_the_middle(full)

        found = rescue(full)
        kept(SqliteStore(other, scorer="test"), "after")

    assert found.damaged_copy.with_name(f"{found.damaged_copy.name}-wal").stat().st_size > 0
    assert rows(full)["traces"] == found.traces + 1


def test_what_waits_to_be_scored_without_its_document_has_failed(full):
    with closing(connect(full)) as connection:
        connection.execute("UPDATE traces SET state = 'recorded', score = NULL")
    overwrite_the_root(full, "documents")

    rescue(full)

    assert read(full, "SELECT DISTINCT state, reason_code FROM traces") == [("failed", "damaged")]


@pytest.mark.parametrize("content", [None, b"a letter", b"a letter to my aunt, " * 100_000])
def test_a_healthy_file_and_one_that_is_not_ours_are_left_as_they_are(full, content):
    if content is not None:
        full.write_bytes(content)
    before = full.read_bytes()

    assert rescue(full) is None

    assert full.read_bytes() == before
    assert not [*full.parent.glob("*.corrupt*")]


def test_of_a_file_that_cannot_be_used_for_another_reason_nothing_is_set_aside(full):
    with closing(connect(full)) as connection:
        connection.execute("PRAGMA user_version = 99")
    overwrite_the_middle(full)

    with pytest.raises(DatabaseError, match="newer kp-middleware"):
        rescue(full)

    assert not [*full.parent.glob("*.corrupt*")]


@pytest.fixture
def sent(db):
    """Five traces that were sent, one that waits for a key, and one that is private."""
    with closing(connect(db)) as connection:
        store = SqliteStore(connection, scorer="test")
        outbox = OutboxTable(connection, registry="https://registry.example", agent_id=None)
        for number in range(5):
            seq = kept(store, f"sent {number}", score=0.9, decision="forward")
            outbox.add(seq, b"{}", redactor="r 1", redactions={})
        waiting = kept(store, "waits for a key", score=0.9, decision="forward")
        connection.execute(
            "UPDATE traces SET reason_args = json_object('delivery', 'no_key') WHERE seq = ?",
            (waiting,),
        )
        kept(store, "private", score=0.9, decision="forward", visibility="private")
        kept(store, "not good enough", score=0.1)
    return db


def test_what_has_lost_its_row_of_the_outbox_is_blocked_as_it_may_have_been_sent(sent):
    overwrite_the_root(sent, "outbox")

    rescue(sent)

    row = ("blocked", MAY_HAVE_BEEN_SENT, "https://registry.example", "r 1", None)
    assert read(
        sent,
        "SELECT t.objective, o.state, o.reason, o.registry, o.redactor, o.body FROM outbox o"
        " JOIN traces t ON t.seq = o.trace_seq ORDER BY t.seq",
    ) == [(f"sent {number}", *row) for number in range(5)]
    with closing(connect(sent)) as connection:
        assert History(connection).run(next_unqueued(connection)).objective == "waits for a key"


def test_what_may_have_been_sent_is_only_released_by_name(sent):
    overwrite_the_root(sent, "outbox")
    rescue(sent)

    with closing(connect(sent)) as connection:
        rescan = Rescan(OutboxAdmin(connection), Settings())
        by_the_way = set(rescan.rescan_all(alone=True).values())
        by_name = rescan.retry(1, force=True)
        body, key = connection.execute(
            "SELECT CAST(body AS BLOB), idempotency_key FROM outbox WHERE state = 'pending'"
        ).fetchone()

    assert (by_the_way, by_name) == ({"blocked"}, "released")
    assert key == idempotency_key(body, agent_id=None)


def test_without_its_document_nothing_can_be_sent_and_nothing_is_blocked(sent):
    overwrite_the_root(sent, "outbox")
    overwrite_the_root(sent, "documents")

    rescue(sent)

    assert read(sent, "SELECT count(*) FROM outbox") == [(0,)]
    with closing(connect(sent)) as connection:
        assert next_unqueued(connection) is None


def next_unqueued(connection):
    return SqliteStore(connection).outbox("https://registry.example", None).next_unqueued(after=0)


def test_what_was_learned_of_a_run_stays_with_it_and_what_is_lost_is_named_no_more(full):
    with closing(connect(full)) as connection:
        connection.execute(
            "INSERT INTO feedback (seq, trace_seq, given_at, success, success_before,"
            " confidence_before) SELECT seq + 5000, seq, started_at, 0, 1, 0.8 FROM traces"
        )
        connection.execute(
            "INSERT INTO aliases (id, trace_seq) SELECT id || '-later', seq FROM traces"
        )
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM traces WHERE seq = 1")
        connection.execute(
            "UPDATE traces SET decided_at = '2026-11-22T00:00:00.000Z', nearest_seq = 1,"
            " nearest_similarity = 0.5"
        )
    overwrite(full, 69 * PAGE, 72 * PAGE)

    found = rescue(full)

    assert 100 < found.traces < 199
    assert len(read(full, "SELECT DISTINCT trace_seq FROM feedback")) == found.traces
    aliases = read(
        full, "SELECT a.id, t.id FROM aliases a LEFT JOIN traces t ON t.seq = a.trace_seq"
    )
    assert len(aliases) == found.traces
    assert {alias for alias, _ in aliases} == {f"{trace_id}-later" for _, trace_id in aliases}
    assert read(full, "SELECT DISTINCT decided_at, nearest_seq FROM traces") == [
        ("2026-11-22T00:00:00.000Z", None)
    ]


def test_words_that_do_not_fit_are_indexed_anew_and_what_waits_for_a_forgotten_turn_fails(full):
    with closing(connect(full)) as connection:
        connection.execute("UPDATE traces SET state = 'paused' WHERE seq = 1")
        connection.execute(
            "INSERT INTO waiting (trace_seq, thread, until, run) VALUES (2, 't', '2030', '{}')"
        )
        connection.execute("UPDATE traces_fts_data SET block = x'00' WHERE id > 10")

    found = rescue(full)

    assert (found.traces, rows(full)["traces"]) == (200, 200)
    states = read(full, "SELECT state FROM traces WHERE seq < 3 ORDER BY seq")
    assert states == [("failed",), ("scored",)]
    assert read(full, "SELECT count(*) FROM waiting") == [(0,)]


def test_what_a_rescue_that_was_killed_left_is_not_taken_for_what_was_saved(full):
    with closing(connect(full.with_name("kp.db.rescued"))) as connection:
        kept(SqliteStore(connection, scorer="test"), "of an earlier time", id="kp:trace:earlier")
    overwrite_the_middle(full)

    rescue(full)

    assert read(full, "SELECT 1 FROM traces WHERE id = 'kp:trace:earlier'") == []
    assert not [*full.parent.glob("*.rescued*")]


def test_who_writes_is_waited_for(full):
    overwrite_the_middle(full)
    has_written = threading.Event()
    with closing(sqlite3.connect(full, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        threading.Timer(0.2, lambda: (has_written.set(), writer.rollback())).start()

        found = rescue(full)

    assert has_written.is_set()
    assert found is not None


def test_without_room_for_the_copies_or_while_another_process_rescues_it_nothing_is_done(full):
    overwrite_the_middle(full)
    before = full.read_bytes()
    full.with_name("kp.db.rescued").mkdir()
    with pytest.raises(DatabaseError, match=r"kp\.db: cannot be opened"):
        rescue(full)
    full.with_name("kp.db.rescued").rmdir()
    with closing(sqlite3.connect(f"{full}.rescue-lock", isolation_level=None)) as another:
        another.execute("BEGIN EXCLUSIVE")
        assert rescue(full) is None

    assert full.read_bytes() == before
    assert rescue(full) is not None


def test_only_the_last_few_copies_are_kept(full):
    older = [full.with_name(f"kp.db.corrupt-2025010{day}T000000Z") for day in range(1, 6)]
    [path.with_name(f"{path.name}{end}").touch() for path in older for end in ("", "-wal")]
    bystander = full.with_name("kp.db.corrupt-notes")
    bystander.touch()
    overwrite_the_middle(full)

    found = rescue(full)

    with closing(connect(full)) as connection:
        named = History(connection).file_status(full).set_aside
    assert named == (*map(str, older[3:]), str(found.damaged_copy))
    assert not older[2].with_name(f"{older[2].name}-wal").exists()
    assert bystander.exists()
