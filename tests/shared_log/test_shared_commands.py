"""The commands of the shared log where there is no server; its URL may hold a password."""

import sys
import threading
import time
from unittest.mock import Mock

import psycopg
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from kp_middleware import KnowledgePulse, Settings
from kp_middleware.cli import main
from kp_middleware.errors import SharedLogError
from kp_middleware.locations import settings_file
from kp_middleware.shared_log import Link, address
from kp_middleware.testing import LocalRegistry

URL = "postgresql://me:hush@127.0.0.1:9/agents"
AWAY = "postgresql://127.0.0.1:9/agents: cannot be reached"


@pytest.fixture
def own_file(db):
    with KnowledgePulse(db=db, embedder=None) as kp:
        kp.capture(kp.tool(str.upper))("done")
    return db


@pytest.fixture
def typed(own_file, tmp_path):
    """Types a command; `{own}` is a file with a run, `{copy}` one that is not there yet."""

    def type_(words, url=URL):
        given = words.format(own=own_file, copy=tmp_path / "fleet.db").split()
        result = CliRunner().invoke(main, given, env={"KP_SHARED": url})
        return result.exit_code, " ".join(result.output.split())

    return type_


@pytest.mark.parametrize(
    ("words", "exit_code", "expected"),
    [
        ("shared migrate", 1, f"{AWAY} (connection refused)"),
        ("shared migrate --print", 0, "CREATE SCHEMA kp;"),
        ("pull --db {copy}", 1, AWAY),
        (
            "pull --db {own}",
            1,
            "contains runs that were not pulled; name another file for the copy",
        ),
        ("status --db {own}", 0, "cannot be reached (connection refused)"),
        ("doctor --db {own}", None, f"ERROR shared {AWAY}"),
        ("config", 0, ""),
        ("config --json", 0, ""),
    ],
)
def test_a_server_that_is_away_is_reported_without_its_password(typed, words, exit_code, expected):
    ended, output = typed(words)

    assert exit_code in {None, ended}
    assert expected in output
    assert "hush" not in output


@pytest.mark.parametrize("words", ["shared migrate", "pull --db {copy}"])
def test_a_command_without_a_url_says_which_variable(typed, words):
    assert "set KP_SHARED" in typed(words, url="")[1]


def test_a_log_may_be_named_in_the_settings_file(typed):
    file = settings_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'shared = "{URL}"')

    assert AWAY in typed("status --db {own}", url=None)[1]


def test_status_without_a_log_says_nothing_of_it(typed):
    assert "shared log" not in typed("status --db {own}", url="")[1]


def test_a_shared_log_widens_what_a_run_is_compared_with():
    assert Settings(shared=URL).cache_size == 10_000
    assert Settings(shared=URL, cache_size=5).cache_size == 5
    assert Settings(shared="").shared is None
    assert Settings().cache_size == 1000


@pytest.mark.parametrize("wrong", ["mysql://me:hush@host/db", "hush", "postgresql://me:hush@[/db"])
def test_another_url_is_refused_without_quoting_it(wrong):
    with pytest.raises(ValidationError) as caught:
        Settings(shared=wrong)

    assert "hush" not in str(caught.value)
    assert "postgresql://user@host/database" in str(caught.value)


def test_an_exchange_fails_in_words_of_ours_without_the_password():
    with pytest.raises(SharedLogError) as caught:
        Link(URL, "pod").ask("SELECT 1")

    assert address(URL) == "postgresql://127.0.0.1:9/agents"
    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_what_follows_a_log_outlives_its_server(typed, monkeypatch):
    sleep, mine = time.sleep, threading.current_thread()

    def interrupted(seconds):
        if threading.current_thread() is mine:
            raise KeyboardInterrupt
        sleep(seconds)  # other tests' servers may still run

    monkeypatch.setattr("time.sleep", interrupted)

    assert AWAY in typed("pull --follow --db {copy}")[1]
    assert typed("pull --follow --db {copy}")[0] == 130


def test_doctor_goes_on_without_the_extra(typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with LocalRegistry() as registry:
        monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
        monkeypatch.setenv("KP_API_KEY", registry.api_key)

        assert typed("doctor --db {own}")[1].count("kp-middleware[fleet]") == 2


def test_words_of_a_server_in_another_language_name_both_remedies(monkeypatch):
    german = psycopg.OperationalError("FATAL: Passwort-Authentifizierung fehlgeschlagen")
    monkeypatch.setattr(psycopg, "connect", Mock(side_effect=german))

    with pytest.raises(SharedLogError, match=r"refuses this login.* retry .*correct KP_SHARED"):
        Link(URL, "pod").ask("SELECT 1")


def test_a_pipeline_records_while_the_server_is_away(db, caplog):
    kp = KnowledgePulse(db=db, embedder=None, shared=URL)

    kp.capture(kp.tool(str.upper))("done")
    while kp.flush(0.1).unscored or kp.stats().trouble is None:
        pass
    assert AWAY in kp.stats().trouble
    kp.close(timeout_s=0.1)

    assert "hush" not in caplog.text
