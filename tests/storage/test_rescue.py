"""What can be read of a damaged file stays, and a copy of it as it was."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest
from stored_runs import kept

from kp_middleware.database import connect
from kp_middleware.errors import DatabaseError
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.pipeline import Rescan
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    MAY_HAVE_BEEN_SENT,
    History,
    OutboxAdmin,
    OutboxTable,
    Pruning,
    SqliteStore,
)

PAGE = 4096
TABLES = ("traces", "documents", "steps", "vectors")


@pytest.fixture
def full(db):
    """A file with two hundred traces."""
    with closing(connect(db)) as connection:
        store = SqliteStore(connection, scorer="test")
        [kept(store, f"objective {number} " + "x" * 400, score=0.5) for number in range(200)]
        connection.execute(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " SELECT seq, id, 'e', seq, zeroblob(1536) FROM traces"
        )
    return db


def rescue(path):
    return SqliteStore.at(path).repair(destination="https://registry.example", redactor="r 1")


def lose_the_first(connection):
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DELETE FROM traces WHERE seq = 1")


def overwrite(path, first, last, byte=0xA5):
    with path.open("r+b") as file:
        file.seek(first)
        file.write(bytes([byte]) * (last - first))


def middle_of(path):
    pages = path.stat().st_size // PAGE
    return pages // 2 * PAGE, (pages // 2 + 3) * PAGE


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
    assert found.damaged_copy.read_bytes() == before
    assert found.damaged_copy.name.startswith("kp.db.corrupt-2")
    assert stat.S_IMODE(found.damaged_copy.stat().st_mode) == 0o600


def test_half_a_file_keeps_the_half_that_is_there(full):
    os.truncate(full, full.stat().st_size // 2)

    found = rescue(full)

    assert found.traces == rows(full)["traces"] > 50


def test_a_key_that_no_row_can_have_costs_no_other_row(full):
    with closing(sqlite3.connect(full)) as connection, connection:
        connection.execute(
            "INSERT INTO vectors (seq, embedder, added_at_ms, vector)"
            " SELECT -9e15, embedder, added_at_ms, vector FROM vectors LIMIT 1"
        )
    overwrite(full, 40 * PAGE, 41 * PAGE)

    assert rescue(full).traces > 150


def test_a_page_of_an_index_in_place_of_a_table_s_costs_only_that_table(full):
    with closing(connect(full)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema"))
    content = full.read_bytes()
    index = (roots["sqlite_autoindex_traces_1"] - 1) * PAGE
    with full.open("r+b") as file:
        file.seek((roots["steps"] - 1) * PAGE)
        file.write(content[index : index + PAGE])

    assert rescue(full).traces == 200
    assert rows(full)["documents"] == 200


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

    assert found.damaged_copy.with_name(f"{found.damaged_copy.name}-wal").stat().st_size > 0


def test_others_who_have_it_open_go_on_with_what_is_left(full):
    with closing(connect(full)) as other:
        (before,) = other.execute("SELECT count(*) FROM traces").fetchone()
        overwrite(full, *middle_of(full))
        found = rescue(full)

        kept(SqliteStore(other, scorer="test"), "after")

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
        assert connection.execute("SELECT DISTINCT state, reason_code FROM traces").fetchall() == [
            ("failed", "damaged")
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
    with closing(sqlite3.connect(f"{full}.rescue-lock", isolation_level=None)) as another:
        another.execute("BEGIN EXCLUSIVE")

        assert rescue(full) is None

    assert full.read_bytes() == before
    assert rescue(full) is not None


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


def lose(path, table):
    """Overwrite the page that all of a small table is on."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
    overwrite(path, (page - 1) * PAGE, page * PAGE)


def test_what_has_lost_its_row_of_the_outbox_is_blocked_as_it_may_have_been_sent(sent):
    lose(sent, "outbox")

    rescue(sent)

    with closing(connect(sent)) as connection:
        blocked = connection.execute(
            "SELECT t.objective, o.state, o.reason, o.registry, o.redactor, o.body FROM outbox o"
            " JOIN traces t ON t.seq = o.trace_seq ORDER BY t.seq"
        ).fetchall()
        left = (
            SqliteStore(connection).outbox("https://registry.example", None).next_unqueued(after=0)
        )
        said = History(connection).run(left).objective
    row = ("blocked", MAY_HAVE_BEEN_SENT, "https://registry.example", "r 1", None)
    assert blocked == [(f"sent {number}", *row) for number in range(5)]
    assert said == "waits for a key"


def test_what_may_have_been_sent_is_only_released_by_name(sent):
    lose(sent, "outbox")
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


def test_what_may_have_been_sent_is_pruned_like_any_other(sent):
    lose(sent, "outbox")
    rescue(sent)

    with closing(connect(sent)) as connection:
        pruning = Pruning(connection)
        removed = sum(pruning.batches(pruning.select()))

        assert removed == 8
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)


def test_without_its_document_nothing_can_be_sent_and_nothing_is_blocked(sent):
    lose(sent, "outbox")
    lose(sent, "documents")

    rescue(sent)

    with closing(connect(sent)) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        assert (
            SqliteStore(connection).outbox("https://registry.example", None).next_unqueued(after=0)
            is None
        )


