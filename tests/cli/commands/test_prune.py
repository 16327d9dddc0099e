"""Making room, and saying what was or would be removed."""

from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value

from kp_middleware.database import connect


@pytest.fixture
def three(agent):
    """Three traces."""
    [agent(word) for word in ("one", "two", "three")]


@pytest.mark.usefixtures("three")
def test_what_no_rule_keeps_goes_if_it_is_said(type_command, as_json):
    for manner in ([], ["--quiet"]):
        asked = type_command("prune", "--keep", "1", *manner)
        assert asked.stdout == "2 would be removed, 1 kept\n"
        assert asked.stderr == "--yes removes them\n"
    nothing = type_command("prune", "--keep", "3")
    assert nothing.stdout == "0 would be removed, 3 kept\n"
    assert "--yes" not in nothing.stderr
    assert "no run matches" in nothing.stderr
    assert len(as_json("list")) == 3

    result = type_command("prune", "--keep", "1", "--yes")

    assert (result.exit_code, result.stdout) == (0, "2 removed, 1 kept\n")
    assert "VACUUM in sqlite3 shrinks it" in result.stderr
    assert len(as_json("list")) == 1


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--older", "1d"], 3),
        (["--older", "0s"], 0),
        (["--older", "2999-01-01"], 0),
        (["--older", "0s", "--keep", "2"], 2),
        (["--keep", "0", "--domain", "law"], 3),
        (["--keep", "0", "-d", "code"], 0),
        (["--below", "0"], 3),
        (["--below", "1"], 0),
        (["--below", "1", "--keep", "1"], 1),
    ],
)
def test_what_goes_fits_all_that_is_said(as_json, words, kept):
    assert as_json("prune", *words)["kept"] == kept
    assert len(as_json("list")) == 3
    assert as_json("prune", *words, "--yes")["kept"] == kept
    assert len(as_json("list")) == kept


def test_what_was_sent_can_be_kept_and_so_can_what_scored_enough(db, type_command, as_json):
    for value in (0.1, 0.2, 0.3):
        put(db, run("one", step("thought")), with_value(value))
    with closing(connect(db)) as connection:
        connection.execute(
            "INSERT INTO outbox (trace_seq, state, idempotency_key, registry, redactor)"
            " VALUES (1, 'sent', 'k', 'https://r', 'x')"
        )

    type_command("prune", "--below", "0.3", "--keep-sent", "--yes")

    scores = [row["score"] for row in as_json("list")]
    assert scores == [0.3, 0.1]


@pytest.mark.usefixtures("three")
def test_as_json_it_has_numbers_as_numbers(as_json):
    result = as_json("prune", "--keep", "0", "--yes")

    assert result == {"dry_run": False, "removed": 3, "kept": 0}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "choose runs with"),
        (["--keep-sent"], "choose runs with"),
        (["-d", "code"], "choose runs with"),
        (["--keep", "-1"], "--keep"),
        (["--older", "soon"], "--older"),
        (["--below", "30"], "--below"),
        (["--below", "nan"], "'nan' is not a finite number"),
    ],
)
def test_without_a_rule_that_makes_sense_nothing_goes(type_command, as_json, words, complaint):
    result = type_command("prune", *words, "--yes")

    assert result.exit_code == 2
    assert complaint in result.stderr
    assert len(as_json("list")) == 3


@pytest.mark.usefixtures("three")
def test_a_file_that_another_program_keeps_locked_is_an_error_in_words(type_command, kp, db):
    kp.close()
    with closing(connect(db)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")

        result = type_command("prune", "--keep", "1", "--yes")

    locked = "database is locked; close the program that has locked it"
    assert (result.exit_code, result.stderr) == (1, f"Error: {db}: {locked}\n")
