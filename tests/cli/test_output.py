"""Formats of rows, the same for all commands."""

import csv
import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from terminal import typed

from kp_middleware.database import connect

FULL = Path("/dev/full")
FORMS = ("json", "nl", "csv", "tsv")
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
ROWS = [
    {"id": 1, "score": 0.5, "text": 'a "quoted", b\nnext ü 日本 \x1b[2J'},
    {"id": 2, "score": None, "text": None},
]


@pytest.fixture
def shown(db, type_command):
    """Return the output of a query with these rows."""
    connect(db).close()
    query = "SELECT value ->> 'id' AS id, value ->> 'score' AS score, value ->> 'text' AS text"
    rows = json.dumps(ROWS).replace("'", "''")
    return partial(type_command, "sql", f"{query} FROM json_each('{rows}')")


def test_json_and_csv_can_be_read_again(shown):
    array, lines = shown("--json").stdout, shown("--nl").stdout.splitlines()
    header, *rows = csv.reader(io.StringIO(shown("--csv").stdout, newline=""))

    assert json.loads(array) == ROWS
    assert "ü 日本" in array
    assert array.endswith("}]\n")
    assert [json.loads(line) for line in lines] == ROWS
    assert header == ["id", "score", "text"]
    assert rows == [["1", "0.5", ROWS[0]["text"]], ["2", "", ""]]


def test_tsv_which_is_usual_in_a_pipe_has_a_line_for_each_row_whatever_is_in_it(
    agent, type_command, shown
):
    agent("one")

    assert type_command("list").stdout == type_command("list", "--tsv").stdout
    assert shown("--tsv").stdout.splitlines() == [
        "id\tscore\ttext",
        '1\t0.5\ta "quoted", b next ü 日本 ?[2J',
        "2\t\t",
    ]


@pytest.mark.parametrize("words", [["--csv"], ["--tsv"], ["--table"]], ids=str)
def test_headers_can_be_left_out(shown, words):
    named, bare = shown(*words).stdout, shown(*words, "--no-headers").stdout

    assert named.partition("\n")[2].split() == bare.split()


@pytest.mark.parametrize(
    ("format_", "printed"),
    [
        ("--json", '[{"score": 0.5, "id": 1},\n {"score": null, "id": 2}]\n'),
        ("--nl", '{"score": 0.5, "id": 1}\n{"score": null, "id": 2}\n'),
        ("--csv", "score,id\n0.5,1\n,2\n"),
        ("--tsv", "score\tid\n0.5\t1\n\t2\n"),
    ],
)
def test_only_the_columns_that_are_wanted_are_printed_in_their_order(shown, format_, printed):
    assert shown(format_, "-c", "score", "-c", "id").stdout == printed


@pytest.mark.parametrize("format_", ["--json", "--nl", "--csv", "--tsv", "--table"])
def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are(shown, format_):
    result = shown(format_, "-c", "speed")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "no such column: speed (choose from id, score, text)" in result.stderr


@pytest.mark.parametrize(("words", "code"), [([], 0), (["--fail-empty"], 4)], ids=str)
@pytest.mark.parametrize(
    ("format_", "printed"),
    [("--json", "[]\n"), ("--nl", ""), ("--csv", "a,b\n"), ("--tsv", "a\tb\n")],
)
def test_nothing_is_said_to_be_nothing(db, type_command, words, code, format_, printed):
    connect(db).close()

    result = type_command("sql", "SELECT 1 AS a, 2 AS b WHERE 0", format_, *words)

    assert (result.stdout, result.exit_code) == (printed, code)


@pytest.mark.parametrize("format_", ["--table", "--tsv"])
def test_a_name_of_a_column_is_a_text_that_steers_nothing(agent, db, format_):
    agent("one")
    query = 'SELECT 1 AS "[/x]", 2 AS "[red]y", 3 AS "\x1b[31mz", 4 AS score_mean'

    shown = typed("--db", str(db), "sql", query, format_)

    assert shown.splitlines()[0].split() == ["[/x]", "[red]y", "?[31mz", "score_mean"]


