"""A copy that can be relied on, of a file that others write to."""

import sqlite3
from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.storage import History


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copy.db"


def ids(path):
    with closing(connect(path, read_only=True)) as connection:
        return connection.execute("SELECT id FROM traces ORDER BY seq").fetchall()


def asked(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchone()[0]


def rows_of_meta(path):
    return asked(path, "SELECT count(*) FROM meta")


def test_a_copy_has_the_same_traces_and_is_a_file_like_any_other_with_none_beside_it(
    agent, type_command, as_json, db, tmp_path
):
    agent("one")
    agent("two")
    folder = tmp_path / "archive"
    folder.mkdir()
    copy = folder / "copy.db"

    printed = type_command("backup", str(copy)).stdout
    told = as_json("backup", str(copy), "--force")
    listed = as_json("--db", str(copy), "list")

    assert printed.startswith(f"{copy}  0.")
    assert printed.endswith(" MB, 2 runs\n")
    assert told == {"path": str(copy), "size_bytes": copy.stat().st_size, "traces": 2}
    assert [row["objective"] for row in listed] == ["two", "one"]
    assert ids(copy) == ids(db)
    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("SELECT count(*) FROM traces").fetchone() == (2,)
        assert [*folder.iterdir()] == [copy]


def test_a_database_that_is_in_use_is_not_replaced(agent, type_command, target):
    agent("one")
    type_command("backup", str(target))
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO meta VALUES ('mine', 'not yet in the file itself')")
        connection.commit()

        result = type_command("backup", str(target), "--force")

    assert result.exit_code == 2
    assert "is in use" in result.stderr
    assert rows_of_meta(target) == 1


def test_a_writer_goes_on_while_the_copy_is_made(agent, db, target):
    agent("one")
    with closing(connect(db)) as writer, closing(connect(db, read_only=True)) as reader:
        writer.execute("PRAGMA busy_timeout = 0")
        writer.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
            " INSERT INTO meta SELECT i, hex(randomblob(2000)) FROM n"
        )
        told = []

        def write_meanwhile(done, count):
            told.append((done, count))
            writer.execute("INSERT INTO meta VALUES (?, 'meanwhile')", (f"late {done}",))

        History(reader).back_up(target, on_progress=write_meanwhile)

    assert len(told) > 2
    assert told[-1][0] == told[-1][1]
    assert rows_of_meta(target) == 2000
    assert asked(target, "PRAGMA integrity_check") == "ok"
    assert rows_of_meta(db) == 2000 + len(told)


def test_what_interrupts_a_copy_leaves_no_journal_and_no_transaction(agent, db, target):
    agent("one")

    def interrupted(*_):
        raise KeyboardInterrupt

    with closing(connect(db, read_only=True)) as reader:
        with pytest.raises(KeyboardInterrupt):
            History(reader).back_up(target, on_progress=interrupted)
        in_transaction = reader.in_transaction

    assert not in_transaction
    assert [*target.parent.glob("*copy*")] == [target]


@pytest.mark.usefixtures("damaged")
def test_a_damaged_file_has_no_copy(type_command, db, target):
    result = type_command("backup", str(target))

    assert result.exit_code == 1
    assert f"{db}: is damaged, so a backup would be damaged too; restore the" in result.stderr
    assert not [*target.parent.glob("*copy*")]
