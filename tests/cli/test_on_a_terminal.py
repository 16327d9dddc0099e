import json

import pytest
from terminal import typed


def test_a_list_is_a_table_for_people(agent, db):
    agent("How high is Mont Blanc?")

    heading, row = typed("--db", str(db), "list").splitlines()

    assert heading.split()[:3] == ["id", "score", "outcome"]
    assert row.split()[-5:] == ["How", "high", "is", "Mont", "Blanc?"]
    assert "not queued" in row


def test_a_narrow_terminal_cuts_the_last_column_alone(agent, db):
    agent("How high is Mont Blanc, and who climbed it first?")

    _, row = typed("--db", str(db), columns=110).splitlines()

    assert "not queued" in row
    assert row.rstrip().endswith("…")


def test_a_trace_is_shown_as_a_sum(agent, db):
    agent("How high is Mont Blanc?")

    shown = typed("--db", str(db), "show", "@last")

    assert shown.startswith("How high is Mont Blanc?\nkp:trace:")
    assert "-0.100  rule\n" in shown


def test_stats_are_tables(agent, db):
    agent("one")

    shown = typed("--db", str(db), "stats")

    assert shown.startswith("recorded         1\n")
    assert "shout" in shown


@pytest.mark.model
def test_the_demo_tells_what_became_of_each_run_and_what_to_type_next(db):
    shown = typed("demo", "--into", str(db))

    assert f"All 7 runs are in {db}" in shown
    assert shown.count("is at least 0.75") == shown.count("  sent  ")
    assert shown.rstrip().endswith(f" --db {db} show @best")


@pytest.mark.model
def test_the_demo_sends_what_clears_and_keeps_the_rest(type_command, db):
    result = json.loads(type_command("demo", "--into", str(db), "--json").stdout)

    states = [run["state"] for run in result["runs"]]
    assert result["sent"] == states.count("sent") >= 1
    assert len(states) >= 6
    assert {run["domain"] for run in result["runs"]} == {"code", "finance"}
    assert not all(run["success"] for run in result["runs"])
