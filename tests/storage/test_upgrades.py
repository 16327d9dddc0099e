"""A file of an older schema is brought up to date, with a copy made first."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from database_files import child, meta, mode, refused

from kp_middleware.database import RELEASED, SCHEMA, connect

SCHEMA_6 = Path(__file__).with_name("schema_6.sql")


@pytest.fixture
def old_file(db):
    """A file of schema 6, with a row that is only in its WAL."""
    with closing(sqlite3.connect(db, isolation_level=None)) as old:
        old.executescript(SCHEMA_6.read_text("utf-8"))
        old.execute("PRAGMA journal_mode = WAL")
        old.execute("INSERT INTO meta VALUES ('kept', 'since schema 6')")
        yield db


def test_an_older_file_is_brought_up_to_date_with_a_copy_made_first(old_file, caplog):
    caplog.set_level("INFO", logger="kp_middleware")

    with closing(connect(old_file)) as connection:
        assert meta(connection) == {"dropped": "3", "kept": "since schema 6"}
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,)

    copy = old_file.with_name(f"kp.db.before-{SCHEMA}")
    with closing(sqlite3.connect(copy)) as before:
        assert before.execute("PRAGMA user_version").fetchone() == (6,)
        assert meta(before) == {"dropped": "3", "kept": "since schema 6"}
    assert mode(copy) == 0o600
    assert [record.getMessage() for record in caplog.records] == [
        f"{old_file}: upgraded to schema {SCHEMA}; backup: {copy}"
    ]


def test_the_time_of_an_upgrade_grows_with_the_runs_and_not_with_their_square(old_file):
    with closing(sqlite3.connect(old_file)) as old, old:
        _, _, *names = [name for _, name, *_ in old.execute("PRAGMA table_info(traces)")]
        columns = ", ".join(names)
        old.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 6000)"
            f" INSERT INTO traces (id, {columns}) SELECT 'run ' || n, {columns}"
            " FROM numbers, (SELECT * FROM traces LIMIT 1)"
        )
    began_s = time.process_time()

    with closing(connect(old_file)) as connection:
        took_s = time.process_time() - began_s

        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert took_s < 3  # 0.5; with the square it was 8


@pytest.mark.parametrize("version", [*range(1, RELEASED), *range(RELEASED + 1, SCHEMA)])
def test_a_file_from_before_the_first_release_is_refused_and_left_alone(old_file, version):
    with closing(sqlite3.connect(old_file)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")

    words = refused(old_file)

    assert words == (
        f"has schema {version}, from an unreleased kp-middleware; move it away to start a new one,"
        " or name another file with KP_DB or --db"
    )
    with closing(sqlite3.connect(old_file)) as unchanged:
        assert unchanged.execute("PRAGMA user_version").fetchone() == (version,)


def test_what_a_killed_process_left_of_a_copy_is_made_anew(old_file):
    unfinished = old_file.with_name(f"kp.db.before-{SCHEMA}.unfinished")
    unfinished.write_bytes(b"half a copy" * 1000)

    connect(old_file).close()

    assert not unfinished.exists()
    with closing(sqlite3.connect(old_file.with_name(f"kp.db.before-{SCHEMA}"))) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_an_older_file_that_cannot_be_copied_is_left_as_it_is(old_file):
    old_file.with_name(f"kp.db.before-{SCHEMA}").mkdir()

    words = refused(old_file)

    assert words.startswith(
        "is from an older kp-middleware, and cannot be backed up before upgrading"
    )
    assert words.endswith("; free disk space, or move it elsewhere")
    with closing(sqlite3.connect(old_file)) as unchanged:
        assert unchanged.execute("PRAGMA user_version").fetchone() == (6,)
    assert not [*old_file.parent.glob("*.unfinished*")]


@pytest.mark.parametrize(
    ("file", "before"),
    [("db", {}), ("old_file", {"dropped": "3", "kept": "since schema 6"})],
    ids=["new", "old"],
)
def test_processes_that_make_or_upgrade_one_file_at_once_all_find_it_whole(request, file, before):
    path = request.getfixturevalue(file)
    script = """
sys.stdin.read()
connection = connect(sys.argv[1])
connection.execute("INSERT INTO meta (key, value) VALUES (?, '')", (sys.argv[2],))
connection.close()
"""
    children = [child(script, path, number) for number in range(3)]

    [running.stdin.close() for running in children]
    complaints = [running.stderr.read() for running in children]

    [(running.wait(), running.stdout.close(), running.stderr.close()) for running in children]
    assert complaints == [""] * 3
    with closing(connect(path)) as connection:
        assert meta(connection) == {**before, "0": "", "1": "", "2": ""}
