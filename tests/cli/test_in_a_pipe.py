"""Commands print in a pipe as docs/command-line.md says."""

import json

import pytest

LISTS = (
    "list", "list -q one", "similar @last", "outbox list", "config list",
)  # fmt: skip
TEXTS = (
    "show @last", "status", "stats", "calibrate", "show @last --why",
    "diff @last @last", "prune --keep 1", "doctor", "config path",
    "outbox rescan", "rescore --dry-run", "feedback @last --success",
)  # fmt: skip


@pytest.fixture(autouse=True)
def recorded(agent):
    agent("one")
    agent("one more")


@pytest.mark.parametrize("typed", LISTS)
def test_a_list_is_tab_separated(type_command, typed):
    result = type_command(*typed.split())

    assert "\t" in result.stdout.splitlines()[0]


def test_a_query_is_json(type_command):
    assert json.loads(type_command("sql", "select 1 as one").stdout) == [{"one": 1}]


@pytest.mark.parametrize(("command", "format_"), [("list", "tsv"), ("sql", "json")])
def test_help_says_which_format_that_is(type_command, command, format_):
    told = [line.split() for line in type_command(command, "--help").stdout.splitlines()]

    said = [words[0] for words in told if words[-5:] == ["the", "default", "in", "a", "pipe."]]
    assert said == [f"--{format_}"]


@pytest.mark.parametrize("typed", TEXTS)
def test_all_else_is_text_and_json_where_that_is_asked_for(type_command, typed):
    told, as_json = type_command(*typed.split()), type_command(*typed.split(), "--json")

    assert not told.stdout.startswith(("{", "["))
    assert json.loads(as_json.stdout) is not None
