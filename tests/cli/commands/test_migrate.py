"""A file of an older version is brought to this one's schema, without a run."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kp_middleware.database import SCHEMA

SCHEMA_6 = Path(__file__).parents[2] / "storage" / "schema_6.sql"


def schema(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


@pytest.fixture
def old(db):
    """A file of schema 6."""
    with closing(sqlite3.connect(db)) as connection:
        connection.executescript(SCHEMA_6.read_text("utf-8"))
    return db


def test_an_older_file_can_be_read_afterwards(type_command, as_json, old):
    result = type_command("migrate", "--json")

    copy = old.with_name(f"{old.name}.before-{SCHEMA}")
    told = json.loads(result.stdout)
    assert told == {
        "path": str(old),
        "schema_before": 6,
        "schema": SCHEMA,
        "copy": str(copy),
    }
    assert (schema(old), schema(copy)) == (SCHEMA, 6)
    listed = as_json("list")
    assert "What is in the soup?" in [row["objective"] for row in listed]


def test_people_are_told_from_which_to_which_and_where_the_copy_is(type_command, old):
    printed = type_command("migrate").stdout

    assert printed == (
        f"{old}: upgraded from schema 6 to {SCHEMA}; the old file is {old}.before-{SCHEMA}\n"
    )


def test_a_file_that_is_up_to_date_is_left_alone(type_command, agent, db):
    agent("one")
    before = db.read_bytes()

    result = type_command("migrate")

    assert (result.exit_code, db.read_bytes()) == (0, before)
    assert result.stdout == f"{db}: schema {SCHEMA} is current\n"
    assert not [*db.parent.glob("*.before-*")]


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "is empty; record a run"), (b"letter " * 99, "not an SQLite")],
    ids=["empty", "another's"],
)
def test_what_is_no_file_of_ours_is_refused_and_left_as_it_is(type_command, db, content, told):
    db.write_bytes(content)

    result = type_command("migrate")

    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert db.read_bytes() == content


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (5, "has schema 5, from an unreleased kp-middleware; move it"),
        (SCHEMA + 1, f"has schema {SCHEMA + 1}, from a newer kp-middleware; upgrade"),
    ],
)
def test_a_file_from_before_the_first_release_or_of_a_newer_one_is_refused(
    type_command, old, version, words
):
    with closing(sqlite3.connect(old)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")

    result = type_command("migrate")

    assert (result.exit_code, schema(old)) == (1, version)
    assert words in result.stderr


def test_where_no_copy_can_be_made_nothing_changes(type_command, old):
    old.with_name(f"{old.name}.before-{SCHEMA}").mkdir()

    result = type_command("migrate")

    assert (result.exit_code, schema(old)) == (1, 6)
    assert "cannot be backed up before upgrading" in result.stderr
    assert "free disk space, or move it elsewhere" in result.stderr


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
    remedy = f"upgrade it: kp-middleware migrate --db {old}"
    assert result.stderr == f"Error: {old}: is from an older kp-middleware; {remedy}\n"


def test_the_remedy_can_be_typed_as_it_stands_there(type_command, old, tmp_path):
    place = tmp_path / "a folder" / "it's old.db"
    place.parent.mkdir()
    shutil.copy(old, place)

    told = type_command("list", "--db", str(place)).stderr

    assert told.endswith("""/a folder/it'"'"'s old.db'\n""")
