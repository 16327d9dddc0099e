"""The file: who may read it, what is refused, and that nothing is half done."""

import os
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from database_files import child, meta, mode, refused, write

from kp_middleware.database import (
    APPLICATION_ID,
    SCHEMA,
    connect,
    is_damage,
    to_database_error,
    transaction,
)
from kp_middleware.errors import DatabaseError

AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
CANNOT_BE_OPENED = "cannot be opened (Permission denied); name another file with KP_DB or --db"
CANNOT_BE_WRITTEN = (
    "cannot be written (Permission denied); make the file and its folder writable for you,"
    " or name another file with KP_DB or --db"
)
SHARED_TABLES = """
SELECT name FROM sqlite_schema
WHERE type IN ('table', 'view') AND name NOT LIKE '%fts_%' AND name NOT LIKE '%sqlite%'
ORDER BY name
"""


@pytest.fixture
def public_folder():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_new_file_has_today_s_schema_and_says_whose_it_is(connection):
    facts = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in (
            "application_id",
            "user_version",
            "journal_mode",
            "foreign_keys",
            "synchronous",
        )
    ]

    assert facts == [APPLICATION_ID, SCHEMA, "wal", 1, 1]
    assert APPLICATION_ID.to_bytes(4, "big") == b"KPMM"


OURS = {
    *((name,) for name in ("aliases", "asked", "asked_fts", "estimates", "feedback")),
    *(("run_words",), ("waiting",)),
}


def test_a_new_file_has_the_agreed_tables_and_views(connection, shared):
    agreed = sqlite3.connect(":memory:")
    agreed.executescript((shared / "schema.sql").read_text())

    ours = connection.execute(SHARED_TABLES).fetchall()

    assert {*ours} == {*agreed.execute(SHARED_TABLES)} | OURS
    agreed.close()


def test_the_file_is_the_user_s_alone_with_all_that_belongs_to_it(tmp_path):
    path = tmp_path / "new" / "folder" / "kp.db"
    before = os.umask(0)

    with closing(connect(path)) as connection:
        write(connection, "a")
        modes = {file.name: mode(file) for file in path.parent.iterdir()}

    os.umask(before)
    assert modes == {"kp.db": 0o600, "kp.db-wal": 0o600, "kp.db-shm": 0o600}
    assert (mode(path.parent), mode(path.parent.parent)) == (0o700, 0o700)


@pytest.mark.parametrize("name", ["a?mode=ro.db", "50%25.db", "#1.db", "a b.db", "ü.db"])
def test_a_file_may_have_any_name_and_be_in_the_home(home, name):
    connect(f"~/{name}").close()

    assert (home / name).stat().st_size > 0


def test_an_empty_file_becomes_ours_and_a_backup_in_its_place_gets_its_journal_again(db):
    db.touch()
    with closing(connect(db)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")

    with closing(connect(db)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    "statements",
    [
        None,
        "CREATE TABLE notes (text)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 7",
        f"PRAGMA user_version = {SCHEMA}; CREATE TABLE notes (text)",
    ],
    ids=["no database", "a table", "only a version", "only a name", "a table and our version"],
)
@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
def test_another_program_s_file_is_refused_and_left_alone(db, statements, read_only):
    if statements is None:
        db.write_text("a letter to my aunt, " * 100)
    else:
        with closing(sqlite3.connect(db)) as connection:
            connection.executescript(statements)
    before = db.read_bytes()

    words = refused(db, read_only=read_only)

    kind = "is not an SQLite file" if statements is None else "is another program's SQLite file"
    assert words == f"{kind}; name another file with KP_DB or --db"
    assert db.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
def test_a_file_of_a_newer_version_is_refused(db, read_only):
    with closing(connect(db)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")

    words = refused(db, read_only=read_only)

    newer = SCHEMA + 1
    assert words == f"has schema {newer}, from a newer kp-middleware; upgrade kp-middleware"


@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
def test_a_folder_a_path_below_a_file_and_an_unknown_home_are_refused(tmp_path, read_only):
    file = tmp_path / "file"
    file.touch()

    for path, words in (
        (tmp_path, "name another file with KP_DB or --db"),
        (file / "kp.db", "name another file with KP_DB or --db"),
        (Path("~nobody-has-this-name/kp.db"), "home directory"),
    ):
        assert words in refused(path, read_only=read_only)


def test_by_reading_no_file_is_made_and_an_empty_one_does_not_become_ours(db):
    words = refused(db, read_only=True)

    assert words == (
        "does not exist; record a run first, or import some with kp-middleware import, or name"
        " another file with KP_DB or --db"
    )
    assert not db.exists()

    db.touch()

    assert refused(db, read_only=True).startswith("is empty; record a run first")
    assert db.stat().st_size == 0


@AS_ROOT
@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "words"),
    [
        (0o755, None, CANNOT_BE_WRITTEN),
        (0o755, 0o444, CANNOT_BE_WRITTEN),
        (0o700, 0o666, CANNOT_BE_OPENED),
        (0o755, 0o600, CANNOT_BE_OPENED),
    ],
    ids=["no file", "a file of others", "their folder", "their file"],
)
def test_what_another_user_may_not_do_is_named_with_the_remedy(
    public_folder, folder_mode, file_mode, words
):
    path = public_folder / "home" / "kp.db"
    path.parent.mkdir()
    if file_mode is not None:
        connect(path).close()
        path.chmod(file_mode)
    path.parent.chmod(folder_mode)

    _, errors = child("os.setuid(54321); connect(sys.argv[1])", path).communicate()

    assert errors.splitlines()[-1] == f"kp_middleware.errors.DatabaseError: {path}: {words}"


