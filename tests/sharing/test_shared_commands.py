"""The commands of the shared log, where there is no server."""

import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse
from kp_middleware.cli import main

URL = "postgresql://me:hush@127.0.0.1:9/agents"


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "kp.db"
    with KnowledgePulse(db=path, embedder=None) as kp:
        kp.capture(kp.tool(str.upper))("done")
    return path


def typed(*words, url=URL):
    return CliRunner().invoke(main, [*words], env={"KP_SHARED": url})


def test_a_file_with_runs_of_its_own_becomes_no_copy(own_file):
    told = typed("pull", "--db", str(own_file))

    assert told.exit_code == 1
    assert "has runs of its own; name another file for the copy with --db" in told.output


def test_a_log_that_is_away_is_told(tmp_path):
    told = typed("pull", "--db", str(tmp_path / "fleet.db"))

    assert told.exit_code == 1
    assert "postgresql://127.0.0.1:9/agents: cannot be reached" in told.output


def test_pull_needs_a_shared_log(tmp_path):
    assert "set KP_SHARED" in typed("pull", "--db", str(tmp_path / "fleet.db"), url="").output


def test_status_says_why_the_log_cannot_be_asked(own_file):
    told = typed("status", "--db", str(own_file))

    assert told.exit_code == 0
    assert "cannot be reached (connection refused)" in " ".join(told.output.split())


def test_status_without_a_log_says_nothing_of_it(own_file):
    assert "shared log" not in typed("status", "--db", str(own_file), url="").output


def test_doctor_looks_for_the_log(own_file):
    told = typed("doctor", "--db", str(own_file))

    assert "TROUBLE  shared    postgresql://127.0.0.1:9/agents: cannot be reached" in told.output
    assert "hush" not in told.output
