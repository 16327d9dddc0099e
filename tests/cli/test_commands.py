import json
import re
import subprocess
import sys

import click
import pytest
from terminal import typed

from kp_middleware.cli import main
from kp_middleware.testing import LocalRegistry


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["statu"], "No such command 'statu'. (Did you mean one of: 'stats', 'status'?)"),
        (["1339"], "No such command '1339'."),
        (["outbox", "shwo"], "No such command 'shwo'. Did you mean 'show'?"),
        (["config", "gett", "domain"], "No such command 'gett'."),
        (["config", "1339"], "No such command '1339'."),
    ],
    ids=" ".join,
)
def test_a_word_that_is_no_command_is_reported_with_the_one_that_is_like_it(
    type_command, words, message
):
    result = type_command(*words)

    assert result.exit_code == 2
    assert message in result.stderr
    assert " --help" in result.stderr


def test_a_common_option_without_its_value_is_named(type_command):
    result = type_command("--db")

    assert (result.exit_code, result.stderr) == (2, "Error: Option '--db' requires an argument.\n")


@pytest.mark.parametrize("name", ["@last", "@best", "prefix", "whole id"])
def test_a_trace_is_shown_by_any_of_its_names(agent, as_json, name):
    agent("one")
    (row,) = as_json("list")
    names = {"prefix": row["id"][9:17], "whole id": row["id"]}

    shown = as_json("show", names.get(name, name))

    assert shown["id"] == row["id"]
    assert [step["type"] for step in shown["steps"]] == ["thought", "tool_call", "observation"]
    assert [line["part"] for line in shown["arithmetic"]][-2:] == ["single_tool", "score"]
    assert "there is no API key" in shown["delivery_status"]


def test_a_name_that_fits_no_trace_or_several_is_an_error_in_words(agent, type_command):
    agent("one")
    agent("two")

    none, several = type_command("show", "zzz"), type_command("show", "kp:trace:")

    assert (none.exit_code, none.stderr) == (1, "Error: no run matches zzz\n")
    assert "is ambiguous" in several.stderr


@pytest.mark.parametrize(
    "typed",
    [
        *("list", "--quiet list", "status", "ui --no-open", "report {out}", "export", "migrate"),
        *("rescore", "prune --keep 1 --yes", "feedback @last --success"),
        *("outbox retry --failed", "outbox rescan", "backup {out}"),
    ],
)
def test_a_file_that_does_not_exist_is_an_error_and_not_made(type_command, db, tmp_path, typed):
    out = tmp_path / "out"

    result = type_command(*(word.format(out=out) for word in typed.split()))

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{db}: does not exist; record a run first" in result.stderr
    assert not db.exists()
    assert not out.exists()


@pytest.mark.model
def test_the_doctor_finds_nothing_where_all_is_well(agent, type_command, monkeypatch):
    agent("one")
    with LocalRegistry() as registry:
        monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
        monkeypatch.setenv("KP_API_KEY", registry.api_key)

        result = type_command("doctor", "--json")

    findings = {finding["check"]: finding for finding in json.loads(result.stdout)}
    assert all(finding["ok"] for finding in findings.values())
    assert "review" in findings
    assert findings["registry"]["detail"].endswith("answers and accepts this API key")
    assert result.exit_code == 0


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "kp_middleware", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("0.1")


def test_the_demo_does_not_touch_a_file_that_has_something_in_it(type_command, db):
    db.write_text("my own traces")

    result = type_command("demo", "--into", str(db))

    assert (result.exit_code, db.read_text()) == (2, "my own traces")
    assert "choose a new file" in result.stderr


STEERS = "\x1b]0;pwned\x07 \x9b2J \x85 \u202e\u2066\u200f"


PRINTING = (
    *("list", "list --json", "list --nl", "list --tsv", "list --csv", "list -q steering"),
    *("show @last", "show @last --md", "show @last --json", "show @last --payload"),
    *("show @last --why", "diff @last @best", "similar @last", "tail -n 1 --no-follow"),
    *(
        "stats",
        "stats --by tool",
        "export",
        "export --as-recorded",
        "sql SELECT\tobjective\tFROM\ttraces",
    ),
)


def test_no_command_lets_a_text_of_a_run_steer_or_turn_around_the_terminal(agent, db):
    agent(f"steering {STEERS} one")
    agent(f"steering {STEERS} two")

    printed = {words: typed("--db", str(db), *words.split(" ")) for words in PRINTING}

    assert all(printed.values())
    harmless = {" ", *"]0;pwned2J"}
    assert [words for words, text in printed.items() if ({*STEERS} - harmless) & {*text}] == []


def test_help_lists_at_most_thirty_commands_in_groups(type_command):
    told = type_command("--help").stdout

    names = re.findall(r"^  ([a-z]+)  ", told.partition("Find runs:")[2], re.MULTILINE)
    assert names == [*main.list_commands(click.Context(main))]
    assert len(names) <= 30
    assert "..." not in told.partition("Find runs:")[2]
    assert all(f"\n{title}:\n" in told for title in ("Find runs", "Share", "Set up"))
