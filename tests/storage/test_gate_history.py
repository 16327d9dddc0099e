"""A gate's history: the last runs of a domain, and of a day."""

import time

import pytest
from stored_runs import query_plan

from kp_middleware.instants import instant

DAY_S = 24 * 3600


@pytest.fixture
def put(keep, connection):
    """Stores a run, scored if it has a score; returns its place."""

    def insert(score, *, decided_s_ago=0.0, gate="top 10%", chosen=0, credit=None, **facts):
        seq = keep(score=score, **{"domain": "code", **facts})
        decided_at = instant(time.time() - decided_s_ago)
        connection.execute(
            "UPDATE traces SET rank_key = score, decided_at = ?, gate = ?, chosen = ?, credit = ?"
            " WHERE seq = ?",
            (decided_at, gate, chosen, credit, seq),
        )
        return seq

    return insert


@pytest.fixture
def ranking(store):
    """Return the ranking for a run at this place; without a place, for one that begins now."""
    return lambda seq=10**6: store.history(seq, "code").ranking("top 10%", 100)


def test_the_last_runs_are_ranked_by_their_keys(put, ranking):
    for hundredth in range(1, 121):
        put(hundredth / 200)

    found = ranking()

    assert (len(found), found.runs_ahead(0.5), found.keys[-10]) == (100, 20, 111 / 200)


def test_what_the_gate_chose_counts_and_its_last_credit(put, ranking):
    put(0.5, chosen=1, credit=-0.9)
    put(0.5, chosen=1, credit=2.5, gate="top 20%")
    put(0.5, chosen=0, credit=-0.8)

    found = ranking()

    assert (found.chosen_count, found.runs_ahead(0.5), found.credit) == (1, 1, -0.8)


def test_only_scored_runs_of_the_domain_count(put, store, ranking):
    put(0.5)
    put(0.9, domain="chat")
    store.fail(put(None), "not_scored", "no")

    assert len(ranking()) == 1


def test_what_came_after_the_run_is_not_ranked_and_its_credit_counts_for_a_late_one(
    put, keep, ranking
):
    put(0.1, credit=1.0)
    own, late = put(0.5), keep(domain="code")
    put(0.9, credit=2.0)
    put(0.9, credit=3.0, gate="top 20%")

    found = ranking(own)

    assert (len(found), found.credit) == (1, 1.0)
    assert ranking(late).credit == 2.0


def test_a_day_counts_what_may_leave_of_all_domains(put, store):
    put(0.9, decision="forward")
    put(0.9, decision="forward", domain="chat", decided_s_ago=DAY_S - 60)
    put(0.9, decision="forward", decided_s_ago=DAY_S + 60)
    put(0.9, decision="forward", visibility="private")
    put(0.9, decision="forward", decided_s_ago=-600)
    put(0.9)

    assert store.history(10**6, "code").forwarded_in_a_day() == 2


def test_neither_question_reads_the_rows_themselves(connection, store, ranking):
    plan = query_plan(connection, ranking)
    plan += query_plan(connection, store.history(10**6, "code").forwarded_in_a_day)

    read = [step for step in plan if " traces " in step and "rowid=?" not in step]
    assert len(read) == 3
    assert all("COVERING INDEX" in step for step in read)
