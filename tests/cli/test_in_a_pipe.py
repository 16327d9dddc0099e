"""What commands print where nobody looks is what docs/command-line.md says."""

import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__, "../../../docs/command-line.md").resolve().read_text()
LISTS = (
    "list", "list -q one", "similar @last", "outbox list", "config list",
)  # fmt: skip
AS_JSON = re.findall(r"`(\w+)`", re.search(r"tab-separated in a pipe\.([^;]+);", PAGE)[1])
ARGUMENTS = {"show": "@last", "sql": "select 1"}
TEXTS = (
    "show @last --why", "diff @last @last", "prune --keep 1", "doctor", "config path",
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


def test_it_names_what_is_json():
    assert sorted(AS_JSON) == ["calibrate", "show", "sql", "stats", "status"]


@pytest.mark.parametrize("name", AS_JSON)
def test_what_it_names_is_json(type_command, name):
    words = [ARGUMENTS[name]] if name in ARGUMENTS else []

    assert json.loads(type_command(name, *words).stdout)


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
