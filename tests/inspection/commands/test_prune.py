"""Making room, and saying what was or would be removed."""

import json
from contextlib import closing

import pytest
from terminal import typed

from kp_middleware.database import connect


@pytest.fixture
def three(agent):
    """Three traces."""
    [agent(word) for word in ("one", "two", "three")]


@pytest.fixture
def left(type_command):
    return lambda: len(json.loads(type_command("list", "--json").stdout))


@pytest.mark.usefixtures("three")
def test_what_no_rule_keeps_goes(type_command, left):
    result = type_command("prune", "--keep", "1")

    assert (result.exit_code, result.stdout) == (0, "2 removed, 1 kept\n")
    assert "--vacuum shrinks it" in result.stderr
    assert left() == 1


@pytest.mark.usefixtures("three")
def test_a_dry_run_only_says_what_would_go(type_command, left):
    result = type_command("prune", "--keep", "1", "--dry-run")

    assert (result.stdout, result.stderr) == ("2 would be removed, 1 kept\n", "")
    assert left() == 3


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--keep-days", "1"], 3),
        (["--keep-days", "0"], 0),
        (["--keep-days", "0", "--keep", "2"], 2),
        (["--keep", "0", "--domain", "law"], 3),
        (["--keep", "0", "-d", "code"], 0),
    ],
)
def test_the_rules_are_by_age_by_number_and_by_domain(type_command, left, words, kept):
    assert json.loads(type_command("prune", *words, "--json").stdout)["kept"] == kept
    assert left() == kept


@pytest.mark.usefixtures("three")
def test_as_json_it_has_numbers_as_numbers(type_command, db):
    result = json.loads(type_command("prune", "--keep", "0", "--json").stdout)

    size = db.stat().st_size
    assert result == {
        "dry_run": False,
        "removed": 3,
        "kept": 0,
        "size_bytes_before": result["size_bytes_before"],
        "size_bytes": size,
    }


def test_vacuum_gives_the_room_back(agent, kp, type_command, db):
    [agent(f"{number} " + "x" * 5000) for number in range(50)]
    kp.close()

    result = json.loads(type_command("prune", "--keep", "0", "--vacuum", "--json").stdout)

    assert result["size_bytes"] == db.stat().st_size < result["size_bytes_before"]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "say what to keep"),
        (["--vacuum"], "say what to keep"),
        (["--keep", "-1"], "--keep"),
        (["--keep-days", "soon"], "--keep-days"),
    ],
)
def test_without_a_rule_that_makes_sense_nothing_goes(type_command, left, words, complaint):
    result = type_command("prune", *words)

    assert result.exit_code == 2
    assert complaint in result.stderr
    assert left() == 3


def test_a_file_that_does_not_exist_is_not_made(type_command, db):
    result = type_command("prune", "--keep", "1")

    assert (result.exit_code, db.exists()) == (1, False)
    assert "does not exist" in result.stderr


@pytest.mark.usefixtures("three")
@pytest.mark.timeout(30)
def test_a_file_that_another_program_keeps_locked_is_an_error_in_words(type_command, db):
    with closing(connect(db)) as other:
        other.execute("BEGIN IMMEDIATE")

        result = type_command("prune", "--keep", "1")

    assert result.exit_code == 1
    assert (
        result.stderr
        == f"Error: {db}: database is locked; close the program that keeps it locked\n"
    )


@pytest.mark.usefixtures("three")
def test_on_a_terminal_it_says_the_same(db):
    assert "2 removed, 1 kept" in typed("--db", str(db), "prune", "--keep", "1")
