"""Counts of all runs equal those of the plain query, and come from indices."""

import pytest
from stored_runs import query_plan, scored, verdict

from kp_middleware.core.evaluation import Evaluation
from kp_middleware.storage import History

GROUPS = """
    SELECT {key}, count(*) AS traces, coalesce(sum(decision = 'forward'), 0) AS cleared,
           round(avg(score), 4) AS mean_score, max(score) AS best_score,
           round(avg(novelty), 4) AS mean_novelty
    FROM traces NOT INDEXED GROUP BY 1
"""
WEEK = "date(started_at, 'weekday 0', '-6 days')"
KEYS = {"domain": "domain", "model": "model", "day": "substr(started_at, 1, 10)", "week": WEEK}
ADVANCED = ("blocked", "cancelled", "pending", "rejected", "sending", "sent")


@pytest.fixture
def history(connection, store, queue, keep):
    """Of each state, with and without a row in the outbox; two domains, and one without a score."""
    for number, state in enumerate(ADVANCED):
        queue(state=state, score=number / 7, domain="code")
    withdrawn = queue(state="cancelled", score=0.7, domain="code", instant="2026-11-08T23:59:59Z")
    store.save_evaluation(withdrawn, Evaluation(scored(0.6), verdict()))
    keep(score=0.9, decision="forward", domain="code", instant="2026-11-09T00:00:00Z")
    keep(score=0.2, domain="law", visibility="private", instant="2026-11-01T00:00:00Z")
    keep(score=0.4, domain="law", instant="2026-11-02T00:00:00Z")
    keep(domain="law")
    keep(domain="law", complete=False)
    store.fail(keep(domain="none has a score"), "not_scored", "no reason")
    return History(connection)


@pytest.mark.parametrize("by", KEYS)
def test_groups_are_counted_as_in_the_plain_question(connection, history, by):
    plain = connection.execute(GROUPS.format(key=KEYS[by])).fetchall()

    assert sorted(map(tuple, history.groups(by)), key=repr) == sorted(plain, key=repr)


def test_states_and_gates_are_counted_as_the_view_names_them(connection, history):
    plain = connection.execute("SELECT state, count(*) FROM history GROUP BY state")
    (gate,) = history.gates()

    assert dict(history.states()) == dict(plain.fetchall())
    assert gate.traces == gate.cleared + sum(gate.withheld.values()) == 10
    assert (gate.cleared, gate.withheld["custom"]) == (7, 3)


@pytest.mark.parametrize("by", ["domain", "day", "week", "states", "gates", "tools", "funnel"])
def test_totals_are_read_from_indices_alone(connection, history, by):
    steps = query_plan(connection, getattr(history, by, lambda: history.groups(by)))

    # An index with a generated column is never said to cover, though nothing is looked up.
    covering = ("COVERING", "_counted", "_day", "_gates", "_private", "_unscored")
    scans = [step for step in steps if step.startswith("SCAN traces")]
    assert steps
    assert [step for step in scans if not any(word in step for word in covering)] == []