def test_a_query_has_all_its_columns_however_narrow_the_terminal(db, agent):
    agent("one")
    query = "SELECT " + ", ".join(f"1.0 / {number} AS column_{number}" for number in range(3, 9))

    heading, row = typed("--db", str(db), "sql", query, columns=30).splitlines()

    assert len(heading.split()) == len(row.split()) == 6
    assert row.split()[0] == "0.333"


def test_a_wide_sign_takes_two_places_in_a_table(db, type_command):
    connect(db).close()
    query = f"SELECT '{'日' * 60}' AS a, '{'x' * 60}' AS b"

    _, line = type_command("sql", query, "--table").stdout.splitlines()

    assert line.rstrip() == "日" * 60 + "  " + "x" * 47 + "…"


def process(db, *words, stdout):
    """A command in a process of its own; what it said on standard error, and how it ended."""
    command = [sys.executable, "-m", "kp_middleware", "--db", str(db), *words]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr, done.returncode


@pytest.mark.parametrize(
    "words",
    [["list", "--csv"], ["show", "@last"], *(["sql", ENDLESS, f"--{form}"] for form in FORMS)],
    ids=" ".join,
)
def test_a_reader_that_goes_away_is_no_reason_to_complain(agent, db, words):
    agent("one")
    reader, writer = os.pipe()
    os.close(reader)

    ended = process(db, *words, stdout=writer)
    os.close(writer)

    assert ended == ("", 141)


def shell(db, line, **variables):
    """Return a shell's output for a line, with the command as $KP."""
    command = f'"{sys.executable}" -m kp_middleware --db "{db}"'
    return subprocess.run(
        ["sh", "-c", line.replace("$KP", command)],
        capture_output=True,
        env={**os.environ, **variables},
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", "2>&-"])
def test_a_stream_that_is_closed_is_no_trouble(agent, db, closed):
    agent("one")

    done = shell(db, f"$KP list --table {closed}")

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("format_", "encoding"),
    [("--csv", "ascii"), ("--table", "latin-1"), ("--json", "cp1252:strict")],
)
def test_a_pipe_gets_utf_8_whatever_the_locale(agent, db, format_, encoding):
    agent("naïve 日本")

    done = shell(db, f"$KP list {format_} -c objective", PYTHONIOENCODING=encoding)

    assert (done.returncode, done.stderr) == (0, b"")
    assert "naïve 日本" in done.stdout.decode()


@pytest.mark.parametrize("words", ["show", "list -d"])
def test_what_is_no_text_is_an_error_in_words(agent, db, words):
    agent("one")

    done = shell(db, f"$KP {words} \"$(printf '\\377')\"")

    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: 'utf-8' codec can't encode")
    assert done.stderr.count(b"\n") == 1


def test_a_number_that_nothing_can_count_to_is_an_error_in_words(agent, type_command):
    agent("one")

    result = type_command("prune", "--keep", "9" * 30)

    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert result.stderr.startswith("Error: ")


@pytest.mark.parametrize(
    ("words", "variables", "colour"),
    [
        ("list", {"NO_COLOR": "1"}, False),
        ("--no-color list", {}, False),
        ("list", {}, True),
        ("list", {"NO_COLOR": ""}, True),
    ],
    ids=str,
)
def test_who_wants_no_colour_gets_none_in_a_table(
    agent, type_command, monkeypatch, words, variables, colour
):
    agent("one")
    monkeypatch.setenv("FORCE_COLOR", "1")
    [monkeypatch.setenv(name, value) for name, value in variables.items()]

    printed = type_command(*words.split(), "--table").stdout

    assert ("\x1b" in printed) == colour


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_an_error_in_words(agent, db):
    agent("one")

    with FULL.open("w") as full:
        ended = process(db, "list", stdout=full)

    assert ended == ("Error: no space left on device\n", 1)
