"""The common options, before a command and after it, and the settings that matter there."""

import json

import pytest
from click.testing import CliRunner
from sample_runs import put, run, step

from kp_middleware.cli import main
from kp_middleware.locations import settings_file


@pytest.fixture
def typed():
    """Types a command, with nothing before it."""
    return lambda *words: CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture
def broken():
    """The user's settings file, which is no TOML."""
    file = settings_file()
    file.parent.mkdir(parents=True)
    file.write_text("threshold = 0.8\ndb = \n")
    return file


@pytest.mark.parametrize(
    "words",
    [
        ["--db", "{}", "-q", "leak"],
        ["--db", "{}", "--near", "-q", "leak"],
        ["--db={}", "-qleak", "-n", "5"],
        ["-n", "5", "-q", "leak", "--db", "{}"],
        ["-dservice", "--db", "{}"],
        ["--quiet", "--db", "{}", "--failed"],
        ["--db", "{}"],
    ],
    ids=" ".join,
)
def test_the_options_of_the_list_need_not_name_it(kp, db, typed, words):
    kp.capture(domain="service")(kp.tool(str.upper))("a leak")

    result = typed(*(word.format(db) for word in words), "--json")

    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) == ("--failed" not in words)


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--json", "--db", "{}"],
        ["--json", "--db", "{}"],
        ["--db", "/nowhere/kp.db", "list", "--json", "--db", "{}"],
        ["show", "@last", "--json", "--db={}"],
        ["outbox", "list", "--db", "{}", "--json"],
        ["outbox", "--db", "{}", "list", "--json"],
        ["outbox", "--json", "--db", "{}"],
        ["status", "--db", "{}", "--json"],
        ["config", "get", "db", "--db", "{}", "--json"],
    ],
    ids=" ".join,
)
def test_the_file_may_be_named_after_the_command(agent, db, typed, words):
    agent("one")

    result = typed(*(word.format(db) for word in words))

    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) is not None


def test_a_file_that_was_named_after_the_command_is_named_in_its_errors(db, typed):
    db.write_text("a letter to my aunt, " * 100)

    assert f"{db}: is not an SQLite file" in typed("list", "--db", db).stderr


@pytest.mark.parametrize("words", [["--quiet", "list"], ["list", "--quiet"], ["--quiet"]], ids=str)
def test_quiet_may_be_said_before_and_after_the_command(agent, db, typed, words):
    agent("one")
    agent("two")

    result = typed("--db", db, *words, "-n", "1")

    assert (result.exit_code, result.stderr) == (0, "")
    assert "two" in result.stdout


def test_the_log_is_shown_once_however_often_it_is_asked_for(typed, broken):
    broken.write_text("treshold = 1\n")

    result = typed("-v", "config", "-v", "list", "-v", "--quiet")

    assert result.stderr.count("unknown setting 'treshold'") == 1


@pytest.mark.parametrize("words", [["list"], [], ["status", "--json"]], ids=str)
@pytest.mark.usefixtures("broken")
def test_settings_that_cannot_say_which_file_is_meant_are_not_passed_over(typed, broken, words):
    result = typed(*words)

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{broken}: Invalid value (at line 2" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--db", "{}", "list"],
        ["list", "--db", "{}"],
        ["status", "--help"],
        ["config", "path"],
        ["config", "--help"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("broken")
def test_where_they_do_not_matter_or_are_mended_broken_settings_are_no_error(db, typed, words):
    put(db, run("one", step("thought")))

    assert typed(*(word.format(db) for word in words)).exit_code == 0


def test_the_doctor_says_that_the_settings_are_broken(typed, broken):
    result = typed("doctor", "--json")

    finding, *_ = json.loads(result.stdout)
    assert (finding["check"], finding["ok"], result.exit_code) == ("settings", False, 3)
    assert f": {broken}: Invalid value (at line 2" in finding["detail"]
