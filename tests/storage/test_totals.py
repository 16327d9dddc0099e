"""What is counted of all traces: the same as the plain question, and from indices."""

import pytest
from stored_runs import scored, verdict

from kp_middleware.core.evaluation import Evaluation
from kp_middleware.storage import History, ScoreSlices, Slice

GROUPS = """
    SELECT {key}, count(*) AS traces, coalesce(sum(decision = 'forward'), 0) AS cleared,
           round(avg(score), 4) AS mean_score, round(max(score), 4) AS best_score,
           round(avg(novelty), 4) AS mean_novelty
    FROM traces NOT INDEXED GROUP BY 1
"""
WEEK = "date(started_at, 'weekday 0', '-6 days')"
KEYS = {"domain": "domain", "model": "model", "day": "substr(started_at, 1, 10)", "week": WEEK}
ADVANCED = ("blocked", "cancelled", "pending", "rejected", "sending", "sent")


@pytest.fixture
def of_all_kinds(connection, store, outbox, keep):
    """Of each state, with and without a row in the outbox; two domains, and one without a score."""
    for number, state in enumerate(ADVANCED):
        seq = keep(score=number / 7, decision="forward", domain="code")
        outbox.add(seq, b"{}", redactor="r", redactions={})
        connection.execute("UPDATE outbox SET state = ? WHERE trace_seq = ?", (state, seq))
    withdrawn = keep(score=0.7, decision="forward", domain="code", instant="2026-11-08T23:59:59Z")
    outbox.add(withdrawn, b"{}", redactor="r", redactions={})
    connection.execute("UPDATE outbox SET state = 'cancelled' WHERE trace_seq = ?", (withdrawn,))
    store.save_evaluation(withdrawn, Evaluation(scored(0.6), verdict()))
    keep(score=0.9, decision="forward", domain="code", instant="2026-11-09T00:00:00Z")
    keep(score=0.2, domain="law", visibility="private", instant="2026-11-01T00:00:00Z")
    keep(score=0.4, domain="law", instant="2026-11-02T00:00:00Z")
    keep(domain="law")
    store.fail(keep(domain="none has a score"), "not_scored", "no reason")
    seq = keep(domain="law")
    connection.execute("UPDATE traces SET state = 'incomplete' WHERE seq = ?", (seq,))


@pytest.mark.usefixtures("of_all_kinds")
@pytest.mark.parametrize("by", KEYS)
def test_groups_are_counted_as_in_the_plain_question(connection, by):
    groups = History(connection).groups(by)

    plain = connection.execute(GROUPS.format(key=KEYS[by])).fetchall()
    assert sorted(map(tuple, groups), key=repr) == sorted(plain, key=repr)


@pytest.mark.usefixtures("of_all_kinds")
def test_states_are_counted_as_the_history_names_them(connection):
    states = History(connection).states()

    plain = connection.execute("SELECT state, count(*) FROM history GROUP BY state")
    assert dict(states) == dict(plain.fetchall())


@pytest.mark.usefixtures("of_all_kinds")
def test_every_scored_trace_is_counted_with_its_gate(connection):
    (gate,) = History(connection).gates()

    assert gate.traces == gate.cleared + sum(gate.withheld.values()) == 10
    assert (gate.cleared, gate.withheld["custom"]) == (7, 3)


def plans(connection, ask):
    """How SQLite goes about each question that is asked."""
    asked = []
    connection.set_trace_callback(asked.append)
    ask()
    connection.set_trace_callback(None)
    return [
        row[3]
        for sql in asked
        if sql.lstrip().startswith(("SELECT", "WITH"))
        for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")
    ]


def over_all_rows(plans):
    """An index with a generated column is never said to cover, though nothing is looked up."""
    covering = ("COVERING", "traces_counted", "traces_unscored")
    scans = [step for step in plans if step.startswith("SCAN traces")]
    return [step for step in scans if not any(word in step for word in covering)]


@pytest.mark.usefixtures("of_all_kinds")
@pytest.mark.parametrize("by", ["domain", "day", "week", "states", "gates", "tools"])
def test_groups_are_read_from_indices_alone(connection, by):
    history = History(connection)
    steps = plans(connection, getattr(history, by, lambda: history.groups(by)))

    assert steps
    assert over_all_rows(steps) == []


@pytest.mark.usefixtures("of_all_kinds")
def test_statistics_and_thresholds_are_read_from_indices_alone(connection):
    history = History(connection)

    steps = plans(connection, history.funnel)

    read = plans(connection, history.scores)
    assert any("traces USING INDEX traces_counted" in step for step in read)
    assert over_all_rows(steps) == []


def test_slices_are_added_up():
    slices = ScoreSlices(
        0.5,
        (Slice("anna", 40, 3, 0), Slice("bob", 40, 2, 0, is_private=True), Slice("bob", 60, 1, 1)),
    )

    assert (slices.domains, slices.traces, slices.leaving.traces) == (("anna", "bob"), 6, 4)
    assert (slices.reaching(40), slices.reaching(60)) == (6, 1)
