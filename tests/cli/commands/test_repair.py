"""A damaged file is repaired without a run, also where no program would read it."""

import json

import pytest


def integrity(type_command):
    found = json.loads(type_command("doctor", "--json").stdout)
    return next(one["detail"] for one in found if one["check"] == "file")


@pytest.mark.usefixtures("damaged")
def test_the_readable_part_is_restored_and_the_damaged_file_kept(type_command, db, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    assert "kp-middleware repair" in integrity(type_command)

    result = type_command("repair", "--json")

    [copy] = db.parent.glob(f"{db.name}.corrupt-*Z")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == {"path": str(db), "traces": 1, "copy": str(copy)}
    assert "integrity ok" in integrity(type_command)
    assert "one one" in type_command("list").stdout


@pytest.mark.usefixtures("damaged")
def test_people_are_told_what_was_restored(type_command, db):
    printed = type_command("repair").stdout

    assert printed.startswith(f"{db}: 1 run restored; the damaged file is {db}.corrupt-")


def test_a_sound_file_is_left_alone(type_command, agent, db):
    agent("one")
    before = db.read_bytes()

    result = type_command("repair")

    assert (result.exit_code, db.read_bytes()) == (0, before)
    assert result.stdout == f"{db}: nothing to repair\n"


@pytest.mark.parametrize(
    ("content", "told"), [(None, "does not exist"), (b"a letter" * 99, "is not an SQLite file")]
)
def test_what_is_no_file_of_ours_is_told_and_left_alone(type_command, db, content, told):
    if content is not None:
        db.write_bytes(content)

    result = type_command("repair")

    assert result.exit_code == 1
    assert told in result.stderr
    assert (db.read_bytes() if db.exists() else None) == content
