"""What a gate looks back on: the last runs of a domain, and a day."""

import time

import pytest

from kp_middleware.instants import instant
from kp_middleware.storage import GateHistory

DAY_S = 24 * 3600
COLUMNS = (
    "id, state, started_at, domain, objective, success, confidence, privacy_level, visibility,"
    " step_count, tool_count, recovery_count, score, decision, decided_at"
)


@pytest.fixture
def put(connection):
    """Stores a scored run; returns its place."""

    def insert(
        score,
        *,
        domain="code",
        decision="withhold",
        days_ago=0.0,
        state="scored",
        visibility="network",
        decided_s_ago=0.0,
    ):
        now_s = time.time()
        values = (
            *(f"kp:trace:{time.perf_counter_ns()}", state, instant(now_s - days_ago * DAY_S)),
            *(domain, "x", 1, 0.5, "private", visibility, 1, 0, 0, score, decision),
            instant(now_s - decided_s_ago),
        )
        places = ", ".join("?" * len(values))
        return connection.execute(
            f"INSERT INTO traces ({COLUMNS}) VALUES ({places})", values
        ).lastrowid

    return insert


@pytest.fixture
def history(connection):
    """Of a run that begins now, after all others."""
    return GateHistory(connection, "code", 10**6, instant(time.time()))


def test_without_runs_nobody_is_ahead(history):
    assert history.standing(0.5, share=0.1) == (0, 0, 0)


def test_those_that_scored_more_are_ahead_and_the_best_share_begins_at_its_last(put, history):
    for hundredth in range(1, 101):
        put(hundredth / 100)

    assert history.standing(0.905, share=0.1) == (100, 10, 0.91)


def test_of_those_that_scored_as_much_the_forwarded_are_ahead(put, history):
    put(0.5)
    put(0.5, decision="forward")

    assert history.standing(0.5, share=0.5).ahead == 1


@pytest.mark.parametrize(
    "other", [{"domain": "chat"}, {"days_ago": 31}, {"score": None, "state": "failed"}]
)
def test_only_scored_runs_of_the_domain_in_the_last_month_count(put, history, other):
    put(0.5)
    put(**{"score": 0.9, **other})

    assert history.standing(0.4, share=0.1) == (1, 1, 0.5)


def test_it_looks_no_further_back_than_500_runs(put, history):
    put(0.9)
    for _ in range(500):
        put(0.1)

    assert history.standing(0.5, share=0.1) == (500, 0, 0.1)


def test_what_came_after_the_run_is_not_looked_at(put, connection):
    put(0.1)
    own = put(0.5)
    put(0.9)

    history = GateHistory(connection, "code", own, instant(time.time()))

    assert history.standing(0.5, share=0.5) == (1, 0, 0.1)


def test_a_day_counts_what_may_leave_of_all_domains(put, history):
    put(0.9, decision="forward")
    put(0.9, decision="forward", domain="chat", decided_s_ago=DAY_S - 60)
    put(0.9, decision="forward", decided_s_ago=DAY_S + 60)
    put(0.9, decision="forward", visibility="private")
    put(0.9, decision="forward", decided_s_ago=-600)
    put(0.9)

    assert history.forwarded_in_a_day() == 2


def test_neither_question_reads_the_rows_themselves(connection, history):
    asked = []
    connection.set_trace_callback(asked.append)
    history.standing(0.5, share=0.1)
    history.forwarded_in_a_day()
    connection.set_trace_callback(None)

    plans = [
        step[-1] for query in asked for step in connection.execute(f"EXPLAIN QUERY PLAN {query}")
    ]
    read = [plan for plan in plans if plan.endswith(")") and " traces " in plan]
    assert len(read) == 2
    assert all("COVERING INDEX" in plan for plan in read)
