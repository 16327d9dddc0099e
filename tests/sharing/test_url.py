"""The URL of the shared log may hold a password, which nobody is shown."""

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from kp_middleware import KnowledgePulse, Settings
from kp_middleware.cli import main
from kp_middleware.errors import SharedLogError
from kp_middleware.sharing import Link, address

URL = "postgresql://me:hush@127.0.0.1:9/agents"


def typed(*words, env=None):
    return CliRunner().invoke(main, [*words], env={"KP_SHARED": URL, **(env or {})})


def test_a_shared_log_widens_what_a_run_is_compared_with():
    assert Settings(shared=URL).cache_size == 10_000
    assert Settings(shared=URL, cache_size=5).cache_size == 5
    assert Settings().cache_size == 1000


@pytest.mark.parametrize("wrong", ["mysql://me:hush@host/db", "hush", "postgresql://me:hush@[/db"])
def test_another_url_is_refused_without_quoting_it(wrong):
    with pytest.raises(ValidationError) as caught:
        Settings(shared=wrong)

    assert "hush" not in str(caught.value)
    assert "postgresql://user@host/database" in str(caught.value)


def test_an_empty_one_is_none():
    assert Settings(shared="").shared is None


def test_a_password_is_not_shown():
    assert address(URL) == "postgresql://127.0.0.1:9/agents"


@pytest.mark.parametrize("command", [("config",), ("config", "--json"), ("shared", "migrate")])
def test_no_command_shows_the_password(command):
    assert "hush" not in typed(*command).output


def test_a_server_that_is_away_is_told_with_a_remedy():
    told = typed("shared", "migrate")

    assert told.exit_code == 1
    assert "postgresql://127.0.0.1:9/agents: cannot be reached (connection refused)" in told.output


def test_a_command_without_a_url_says_which_variable():
    assert "set KP_SHARED" in typed("shared", "migrate", env={"KP_SHARED": ""}).output


def test_the_schema_is_printed_without_a_server():
    assert "CREATE SCHEMA kp;" in typed("shared", "migrate", "--print").output


def test_an_exchange_fails_in_words_of_ours():
    link = Link(URL, "pod")

    with pytest.raises(SharedLogError) as caught:
        link.ask("SELECT 1")

    assert "hush" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_pipeline_records_while_the_server_is_away(tmp_path, text, caplog):
    with KnowledgePulse(db=tmp_path / "kp.db", embedder=None, shared=URL) as kp:
        kp.capture(kp.tool(text))()
        assert kp.flush(5).unscored == 0

    assert "hush" not in caplog.text


@pytest.fixture
def text():
    def text() -> str:
        return "done"

    return text
