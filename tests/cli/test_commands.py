import json
import re
import subprocess
import sys

import click
import pytest
from terminal import typed

from kp_middleware.cli import main
from kp_middleware.testing import LocalRegistry


def test_the_newest_traces_are_listed_first(agent, type_command):
    agent("one")
    agent("two")

    lines = type_command("list").stdout.splitlines()

    assert [line.split("\t")[-1] for line in lines] == ["objective", "two", "one"]


def test_list_is_what_happens_when_no_command_is_named(agent, type_command):
    agent("one")

    assert type_command().stdout == type_command("list").stdout


@pytest.mark.parametrize(
    ("word", "remedy"),
    [("statu", "(Did you mean one of: 'stats', 'status'?)"), ("1339", "")],
)
def test_a_word_that_is_no_command_is_told_with_the_one_that_is_like_it(type_command, word, remedy):
    result = type_command(word)

    assert result.exit_code == 2
    assert f"No such command '{word}'. {remedy}".strip() in result.stderr


def test_a_list_as_json_has_numbers_as_numbers(agent, type_command):
    agent("one")

    (row,) = json.loads(type_command("list", "--json").stdout)

    assert isinstance(row["score"], float)
    assert (row["domain"], row["state"]) == ("code", "not queued")


def test_a_cut_list_says_how_many_there_are_on_standard_error(agent, type_command):
    agent("one")
    agent("two")

    result = type_command("list", "-n", "1")

    assert result.stderr == "2 in all: -n shows more\n"


@pytest.mark.parametrize("name", ["@last", "@best", "prefix", "whole id"])
def test_a_trace_is_shown_by_any_of_its_names(agent, type_command, name):
    agent("one")
    (row,) = json.loads(type_command("list", "--json").stdout)
    names = {"prefix": row["id"][9:17], "whole id": row["id"]}

    shown = json.loads(type_command("show", names.get(name, name), "--json").stdout)

    assert shown["id"] == row["id"]
    assert [step["type"] for step in shown["steps"]] == ["thought", "tool_call", "observation"]


def test_a_trace_in_a_pipe_has_the_sum_and_the_way_it_went(agent, type_command):
    agent("one")

    shown = json.loads(type_command("show", "@last", "--json").stdout)

    assert [line["part"] for line in shown["arithmetic"]][-2:] == ["single_tool", "score"]
    assert "there is no API key" in shown["delivery_status"]


def test_a_name_that_fits_no_trace_is_an_error_in_words(agent, type_command):
    agent("one")

    result = type_command("show", "zzz")

    assert (result.exit_code, result.stderr) == (1, "Error: no run matches zzz\n")


def test_a_name_that_fits_several_asks_for_more(agent, type_command):
    agent("one")
    agent("two")

    result = type_command("show", "kp:trace:")

    assert "is ambiguous" in result.stderr


def test_a_file_that_does_not_exist_is_an_error_that_says_what_to_do(type_command, db):
    result = type_command("list")

    assert result.exit_code == 1
    assert f"{db}: does not exist; record a run first" in result.stderr


@pytest.mark.model
def test_the_doctor_finds_nothing_where_all_is_well(agent, type_command):
    agent("one")

    result = type_command("doctor", "--json")

    findings = json.loads(result.stdout)
    assert all(finding["ok"] for finding in findings)
    assert "review" in {finding["check"] for finding in findings}
    assert result.exit_code == 0


@pytest.mark.model
def test_the_doctor_asks_the_registry_where_there_is_a_key(type_command, monkeypatch):
    with LocalRegistry() as registry:
        monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
        monkeypatch.setenv("KP_API_KEY", registry.api_key)

        result = type_command("doctor")

        assert registry.url in result.stdout
    assert "answers" in result.stdout


@pytest.mark.model
def test_the_doctor_says_what_to_do_about_trouble(type_command, db, monkeypatch):
    db.write_text("a letter to my aunt, " * 100)
    monkeypatch.setenv("KP_REGISTRY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KP_API_KEY", "kp_" + "0" * 64)

    result = type_command("doctor")

    assert result.exit_code == 3
    assert "is not an SQLite file; name another file with KP_DB or --db" in result.stdout
    assert "correct KP_REGISTRY_URL" in result.stdout


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "kp_middleware", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("0.1")


def test_main_is_the_command_line():
    assert main.name == "main"


def test_the_demo_does_not_touch_a_file_that_has_something_in_it(type_command, db):
    db.write_text("my own traces")

    result = type_command("demo", "--into", str(db))

    assert (result.exit_code, db.read_text()) == (2, "my own traces")
    assert "choose a new file" in result.stderr


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "value", "words", "exit_code"),
    [
        ("KP_EMBEDDER", "none", "KP_EMBEDDER is none", 5),
        ("KP_THRESHOLD", "2", "threshold", 3),
        ("KP_REGISTRY_URL", "http://registry.example", "https", 3),
        ("KP_REDACT_ENGINES", "gitleaks:/none.toml", "until then nothing is sent", 3),
    ],
    ids=["nothing but a registry that is away", "threshold", "address", "engine"],
)
def test_the_doctor_finds_what_is_wrong_with_the_settings(
    type_command, monkeypatch, name, value, words, exit_code
):
    monkeypatch.setenv("KP_API_KEY", "kp_" + "0" * 64)
    monkeypatch.setenv("KP_REGISTRY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)

    result = type_command("doctor")

    assert words in result.stdout
    assert result.exit_code == exit_code


STEERS = "\x1b]0;pwned\x07 \x9b2J \x85 \u202e\u2066\u200f"


@pytest.mark.parametrize(
    "words",
    [
        *(["list"], ["list", "--json"], ["list", "--nl"], ["list", "--tsv"], ["list", "--csv"]),
        *(["show", "@last"], ["show", "@last", "--md"], ["show", "@last", "--json"]),
        *(["show", "@last", "--payload"], ["list", "-q", "steering"], ["diff", "@last", "@best"]),
        *(
            ["show", "@last", "--why"],
            ["similar", "@last"],
            ["stats", "--by", "tool"],
            ["stats"],
            ["export"],
        ),
        *(["sql", "SELECT objective FROM traces"], ["tail", "-n", "1", "--no-follow"]),
    ],
    ids=" ".join,
)
def test_no_command_lets_a_text_of_a_run_steer_or_turn_around_the_terminal(agent, db, words):
    agent(f"steering {STEERS} one")
    agent(f"steering {STEERS} two")

    shown = typed("--db", str(db), *words)

    assert shown
    assert not {*STEERS} - {" ", *"]0;pwned2J"} & {*shown}


def test_what_an_agent_read_cannot_steer_the_terminal(agent, db):
    agent("look \x1b]0;pwned\x07\x1b[2J here")

    shown = typed("--db", str(db), "show", "@last") + typed("--db", str(db), "list")

    assert "look ?]0;pwned??[2J here" in shown
    assert "\x1b" not in shown


def test_help_lists_at_most_thirty_commands_in_groups(type_command):
    told = type_command("--help").stdout

    names = re.findall(r"^  ([a-z]+)  ", told.partition("Find runs:")[2], re.MULTILINE)
    assert names == [*main.list_commands(click.Context(main))]
    assert len(names) <= 30
    assert "..." not in told.partition("Find runs:")[2]
    assert all(f"\n{title}:\n" in told for title in ("Find runs", "Share", "Set up"))