def test_a_nearest_trace_that_is_lost_is_named_no_more(full):
    with closing(connect(full)) as connection:
        connection.execute(
            "UPDATE traces SET nearest_seq = 1, nearest_similarity = 0.5 WHERE seq > 1"
        )
        lose_the_first(connection)
    overwrite(full, *middle_of(full))

    rescue(full)

    with closing(connect(full)) as connection:
        assert connection.execute("SELECT DISTINCT nearest_seq FROM traces").fetchall() == [(None,)]


def test_what_was_learned_of_a_trace_and_when_it_was_decided_stay_with_it(full):
    with closing(connect(full)) as connection:
        connection.execute(
            "INSERT INTO feedback (seq, trace_seq, given_at, success, success_before,"
            " confidence_before) SELECT seq + 5000, seq, started_at, 0, 1, 0.8 FROM traces"
        )
        connection.execute("UPDATE traces SET decided_at = '2026-11-22T00:00:00.000Z'")
    overwrite(full, *middle_of(full))

    found = rescue(full)

    assert 100 < found.traces < 200
    with closing(connect(full)) as connection:
        feedback, traces = "SELECT trace_seq FROM feedback", "SELECT seq FROM traces"
        assert connection.execute(f"{feedback} EXCEPT {traces}").fetchall() == []
        assert len(connection.execute(f"{feedback} INTERSECT {traces}").fetchall()) > 100
        decided = connection.execute("SELECT DISTINCT decided_at FROM traces").fetchall()
        assert decided == [("2026-11-22T00:00:00.000Z",)]


def test_the_further_ids_of_a_trace_lead_to_it_still(full):
    with closing(connect(full)) as connection:
        connection.execute(
            "INSERT INTO aliases (id, trace_seq) SELECT id || '-later', seq FROM traces"
        )
        lose_the_first(connection)
    overwrite(full, *middle_of(full))

    rescue(full)

    with closing(connect(full)) as connection:
        rows = connection.execute(
            "SELECT a.id, t.id FROM aliases a LEFT JOIN traces t ON t.seq = a.trace_seq"
        ).fetchall()
    assert len(rows) > 100
    assert {alias for alias, _ in rows} == {f"{trace_id}-later" for _, trace_id in rows}


def test_what_waits_for_a_turn_that_nobody_remembers_has_failed(full):
    with closing(connect(full)) as connection:
        connection.execute("UPDATE traces SET state = 'paused' WHERE seq = 1")
        connection.execute(
            "INSERT INTO waiting (trace_seq, thread, until, run) VALUES (2, 't', '2030', '{}')"
        )
        connection.execute("UPDATE traces_fts_data SET block = x'00' WHERE id > 10")

    rescue(full)

    with closing(connect(full)) as connection:
        states = connection.execute(
            "SELECT state FROM traces WHERE seq < 3 ORDER BY seq"
        ).fetchall()
        assert states == [("failed",), ("scored",)]
        assert connection.execute("SELECT count(*) FROM waiting").fetchone() == (0,)


def test_what_a_rescue_that_was_killed_left_is_not_taken_for_what_was_saved(full):
    with closing(connect(full.with_name("kp.db.rescued"))) as connection:
        kept(SqliteStore(connection, scorer="test"), "of an earlier time", id="kp:trace:earlier")
    overwrite(full, *middle_of(full))

    rescue(full)

    with closing(connect(full)) as connection:
        found = connection.execute("SELECT 1 FROM traces WHERE id = 'kp:trace:earlier'").fetchall()
    assert found == []
    assert not [*full.parent.glob("*.rescued*")]


def test_while_a_file_is_rescued_nobody_else_writes_to_it(full):
    overwrite(full, *middle_of(full))
    with closing(connect(full)) as other:
        other.execute("BEGIN IMMEDIATE")
        before = full.read_bytes()

        with pytest.raises(DatabaseError, match="locked"):
            rescue(full)

        assert full.read_bytes() == before
        assert not [*full.parent.glob("*.corrupt*")]
        other.rollback()
    assert rescue(full) is not None


@pytest.mark.parametrize("size", [50, 71, 72, 99])
def test_a_file_that_is_cut_within_its_header_is_set_aside_too(full, size):
    os.truncate(full, size)

    found = rescue(full)

    assert (found.traces, rows(full)["traces"]) == (0, 0)
    assert found.damaged_copy.stat().st_size == size


def test_only_the_last_few_copies_are_kept(full):
    older = [full.with_name(f"kp.db.corrupt-2025010{day}T000000Z") for day in range(1, 6)]
    [path.with_name(f"{path.name}{end}").touch() for path in older for end in ("", "-wal")]
    bystander = full.with_name("kp.db.corrupt-notes")
    bystander.touch()
    overwrite(full, *middle_of(full))

    found = rescue(full)

    with closing(connect(full)) as connection:
        named = History(connection).file_status(full).set_aside
    assert named == (*map(str, older[3:]), str(found.damaged_copy))
    assert not older[2].with_name(f"{older[2].name}-wal").exists()
    assert bystander.exists()
