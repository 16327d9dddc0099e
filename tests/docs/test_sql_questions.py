"""The questions of docs/sql.md, asked of a file that the product has made."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.testing import LocalRegistry, StandInEmbedder

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text("utf-8")
QUESTIONS = dict(re.findall(r"(?ms)^### (.*?\?)\n(?:(?!^###).)*?```sql\n(.*?)```", PAGE))


def run(kp, objective, *, domain="code", tools=("search", "run"), failures=0, confidence=0.95):
    """One run of an agent, as a program has it."""

    @kp.capture(domain=domain)
    def answer(question):
        trace = current_trace()
        trace.used_tokens(input_tokens=1000, output_tokens=100)
        trace.thought(f"about {question}")
        for tool in tools:
            trace.tool_call(tool, {"text": question})
            for _ in range(failures):
                trace.error("timeout", tool=tool, latency_ms=30)
            trace.observation(tool=tool, output_summary="found", latency_ms=200)
        trace.outcome("done", confidence=confidence)
        return "done"

    answer(objective)


@pytest.fixture(scope="module")
def own_home(tmp_path_factory):
    """As each test has one; this file of traces is made once for all of them."""
    folder = str(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as environment:
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            environment.setenv(name, folder)
        yield


@pytest.fixture(scope="module")
def db(own_home, tmp_path_factory):  # noqa: ARG001 - it must be there before
    """Five runs, of which two went; then time passes."""
    path = tmp_path_factory.mktemp("questions") / "kp.db"
    with (
        LocalRegistry() as registry,
        KnowledgePulse(
            db=path,
            embedder=StandInEmbedder(),
            registry_url=registry.url,
            api_key=registry.api_key,
            agent_id="agent-1",
            threshold=0.6,
        ) as kp,
    ):
        run(kp, "Mend the clock of anna@example.org", tools=("search", "run", "read"))
        run(kp, "Audit the ledger for March", domain="finance", failures=2)
        run(kp, "Draw a map of the harbour", tools=("draw", "look", "measure"))
        run(kp, "Draw a map of the harbour", tools=("search",), confidence=0.1)
        run(kp, "Which invoices are late", domain="finance", confidence=0.0, tools=("search",))
        kp.flush(timeout_s=20)
    with closing(connect(path)) as connection:
        _as_time_goes_by(connection)
    return path


def _as_time_goes_by(connection):
    """Not to be made in a moment: another week, yesterday, a slow run, a refusal."""
    connection.executescript(
        """
        UPDATE traces SET started_at = '2026-01-05T10:00:00.000Z' WHERE seq < 3;
        UPDATE traces SET started_at = '2026-03-02T10:00:00.000Z' WHERE seq >= 3;
        UPDATE traces SET duration_ms = 9000 * (seq = 3), model = iif(seq < 3, 'large', 'small');
        UPDATE traces SET threshold = score + 0.02 WHERE seq = 5;
        UPDATE outbox SET sent_at = strftime('%Y-%m-%dT12:00:00.000Z', 'now', '-1 day')
          WHERE trace_seq = 1;
        UPDATE outbox SET state = 'blocked', reason = 'residual_secret at task.objective'
          WHERE trace_seq = 2;
        """
    )


@pytest.fixture
def ask(db):
    """The rows that answer a question, by column."""

    def rows(beginning):
        (sql,) = (sql for title, sql in QUESTIONS.items() if title.startswith(beginning))
        with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]

    return rows


def test_there_are_ten_questions():
    assert len(QUESTIONS) == PAGE.count("\n### ") == PAGE.count("```sql") == 10


def test_domains_are_ordered_by_what_clears(ask):
    rows = ask("Which domain clears")

    assert [(row["domain"], row["traces"], row["cleared"], row["percent"]) for row in rows] == [
        ("code", 3, 2, 66.7),
        ("finance", 2, 1, 50.0),
    ]


def test_tools_that_fail_are_told_with_how_often(ask):
    rows = ask("Which tools fail")

    assert {(row["tool"], row["calls"], row["failures"], row["percent"]) for row in rows} == {
        ("run", 2, 2, 100.0),
        ("search", 4, 2, 50.0),
    }


def test_what_has_just_missed_tells_its_weakest_value(ask):
    (row,) = ask("What has just missed")

    assert (row["objective"], row["margin"]) == ("Which invoices are late", -0.02)
    assert row["outcome_confidence"] == 0


def test_a_repetition_names_what_it_repeats(ask):
    (row,) = ask("What repeats what")

    assert row["objective"] == row["like_this"] == "Draw a map of the harbour"
    assert (row["similarity"], row["from"]) == (1.0, "2026-03-02T10:00:00.000Z")


def test_each_model_has_its_cost(ask):
    rows = ask("What does each model cost")

    assert [(row["model"], row["traces"], row["dollars"]) for row in rows] == [
        ("large", 2, round(2 * (1000 * 3.0 + 100 * 15.0) / 1e6, 4)),
        ("small", 3, round(3 * (1000 * 0.5 + 100 * 2.0) / 1e6, 4)),
    ]


def test_novelty_is_told_by_week(ask):
    first, second = ask("Is novelty drying up")

    assert (first["week"], first["traces"]) == ("2026 week 01", 2)
    assert (second["week"], second["traces"]) == ("2026 week 09", 3)
    assert 0 < second["mean_novelty"] < 1


def test_what_is_blocked_is_counted_by_reason(ask):
    (row,) = ask("What is blocked")

    assert (row["state"], row["traces"]) == ("blocked", 1)
    assert row["reason"] == "residual_secret at task.objective"


def test_the_slowest_run_comes_first_with_the_time_of_its_tools(ask):
    slowest, *others = ask("Which runs are slowest")

    assert (slowest["duration_ms"], slowest["in_tools_ms"], slowest["longest_ms"]) == (
        9000,
        600,
        200,
    )
    assert len(others) == 4


def test_the_longest_recovery_names_the_tools_that_failed(ask):
    (row,) = ask("Which runs had to try longest")

    assert (row["recoveries"], row["outcome"]) == (4, "done")
    assert sorted(row["tools"].split(",")) == ["run", "search"]


def test_what_left_yesterday_is_told_with_what_was_taken_out(ask):
    (row,) = ask("What left this machine yesterday")

    assert row["objective"] == "Mend the clock of anna@example.org"
    assert json.loads(row["redactions"])["email"] > 0
    assert row["bytes"] > 100
