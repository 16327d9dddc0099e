"""The remedies of docs/troubleshooting.md mend what they are named for."""

import json
import re
import sqlite3
from contextlib import closing
from importlib.resources import files

import pages
import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.cli import main
from kp_middleware.errors import Problem, ProblemKind
from kp_middleware.locations import database_file
from kp_middleware.testing import Answer, LocalRegistry

PAGE = (pages.ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
SQLITE_S_OWN = {"database is locked", "database disk image is malformed", "disk I/O error"}


def section(title):
    """Return the text below a heading."""
    return re.search(rf"(?ms)^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE)[1]


def commands(title):
    """The commands of a chapter, each as its words."""
    found = re.findall(r"\$ (kp-middleware .*)", section(title))
    return [re.sub(r"\s+#.*", "", line) for line in found]


@pytest.fixture(autouse=True)
def no_model(monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")


def record(objective="What is six times seven?", **settings):
    """Records one run, as a program of its own does."""
    with KnowledgePulse(**settings) as kp:
        kp.capture(answer)(objective)
        kp.flush()


def answer(question):
    current_trace().thought(f"about {question}")
    return "42"


def ask(*words):
    """Runs a command; gives what it prints."""
    return CliRunner().invoke(main, words).output


def states():
    """Those of the newest runs, as `list` has them."""
    return [row["state"] for row in json.loads(ask("list", "--json"))]


def sending(registry):
    return {"registry_url": registry.url, "api_key": registry.api_key, "threshold": 0}


def test_recording_that_is_switched_off_is_reported_by_config(monkeypatch):
    monkeypatch.setenv("KP_ENABLED", "false")

    record()

    assert not database_file().exists()
    assert ask("config", "get", "enabled").strip() == "false"


def test_runs_that_are_recorded_twice_are_found_by_the_query():
    query = re.search(r'kp-middleware sql "(.*)"', section("A run is recorded twice"))[1]
    with KnowledgePulse() as one, KnowledgePulse() as other:
        both = [one.start_recording("python"), other.start_recording("python")]
        [recorder.set_objective("the same") for recorder in both]
        [recorder.thought("the same") for recorder in both]
        [recorder.finish() for recorder in both]

    [found] = json.loads(ask("sql", query))

    assert (found["objective"], found["count(*)"]) == ("the same", 2)


@pytest.mark.model
def test_novelty_that_was_not_measured_is_measured_by_rescore(monkeypatch):
    record("Plan a week of dinners.")
    record("Why are orders refused?")
    monkeypatch.setenv("KP_EMBEDDER", "minilm")

    ask("rescore")

    found = json.loads(ask("sql", "SELECT novelty FROM traces ORDER BY seq"))
    assert found[0]["novelty"] == 0.5
    assert found[1]["novelty"] != 0.5


def test_what_cleared_without_a_key_is_queued_when_a_program_has_one():
    record(threshold=0)
    before = states()

    with LocalRegistry() as registry:
        record("another", **sending(registry))

    assert before == ["not queued"]
    assert states() == ["sent", "sent"]


def test_a_refused_key_is_reported_and_tried_again_by_the_command():
    [command] = commands('"refused the API key"')
    with LocalRegistry(answers=[401]) as registry:
        record(**sending(registry))
        refused = ask("status", "--json")

        ask(*command.split()[1:])
        record("another", **sending(registry))

    assert "refused the API key" in refused
    assert states() == ["sent", "sent"]


def quoted(title):
    """Return the quotes in the first column of a section's table."""
    first = re.findall(r"(?m)^\| (`.*?) \| ", section(title))
    return re.findall(r"`([^`]*)`", " ".join(first))


def test_what_is_said_of_a_registry_is_what_the_product_says_and_nothing_is_missing():
    told = {words for words in quoted('"nothing is sent to"') if "…" not in words}
    kinds = [kind for kind in ProblemKind if kind is not ProblemKind.OTHER]

    told_of = {kind: {one for one in told if one in Problem(kind).description} for kind in kinds}

    assert told == set().union(*told_of.values())
    assert [kind for kind in kinds if not told_of[kind]] == []


def test_a_registry_that_has_lost_all_is_filled_again(monkeypatch):
    [command] = commands("The registry lost data")
    with LocalRegistry() as registry:
        monkeypatch.setenv("KP_AGENT_ID", "agent-1")
        monkeypatch.setenv("KP_API_KEY", registry.api_key)
        monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
        record(threshold=0)
        registry.forget()

        ask(*command.split()[1:])
        record("another", threshold=0)

        assert len(registry.documents) == 2


def test_a_pause_after_429_is_reported_with_when_it_ends():
    an_hour = Answer.of(429, {"error": "slow down"}, Retry_After="3600")
    with LocalRegistry(answers=[an_hour]) as registry:
        record(**sending(registry))

    status = json.loads(ask("status", "--json"))

    assert len(status["pauses"]) == 1
    assert status["pending"] == 1


def test_what_a_missing_engine_blocked_leaves_by_force_once_it_is_given_up(monkeypatch):
    monkeypatch.setenv("KP_REDACT_ENGINES", "gitleaks:/nowhere.toml")
    with LocalRegistry() as registry:
        record(**sending(registry))
    blocked = ask("outbox", "--blocked")
    monkeypatch.delenv("KP_REDACT_ENGINES")

    assert "engine_missing" in blocked
    assert "1 left" in ask("outbox", "retry", "--failed")
    assert "1 released" in ask("outbox", "retry", "--failed", "--force")


def test_a_damaged_file_is_saved_by_the_next_run():
    record()
    with closing(sqlite3.connect(database_file())) as connection:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'traces'"
        (page,) = connection.execute(query).fetchone()
    with database_file().open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    assert "database disk image is malformed" in ask("list")

    record("another")

    assert json.loads(ask("status", "--json"))["set_aside"] != []
    assert "another" in ask("list")


def test_each_message_about_the_file_is_one_that_the_product_says():
    folder = files("kp_middleware").joinpath("database")
    said = "".join(file.read_text("utf-8") for file in folder.iterdir() if file.is_file())
    parts = {part for message in quoted("The file") for part in message.split("; ")}

    assert len(parts) > 3
    assert [part for part in parts - SQLITE_S_OWN if part not in said] == []
