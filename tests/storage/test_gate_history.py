"""What a gate looks back on: the last runs of a domain, and a day."""

import time

import pytest

from kp_middleware.instants import instant
from kp_middleware.storage import SqliteStore

DAY_S = 24 * 3600
COLUMNS = (
    "id, state, started_at, domain, objective, success, confidence, privacy_level, visibility,"
    " step_count, tool_count, recovery_count, score, decision, decided_at, rank_key, gate, chosen,"
    " credit"
)


@pytest.fixture
def put(connection):
    """Stores a scored run; returns its place."""

    def insert(
        score,
        *,
        domain="code",
        decision="withhold",
        state="scored",
        visibility="network",
        decided_s_ago=0.0,
        gate="top 10%",
        chosen=0,
        credit=None,
    ):
        now_s = time.time()
        values = (
            *(f"kp:trace:{time.perf_counter_ns()}", state, instant(now_s)),
            *(domain, "x", 1, 0.5, "private", visibility, 1, 0, 0, score, decision),
            *(instant(now_s - decided_s_ago), score, gate, chosen, credit),
        )
        places = ", ".join("?" * len(values))
        return connection.execute(
            f"INSERT INTO traces ({COLUMNS}) VALUES ({places})", values
        ).lastrowid

    return insert


@pytest.fixture
def history(connection):
    """Of a run that begins now, after all others."""
    return SqliteStore(connection).history(10**6, "code")


def ranking(history, gate="top 10%", last=100):
    return history.ranking(gate, last)


def test_without_runs_nothing_is_ranked(history):
    found = ranking(history)

    assert (len(found), found.credit, found.chosen_count) == (0, 0, 0)


def test_the_last_runs_are_ranked_by_their_keys(put, history):
    for hundredth in range(1, 121):
        put(hundredth / 200)

    found = ranking(history)

    assert (len(found), found.runs_ahead(0.5), found.key_at(10)) == (100, 20, 111 / 200)


def test_what_the_gate_chose_counts_and_its_last_credit(put, history):
    put(0.5, chosen=1, credit=-0.9)
    put(0.5, chosen=1, credit=2.5, gate="top 20%")
    put(0.5, chosen=0, credit=-0.8)

    found = ranking(history)

    assert (found.chosen_count, found.runs_ahead(0.5), found.credit) == (1, 1, -0.8)


@pytest.mark.parametrize("other", [{"domain": "chat"}, {"score": None, "state": "failed"}])
def test_only_scored_runs_of_the_domain_count(put, history, other):
    put(0.5)
    put(**{"score": 0.9, **other})

    assert len(ranking(history)) == 1


def test_what_came_after_the_run_is_not_ranked(put, connection):
    put(0.1, credit=1.0)
    own = put(0.5)
    put(0.9, credit=2.0)

    found = ranking(SqliteStore(connection).history(own, "code"))

    assert (len(found), found.credit) == (1, 1.0)


def test_a_run_that_is_ranked_late_goes_on_with_the_credit_of_those_after_it(put, connection):
    put(0.1, credit=1.0)
    own = put(None, state="recorded", decision=None)
    put(0.9, credit=2.0)

    assert ranking(SqliteStore(connection).history(own, "code")).credit == 2.0


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
    history.ranking("top 10%", 100)
    history.forwarded_in_a_day()
    connection.set_trace_callback(None)

    plans = [
        step[-1] for query in asked for step in connection.execute(f"EXPLAIN QUERY PLAN {query}")
    ]
    read = [plan for plan in plans if " traces " in plan and "rowid=?" not in plan]
    assert len(read) == 3
    assert all("COVERING INDEX" in plan for plan in read)
