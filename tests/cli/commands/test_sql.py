"""Asking the file in SQL."""

import json
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kp_middleware.cli import main


@pytest.fixture
def asked(agent, type_command):
    agent("one")
    return lambda *words: type_command("sql", *words)


def test_no_row_is_reported_with_its_columns(asked):
    assert asked("SELECT 1 AS a, 2 AS b WHERE 0", "--csv").stdout == "a,b\n"
    assert asked("SELECT 1 AS a WHERE 0", "--fail-empty").exit_code == 4


def test_the_query_can_come_from_standard_input_and_its_answer_is_json(agent, db):
    agent("one")

    result = CliRunner().invoke(main, ["--db", str(db), "sql", "-"], input="SELECT 'é' AS a;\n")

    assert result.stdout == '[{"a": "é"}]\n'


def test_what_json_has_no_word_for_is_readable_and_whole_but_in_a_table(asked):
    found = asked("SELECT x'00ff' AS a, 9e999 AS b").stdout
    query = "SELECT zeroblob(20) AS a"

    assert json.loads(found) == [{"a": "x'00ff'", "b": "inf"}]
    assert asked(query, "--csv").stdout == f"a\nx'{'00' * 20}'\n"
    assert f"x'{'00' * 16}…' (20 bytes)" in asked(query, "--table").stdout


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("SELECT speed FROM traces", "no such column: speed; kp-middleware sql"),
        ("DELETE FROM traces", "only read-only queries are allowed"),
        ("ATTACH '/etc/passwd' AS p", "only read-only queries are allowed"),
        ("SELECT 1", None),
    ],
)
def test_an_error_names_the_problem_and_what_to_do(asked, query, complaint):
    result = asked(query)

    assert result.exit_code == (1 if complaint else 0)
    assert (complaint or "") in result.stderr


@pytest.mark.parametrize("words", [["sql", ""], ["sql", " "], ["recall", ""]], ids=str)
def test_an_empty_question_is_a_usage_error(type_command, words):
    result = type_command(*words)

    assert (result.exit_code, result.stdout) == (2, "")


def test_a_small_number_is_not_told_as_none(asked):
    query = "SELECT 0.00043 AS a, -0.000123456 AS b, 0.0 AS c, 0.5 AS d, 0.0000004 AS took_ms"

    _, row = asked(query, "--table").stdout.splitlines()

    assert row.split() == ["0.00043", "-0.000123", "0", "0.5", "4e-07"]


def test_ctrl_c_ends_a_query_that_is_at_work(agent, db):
    agent("one")
    query = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT i FROM n WHERE i < 3"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "kp_middleware", "--db", str(db), "sql", query, "--nl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    first = process.stdout.readline()  # soon it looks for another row, in vain
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()

    assert (first, said, process.returncode) == ('{"i": 1}\n', "", 130)
