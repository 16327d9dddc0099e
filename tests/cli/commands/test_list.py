"""Listing traces, and choosing among them."""

import json
from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value
from terminal import typed

from kp_middleware.database import connect


@pytest.fixture
def traces(db):
    """Four traces: two in code, of which one failed; one that nearly went; an old, slow one."""
    thought = step("thought", content="hm")
    put(
        db, run("old", thought, instant="2024-03-01T12:00:00Z", duration_ms=20_000), with_value(0.9)
    )
    put(db, run("bad code", thought, domain="code", success=False), with_value(0.2))
    put(db, run("good code", step("tool_call", "grep"), domain="code", id="abc"), with_value(0.8))
    put(db, run("nearly", thought, duration_ms=900), with_value(0.74))


def test_the_nearest_come_first_and_are_not_told_to_reach_it_however_near_they_are(
    db, type_command, as_json
):
    for value in (0.75, 0.74999, 0.74996, 0.75001, 0.75004):
        put(db, run(str(value), step("thought", content="hm")), with_value(value))

    def nearest(*words):
        rows = as_json("list", "--near", *words)
        return [row["objective"] for row in rows]

    assert nearest()[0] == nearest("-n", "1")[0] == "0.75"
    assert {*nearest()[1:3]} == {*nearest("-n", "3")[1:]} == {"0.74999", "0.75001"}
    assert "-0.00001" in type_command("list", "--near", "--table").stdout


@pytest.fixture
def listed(type_command):
    """The objectives that are listed."""

    def list_(*words):
        result = type_command("list", "--json", *words)
        assert result.exit_code == 0, result.stderr
        return [row["objective"] for row in json.loads(result.stdout)]

    return list_


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ["nearly", "good code", "bad code", "old"]),
        (["-n", "2"], ["nearly", "good code"]),
        (["-d", "code"], ["good code", "bad code"]),
        (["--above"], ["good code", "old"]),
        (["--below"], ["nearly", "bad code"]),
        (["--near"], ["nearly", "good code", "old", "bad code"]),
        (["--near", "--below", "-n", "1"], ["nearly"]),
        (["--failed"], ["bad code"]),
        (["--tool", "grep"], ["good code"]),
        (["--slower", "10s"], ["old"]),
        (["--slower", "900ms"], ["nearly", "old"]),
        (["--slower", "0.34m"], []),
        (["--since", "2d"], ["nearly", "good code", "bad code"]),
        (["--since", "30s"], ["nearly", "good code", "bad code"]),
        (["--since", "1y"], ["nearly", "good code", "bad code"]),
        (["--since", "2024-03-01T12:00Z"], ["nearly", "good code", "bad code", "old"]),
        (["--since", "2024-03-01T12:01", "--above"], ["good code"]),
        (["--after", "abc"], ["nearly"]),
        (["--after", "kp:trace:abc", "--above"], []),
        (["-q", "code"], ["bad code", "good code"]),
        (["-q", "code", "--failed", "-d", "code", "--below"], ["bad code"]),
        (["--state", "withheld"], ["nearly", "bad code"]),
        (["--state", "not queued", "-d", "code"], ["good code"]),
    ],
    ids=" ".join,
)
def test_a_list_can_be_narrowed_in_many_ways(listed, words, found):
    assert listed(*words) == found


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--slower", "soon"], "'soon' is not a duration (500ms, 10s"),
        (["--slower", "-1s"], "is not a duration"),
        (["--since", "tomorrow"], "is not a date (2026-11-01) or an age (30s, 5m"),
        (["--since", "2024-13-01"], "2024-13-01"),
        (["--state", "lost"], "'lost' is not one of"),
        (["-n", "0"], "-n"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused(type_command, words, complaint):
    result = type_command("list", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "1", "-d", "code"], "2 in all: -n shows more\n"),
        (["-n", "2", "-d", "code"], ""),
        (["-n", "3", "-d", "code"], ""),
        (["-n", "1", "--near"], "4 in all: -n shows more\n"),
    ],
    ids=" ".join,
)
def test_a_cut_list_says_how_many_fit(type_command, words, told):
    assert type_command("list", *words).stderr == told


@pytest.mark.usefixtures("traces")
def test_a_person_sees_short_ids_and_words(db):
    shown = typed("--db", str(db), "list", "--failed")

    assert shown.splitlines()[1].split()[1:4] == ["0.200", "failed", "withheld"]
    assert shown.splitlines()[1].endswith("bad code")


@pytest.mark.usefixtures("traces")
def test_a_list_works_while_another_program_writes(db, listed):
    with closing(connect(db)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM traces")

        assert len(listed()) == 4

        other.rollback()


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("columns", [80, 149, 150, 200])
def test_every_row_fits_on_one_line_of_the_terminal(db, columns):
    lines = typed("--db", str(db), "list", "-n", "3", columns=columns).splitlines()

    assert len(lines) == 5
    assert max(len(line) for line in lines) <= columns
    assert lines[-1] == "4 in all: -n shows more"


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("columns", [40, 60, 150])
def test_on_which_side_of_the_threshold_it_is_can_be_seen_on_any_terminal(db, columns):
    heading, first, second, *_ = typed(
        "--db", str(db), "list", "--near", columns=columns
    ).splitlines()

    assert "margin" in heading
    assert "-0.0100" in first
    assert "+0.0500" in second
    assert len(first) <= columns


@pytest.mark.usefixtures("traces")
def test_that_nothing_fits_is_reported_beside_the_data_and_can_be_a_failure(type_command):
    result = type_command("list", "-d", "law", "--json")

    assert (result.stdout, result.stderr, result.exit_code) == ("[]\n", "nothing matches\n", 0)
    assert type_command("--quiet", "list", "-d", "law").stderr == ""
    assert type_command("list", "-d", "law", "--fail-empty").exit_code == 4


@pytest.mark.usefixtures("traces")
def test_on_a_narrow_terminal_no_id_and_no_number_is_cut(db):
    lines = typed("--db", str(db), "list", columns=40).splitlines()

    assert lines[0].split() == ["id", "score", "outcome", "objective"]
    assert [line.split()[1] for line in lines[1:]] == ["0.740", "0.800", "0.200", "0.900"]
    assert lines[2].startswith("abc ")
    assert max(map(len, lines)) <= 40


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    "words", [["-c", "id,duration_ms"], ["-c", "id", "-c", "duration_ms"]], ids=str
)
def test_columns_are_named_with_commas_or_one_by_one(as_json, words):
    rows = as_json("list", *words)

    assert [[*row] for row in rows] == [["id", "duration_ms"]] * 4
    assert rows[0]["duration_ms"] == 900


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    ("sort", "column", "first"),
    [
        ("score", "score", "old"),
        ("duration", "duration_ms", "old"),
        ("started", "started_at", "nearly"),
        ("novelty", "novelty", None),
        ("tokens", "tokens", None),
        ("steps", "step_count", None),
    ],
)
def test_runs_are_sorted_by_what_is_shown(type_command, as_json, sort, column, first):
    rows = as_json("list", "--sort", sort)

    values = [row[column] for row in rows if row[column] is not None]
    assert values == sorted(values, reverse=True)
    assert first is None or rows[0]["objective"] == first
    assert column in type_command("list", "--sort", sort, "--tsv").stdout.splitlines()[0]