@AS_ROOT
def test_a_folder_in_which_nothing_can_be_made_is_found_out_at_once(public_folder):
    path = public_folder / "kp.db"
    path.touch()
    path.chmod(0o666)

    running = child("os.setuid(54321); connect(sys.argv[1])", path)
    _, errors = running.communicate(timeout=30)

    assert f"DatabaseError: {path}: cannot be written (" in errors
    assert "make the file and its folder writable for you" in errors


@AS_ROOT
def test_a_file_at_rest_is_read_where_nothing_can_be_written(public_folder):
    path = public_folder / "kp.db"
    with closing(connect(path)) as opened:
        write(opened, "a", "1")
    path.chmod(0o444)
    read = "print(connect(sys.argv[1], read_only=True).execute('SELECT key FROM meta').fetchall())"

    told, _ = child(f"os.setuid(54321); {read}", path).communicate()

    assert told == "[('a',)]\n"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_transaction_that_fails_leaves_nothing_also_of_one_inside_it(connection, error):
    with pytest.raises(error):
        write_and_fail(connection, error)

    assert meta(connection) == {}
    assert not connection.in_transaction


def test_a_file_that_is_being_written_is_made_ours_when_the_writer_is_done(db):
    writer = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.2, writer.rollback)
    done.start()

    with closing(connect(db)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    done.join()
    writer.close()


def write_and_fail(connection, error):
    with transaction(connection):
        with transaction(connection):
            write(connection, "a")
        raise error


def test_a_transaction_cannot_lose_what_another_process_writes_in_between(connection, db):
    with closing(connect(db)) as other, transaction(connection):
        other.execute("PRAGMA busy_timeout = 0")

        with pytest.raises(sqlite3.OperationalError, match="locked"), transaction(other):
            write(other, "late")

        write(connection, "first")
    assert set(meta(connection)) == {"first"}


def write_what_only_the_commit_refuses(connection):
    with transaction(connection):
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("INSERT INTO documents (trace_seq, body) VALUES (7, '{}')")


def test_a_commit_that_fails_leaves_nothing_open(connection):
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        write_what_only_the_commit_refuses(connection)

    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM documents").fetchone() == (0,)


def test_a_full_disk_leaves_nothing_says_to_make_room_and_can_be_survived(db, connection):
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    with pytest.raises(sqlite3.OperationalError) as raised, transaction(connection):
        [write(connection, key, value) for key, value in {"a": "", "b": "x" * 100_000}.items()]

    words = str(to_database_error(db, raised.value))
    assert words.startswith(f"{db}: database or disk is full; free disk space")
    assert not is_damage(raised.value)
    connection.execute(f"PRAGMA max_page_count = {pages + 100}")
    with transaction(connection):
        write(connection, "later")
    assert set(meta(connection)) == {"later"}
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_opening_a_file_once_more_ends_no_lock_of_this_process(db, connection):
    write(connection, "before")
    with closing(connect(db)):
        child("connect(sys.argv[1]).close()", db).communicate()

    write(connection, "after")  # lost, if the child took itself for the last and removed the WAL

    printed, _ = child(
        "print(sorted(key for key, in connect(sys.argv[1]).execute('SELECT key FROM meta')))", db
    ).communicate()
    assert printed == "['after', 'before']\n"


@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
def test_of_what_a_killed_process_left_in_the_wal_only_a_damaged_end_is_lost(db, read_only):
    child(
        """
connection = connect(sys.argv[1])
connection.execute("INSERT INTO meta VALUES ('a', '1')")
size = os.path.getsize(sys.argv[1] + "-wal")
connection.execute("INSERT INTO meta VALUES ('b', '2')")
os.truncate(sys.argv[1] + "-wal", size + 2000)
os.kill(os.getpid(), 9)
""",
        db,
    ).communicate()

    with closing(connect(db, read_only=read_only)) as connection:
        assert meta(connection) == {"a": "1"}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_cut_file_is_damaged_and_the_words_say_what_happens(db):
    connect(db).close()
    os.truncate(db, db.stat().st_size // 2)

    with pytest.raises(DatabaseError) as raised:
        connect(db, read_only=True)

    assert is_damage(raised.value)
    assert str(raised.value) == (
        f"{db}: database disk image is malformed;"
        " restore the readable part: kp-middleware repair; or move the file away"
    )
