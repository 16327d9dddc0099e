"""``kp.import_runs`` in a program."""

from datetime import UTC, datetime

import pytest
from import_samples import SAMPLES

from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder


@pytest.fixture
def kp(db):
    with KnowledgePulse(db=db, embedder=StandInEmbedder()) as kp:
        yield kp


@pytest.fixture
def sessions(tmp_path):
    (tmp_path / "s1.jsonl").write_text(SAMPLES["claude-code"])
    return tmp_path


def test_runs_are_imported_scored_and_counted(kp, sessions):
    found = kp.import_runs("claude-code", sessions, domain="code")
    again = kp.import_runs("auto", sessions)

    assert (found.runs, found.sessions, found.new, found.known) == (2, 1, 2, 0)
    assert (found.files, found.skipped) == ({"claude-code": 1}, {"unknown_type": 1})
    assert (again.new, again.known) == (0, 2)
    assert [(run.domain, run.state) for run in kp.runs()] == [("code", "withheld")] * 2


def test_only_what_began_since_then(kp, sessions):
    since = datetime(2026, 11, 1, 9, 0, 5, tzinfo=UTC)

    found = kp.import_runs("claude-code", str(sessions), since=since)

    assert [run.objective for run in kp.runs()] == ["Then tomorrow."]
    assert found.new == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["chatgpt"], "use claude-code"),
        (["messages"], "name the files"),
        (["atif", "/no"], "/no"),
    ],
)
def test_what_cannot_be_meant_is_a_value_error(kp, words, told):
    with pytest.raises(ValueError, match=told):
        kp.import_runs(*words)
