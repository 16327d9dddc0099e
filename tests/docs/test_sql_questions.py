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
def db(tmp_path_factory):
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
        _spread_over_time(connection)
    return path


def _spread_over_time(connection):
    """Not to be made in a moment: another week, a slow run, a refusal."""
    connection.executescript(
        """
        UPDATE traces SET started_at = '2026-01-05T10:00:00.000Z' WHERE seq < 3;
        UPDATE traces SET started_at = '2026-03-02T10:00:00.000Z' WHERE seq >= 3;
        UPDATE traces SET duration_ms = 9000 * (seq = 3), model = iif(seq < 3, 'large', 'small');
        UPDATE traces SET threshold = score + 0.02 WHERE seq = 5;
        UPDATE outbox SET state = 'blocked', reason = 'residual_secret at task.objective'
          WHERE trace_seq = 2;
        """
    )


@pytest.fixture
def ask(db):
    """The rows that answer a question, by column."""

    def rows(beginning):
        with closing(connect(db)) as connection:  # now: a midnight may have passed
            connection.execute(SENT_YESTERDAY)
        (sql,) = (sql for title, sql in QUESTIONS.items() if title.startswith(beginning))
        with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]

    return rows


SENT_YESTERDAY = """
UPDATE outbox SET sent_at = strftime('%Y-%m-%dT12:00:00.000Z', 'now', '-1 day') WHERE trace_seq = 1
"""
A_SHARE = pytest.approx(0.5, abs=0.499)
ANSWERS = {
    "Which domain clears": [
        {"domain": "code", "traces": 3, "cleared": 2, "percent": 66.7},
        {"domain": "finance", "traces": 2, "cleared": 1, "percent": 50.0},
    ],
    "Which tools fail": [
        {"tool": "run", "calls": 2, "failures": 2, "percent": 100.0},
        {"tool": "search", "calls": 4, "failures": 2, "percent": 50.0},
    ],
    "What has just missed": [
        {"objective": "Which invoices are late", "margin": -0.02, "outcome_confidence": 0}
    ],
    "What repeats what": [
        {
            "objective": "Draw a map of the harbour",
            "like_this": "Draw a map of the harbour",
            "similarity": 1.0,
            "from": "2026-03-02T10:00:00.000Z",
        }
    ],
    "What does each model cost": [
        {"model": "large", "traces": 2, "dollars": 2 * (1000 * 3.0 + 100 * 15.0) / 1e6},
        {"model": "small", "traces": 3, "dollars": 3 * (1000 * 0.5 + 100 * 2.0) / 1e6},
    ],
    "Is novelty drying up": [
        {"week": "2026 week 01", "traces": 2},
        {"week": "2026 week 09", "traces": 3, "mean_novelty": A_SHARE},
    ],
    "What is blocked": [
        {"state": "blocked", "traces": 1, "reason": "residual_secret at task.objective"}
    ],
    "Which runs are slowest": [
        {"duration_ms": 9000, "in_tools_ms": 600, "longest_ms": 200},
        *[{"duration_ms": 0}] * 4,
    ],
    "Which runs recovered from the most errors": [
        {"recoveries": 4, "outcome": "not known", "tools": "search,run"}
    ],
    "What left this machine yesterday": [{"objective": "Mend the clock of anna@example.org"}],
}


def test_there_are_ten_questions():
    assert len(ANSWERS) == len(QUESTIONS) == PAGE.count("\n### ") == PAGE.count("```sql") == 10


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered(question, ask):
    expected = ANSWERS[question]

    rows = ask(question)

    told = [{name: row[name] for name in one} for row, one in zip(rows, expected, strict=True)]
    assert told == expected


def test_what_left_yesterday_is_reported_with_what_was_taken_out(ask):
    (row,) = ask("What left this machine yesterday")

    assert json.loads(row["redactions"])["email"] > 0
    assert row["bytes"] > 100
