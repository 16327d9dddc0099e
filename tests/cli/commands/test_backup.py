"""A copy that can be relied on, of a file that others write to."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.storage import History

WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
while True:
    connection.execute("INSERT INTO meta VALUES (hex(randomblob(16)), hex(randomblob(2000)))")
    print("wrote", flush=True)
"""


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copy.db"


@pytest.fixture
def writer(agent, db):
    """Another process that writes to the file all the time, and never waits for a lock."""
    agent("one")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(db)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def ids(path):
    with closing(connect(path, read_only=True)) as connection:
        return connection.execute("SELECT id FROM traces ORDER BY seq").fetchall()


def rows_of_meta(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM meta").fetchone()[0]


def test_a_copy_has_the_same_traces_and_is_read_by_its_user_alone(agent, type_command, db, target):
    agent("one")
    agent("two")

    result = type_command("backup", str(target), "--json")

    told = json.loads(result.stdout)
    assert told == {"path": str(target), "size_bytes": target.stat().st_size, "traces": 2}
    assert target.stat().st_mode & 0o777 == 0o600
    assert ids(target) == ids(db)


def test_its_size_is_told_to_people(agent, type_command, target):
    agent("one")

    printed = type_command("backup", str(target)).stdout

    assert printed.startswith(f"{target}  0.")
    assert printed.endswith(" MB, 1 run\n")


def test_a_copy_is_a_file_of_traces_like_any_other(agent, type_command, target):
    agent("one")
    type_command("backup", str(target))

    listed = type_command("--db", str(target), "list", "--json")

    with closing(sqlite3.connect(target)) as connection:
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    assert [row["objective"] for row in json.loads(listed.stdout)] == ["one"]
    assert journal == "delete"


def test_to_read_a_copy_makes_no_file_beside_it(agent, type_command, tmp_path):
    agent("one")
    folder = tmp_path / "archive"
    folder.mkdir()
    copy = folder / "copy.db"
    type_command("backup", str(copy))

    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM traces").fetchone()

        assert (count, [*folder.iterdir()]) == (1, [copy])


def _identity(path):
    """Which file it is, and how long; whoever reads a database marks that in its `-shm`."""
    return (path.stat().st_ino, path.stat().st_size) if path.exists() else None


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize(
    "words",
    [["backup"], ["report"], ["export"]],
    ids=str,
)
def test_what_belongs_to_a_database_is_never_replaced(agent, type_command, db, words, suffix):
    agent("one")
    beside = db.with_name(db.name + suffix)
    before = _identity(beside)
    link = db.with_name("link")
    link.symlink_to(beside)

    results = [type_command(*words, str(name), "--force") for name in (beside, link)]

    assert [result.exit_code for result in results] == [2, 2]
    assert "is part of the trace database" in results[0].stderr
    words = "is part of the trace database", "is a dangling link"
    assert any(one in results[1].stderr for one in words)
    assert _identity(beside) == before
    assert type_command("list", "--no-headers").stdout.endswith("one\n")


@pytest.mark.parametrize("command", ["backup", "report"])
def test_no_file_is_named_like_standard_output(agent, type_command, tmp_path, monkeypatch, command):
    agent("one")
    monkeypatch.chdir(tmp_path)

    result = type_command(command, "-")

    assert (result.exit_code, (tmp_path / "-").exists()) == (2, False)
    assert "name a file" in result.stderr


def test_nothing_else_is_left_in_its_folder(agent, type_command, tmp_path):
    agent("one")
    folder = tmp_path / "copies"
    folder.mkdir()

    type_command("backup", str(folder / "copy.db"))

    assert [*folder.iterdir()] == [folder / "copy.db"]


def test_a_file_that_exists_is_not_overwritten(agent, type_command, target):
    agent("one")
    target.write_text("dear to me")

    result = type_command("backup", str(target))

    assert (result.exit_code, target.read_text()) == (2, "dear to me")
    assert "replace it with --force" in result.stderr


def test_force_replaces_a_file(agent, type_command, target):
    agent("one")
    target.write_text("not so dear")

    type_command("backup", str(target), "--force")

    assert len(ids(target)) == 1


def test_the_file_of_traces_is_never_its_own_copy(agent, type_command, db, tmp_path):
    agent("one")
    (tmp_path / "link.db").symlink_to(db)

    results = [type_command("backup", str(tmp_path / name), "--force") for name in (db, "link.db")]

    assert [result.exit_code for result in results] == [2, 2]
    assert "is part of the trace database" in results[1].stderr
    assert len(ids(db)) == 1


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


@pytest.mark.usefixtures("writer")
def test_a_copy_beside_a_live_writer_is_sound(type_command, target):
    result = type_command("backup", str(target))

    with closing(sqlite3.connect(target)) as connection:
        (found,) = connection.execute("PRAGMA integrity_check").fetchone()
    assert (result.exit_code, found) == (0, "ok")
    assert len(ids(target)) == 1


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
    assert f"{db}: is damaged, and so would be the backup; record a run" in result.stderr
    assert not [*target.parent.glob("*copy*")]


def test_a_folder_that_does_not_exist_is_an_error_in_words(agent, type_command, tmp_path):
    agent("one")

    result = type_command("backup", str(tmp_path / "nowhere" / "copy.db"))

    assert result.exit_code == 1
    assert "copy.db: No such file or directory; choose another" in result.stderr
