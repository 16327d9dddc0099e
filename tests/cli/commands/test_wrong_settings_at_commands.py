"""Where something outside of programs is wrong, commands work and tell it."""

import json

import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse, locations
from kp_middleware.cli import main

SAID = {
    "KP_THRESHOLD": ("high", "must be a number from 0 to 1"),
    "KP_VISIBILITY": ("publik", "should be 'private', 'org' or 'network'"),
    "KP_REGISTRY_URL": ("htp:/x", "must begin with https://"),
}


@pytest.fixture
def type_alone():
    """Types a command that names no file."""
    return lambda *words: CliRunner().invoke(main, [*words])


@pytest.fixture
def broken_file():
    file = locations.settings_file()
    file.parent.mkdir(parents=True)
    file.write_text("domain = 'code'\nthreshold = \n")
    return file


@pytest.mark.parametrize("name", SAID)
def test_status_says_first_that_nothing_is_sent_and_why(agent, type_command, monkeypatch, name):
    agent("one")
    monkeypatch.setenv(name, SAID[name][0])

    result = type_command("status", "--json")

    trouble = json.loads(result.stdout)["troubles"][0]
    assert result.exit_code == 0
    assert trouble.startswith("nothing is sent: ")
    assert SAID[name][1] in trouble
    assert name in trouble


@pytest.mark.parametrize("name", SAID)
def test_a_list_is_printed_and_the_trouble_is_told_beside_it(
    agent, type_command, monkeypatch, name
):
    agent("one")
    monkeypatch.setenv(name, SAID[name][0])

    result = type_command("list", "--json")

    assert (result.exit_code, len(json.loads(result.stdout))) == (0, 1)
    assert name in result.stderr
    assert SAID[name][1] in result.stderr


@pytest.mark.parametrize("name", SAID)
def test_the_settings_are_listed_as_they_count_and_the_trouble_is_an_error(
    type_command, monkeypatch, name
):
    monkeypatch.setenv(name, SAID[name][0])

    result = type_command("config", "--json")

    values = {row["setting"]: row["value"] for row in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert name in result.stderr
    assert values["api_key"] is None
    assert values["visibility"] == ("private" if name == "KP_VISIBILITY" else "network")


def test_a_wrong_setting_can_be_mended_by_a_command(type_command):
    file = locations.settings_file()
    file.parent.mkdir(parents=True)
    file.write_text("threshold = 'high'\n")

    result = type_command("config", "set", "threshold", "0.8")

    assert (result.exit_code, file.read_text()) == (0, "threshold = 0.8\n")


@pytest.mark.parametrize("words", [["list", "--json"], ["status", "--json"]], ids=" ".join)
def test_a_settings_file_that_may_name_another_file_is_told_with_the_one_that_is_read(
    type_alone, broken_file, words
):
    usual = locations.default_database_file()
    with KnowledgePulse(embedder=None, sync=True) as kp:
        kp.capture(lambda: kp.tool(str.upper)("one"))()

    result = type_alone(*words)

    assert result.exit_code == 0
    assert str(broken_file) in result.stderr
    assert "at line 2" in result.stderr
    assert result.stderr.splitlines()[0].endswith(f"using {usual}")


def test_a_variable_that_names_a_folder_is_told_in_place_of_a_disk_error(
    type_alone, monkeypatch, tmp_path
):
    monkeypatch.setenv("KP_DB", str(tmp_path))

    result = type_alone("list")

    assert f"{tmp_path} is a folder: name a file in it" in result.stderr
    assert "disk I/O" not in result.stderr


@pytest.mark.parametrize(
    "words", [["calibrate"], ["redact"], ["export"], ["rescore"]], ids=" ".join
)
def test_what_would_answer_by_other_settings_refuses(agent, type_command, monkeypatch, words):
    agent("one")
    monkeypatch.setenv("KP_THRESHOLD", "high")
    monkeypatch.setenv("KP_REDACT_DENY", "/a/,b")

    result = type_command(*words)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "(from KP_THRESHOLD)" in result.stderr


@pytest.mark.parametrize(
    "words", [["prune", "--keep", "1", "--yes"], ["feedback", "@last", "--failure"]]
)
def test_a_folder_as_the_file_changes_nothing_in_another(type_alone, monkeypatch, tmp_path, words):
    with KnowledgePulse(embedder=None, sync=True) as kp:
        for question in ("one", "two"):
            kp.capture(kp.tool(str.upper))(question)
    before = locations.default_database_file().read_bytes()
    monkeypatch.setenv("KP_DB", str(tmp_path))

    result = type_alone(*words)

    assert result.exit_code == 1
    assert "is a folder" in result.stderr
    assert locations.default_database_file().read_bytes() == before
