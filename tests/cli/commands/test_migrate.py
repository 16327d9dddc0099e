"""A file of an older version is brought to this one's schema, without a run."""

import json
import shutil
import sqlite3
from contextlib import closing
from importlib.resources import files

import pytest

from kp_middleware.database import APPLICATION_ID, MIGRATIONS

NOW = len(MIGRATIONS)
SCRIPTS = files("kp_middleware") / "migrations"


def made_by_version(version, db):
    """A file as that version left it, with one run."""
    with closing(sqlite3.connect(db)) as connection:
        for name in MIGRATIONS[:version]:
            connection.executescript((SCRIPTS / f"{name}.sql").read_text("utf-8"))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(
            "INSERT INTO traces (id, state, started_at, domain, objective, success, confidence,"
            " privacy_level, visibility, step_count, tool_count, recovery_count) VALUES"
            " ('kp:trace:a', 'recorded', '2026-11-01T09:14:03.120Z', 'code', 'an old run', 1, 0.5,"
            " 'aggregated', 'network', 0, 0, 0)"
        )
        connection.commit()


def schema(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


@pytest.fixture
def old(db):
    """A file of version 1."""
    made_by_version(1, db)
    return db


@pytest.mark.parametrize("version", range(1, NOW))
def test_a_file_of_each_older_version_can_be_read_afterwards(type_command, db, version):
    made_by_version(version, db)

    result = type_command("migrate", "--json")

    copy = db.with_name(f"{db.name}.before-{NOW}")
    told = json.loads(result.stdout)
    assert told == {
        "path": str(db),
        "schema_before": version,
        "schema": NOW,
        "copy": str(copy),
    }
    assert (schema(db), schema(copy)) == (NOW, version)
    listed = json.loads(type_command("list", "--json").stdout)
    assert [row["objective"] for row in listed] == ["an old run"]


def test_people_are_told_from_which_to_which_and_where_the_copy_is(type_command, old):
    printed = type_command("migrate").stdout

    assert printed == (f"{old}: brought from schema 1 to {NOW}; as it was: {old}.before-{NOW}\n")


def test_a_file_that_is_up_to_date_is_left_alone(type_command, agent, db):
    agent("one")
    before = db.read_bytes()

    result = type_command("migrate")

    assert (result.exit_code, db.read_bytes()) == (0, before)
    assert result.stdout == f"{db}: has schema {NOW}, which is this version's: nothing to do\n"
    assert not [*db.parent.glob("*.before-*")]


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "does not exist"), (b"", "is empty; record a run"), (b"letter " * 99, "not an SQLite")],
    ids=["none", "empty", "another's"],
)
def test_what_is_no_file_of_ours_is_refused_and_left_as_it_is(type_command, db, content, told):
    if content is not None:
        db.write_bytes(content)

    result = type_command("migrate")

    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert (db.read_bytes() if db.exists() else None) == content


def test_a_newer_file_wants_a_newer_version_of_ours(type_command, old):
    with closing(sqlite3.connect(old)) as connection:
        connection.execute(f"PRAGMA user_version = {NOW + 1}")

    result = type_command("migrate")

    assert result.exit_code == 1
    assert f"has schema {NOW + 1}, of a newer kp-middleware; upgrade" in result.stderr


def test_where_no_copy_can_be_made_nothing_changes(type_command, old):
    old.with_name(f"{old.name}.before-{NOW}").mkdir()

    result = type_command("migrate")

    assert (result.exit_code, schema(old)) == (1, 1)
    assert "cannot be copied before it changes" in result.stderr
    assert "make room beside it, or move it elsewhere" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["status"],
        ["backup", "{folder}/copy.db"],
        ["outbox", "retry", "--failed"],
        ["prune", "--keep", "1"],
        ["rescore", "--dry-run"],
    ],
    ids=lambda words: words[0],
)
def test_commands_that_read_name_this_one_as_the_remedy(type_command, old, tmp_path, words):
    result = type_command(*(word.format(folder=tmp_path) for word in words))

    assert result.exit_code == 1
    remedy = f"bring it up to date: kp-middleware migrate --db {old}"
    assert result.stderr == f"Error: {old}: is of an older kp-middleware; {remedy}\n"


def test_the_remedy_can_be_typed_as_it_stands_there(type_command, old, tmp_path):
    place = tmp_path / "a folder" / "it's old.db"
    place.parent.mkdir()
    shutil.copy(old, place)

    told = type_command("list", "--db", str(place)).stderr

    assert told.endswith("""/a folder/it'"'"'s old.db'\n""")
