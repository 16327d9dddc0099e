"""Commands work with invalid settings outside of programs, and report them."""

import json

import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse
from kp_middleware.cli import main
from kp_middleware.locations import default_database_file, settings_file

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
    file = settings_file()
    file.parent.mkdir(parents=True)
    file.write_text("domain = 'code'\nthreshold = \n")
    return file


@pytest.mark.parametrize("name", SAID)
def test_commands_that_look_work_and_tell_the_trouble_beside(
    agent, type_command, monkeypatch, name
):
    agent("one")
    value, words = SAID[name]
    monkeypatch.setenv(name, value)

    status = type_command("status", "--json")
    listed = type_command("list", "--json")
    config = type_command("config", "--json")

    trouble = json.loads(status.stdout)["troubles"][0]
    assert trouble.startswith("nothing is sent: ")
    assert (status.exit_code, listed.exit_code, config.exit_code) == (0, 0, 1)
    assert len(json.loads(listed.stdout)) == 1
    for told in (trouble, listed.stderr):
        assert words in told
        assert name in told
    assert f"(from {name})" in config.stderr
    values = {row["setting"]: row["value"] for row in json.loads(config.stdout)}
    assert values["api_key"] is None
    origins = {row["setting"]: row["origin"] for row in json.loads(config.stdout)}
    used = "default" if name == "KP_REGISTRY_URL" else "fail-safe"
    assert origins[name[3:].lower()] == used
    assert values["visibility"] == ("private" if name == "KP_VISIBILITY" else "network")


def test_a_wrong_setting_can_be_mended_by_a_command(type_command):
    file = settings_file()
    file.parent.mkdir(parents=True)
    file.write_text("threshold = 'high'\n")

    result = type_command("config", "set", "threshold", "0.8")

    assert (result.exit_code, file.read_text()) == (0, "threshold = 0.8\n")


@pytest.mark.parametrize("words", [["list", "--json"], ["status", "--json"]], ids=" ".join)
def test_a_settings_file_that_may_name_another_file_is_reported_with_the_one_that_is_read(
    type_alone, broken_file, words
):
    usual = default_database_file()
    with KnowledgePulse(embedder=None, sync=True) as kp:
        kp.capture(lambda: kp.tool(str.upper)("one"))()

    result = type_alone(*words)

    assert result.exit_code == 0
    assert str(broken_file) in result.stderr
    assert "at line 2" in result.stderr
    assert result.stderr.splitlines()[0].endswith(f"using {usual}")


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


@pytest.mark.parametrize("words", ["list", "prune --keep 1 --yes", "feedback @last --failure"])
def test_a_folder_as_the_file_is_reported_and_changes_nothing_in_another(
    type_alone, monkeypatch, tmp_path, words
):
    with KnowledgePulse(embedder=None, sync=True) as kp:
        for question in ("one", "two"):
            kp.capture(kp.tool(str.upper))(question)
    before = default_database_file().read_bytes()
    monkeypatch.setenv("KP_DB", str(tmp_path))

    result = type_alone(*words.split())

    assert result.exit_code == (0 if words == "list" else 1)
    assert f"{tmp_path} is a folder: name a file in it" in result.stderr
    assert f"; using {default_database_file()}" in result.stderr or words != "list"
    assert "disk I/O" not in result.stderr
    assert default_database_file().read_bytes() == before
