"""The demo, on a terminal and for a program."""

import pytest
from terminal import typed


@pytest.mark.model
def test_the_demo_tells_what_became_of_each_run_and_what_to_type_next(db):
    shown = typed("demo", "--into", str(db))

    assert f"All 7 runs are in {db}" in shown
    assert shown.count("is at least 0.75") == shown.count("  sent  ")
    assert shown.rstrip().endswith(f" --db {db} show @best")


@pytest.mark.model
def test_the_demo_sends_what_clears_and_keeps_the_rest(as_json, db):
    result = as_json("demo", "--into", str(db))

    states = [run["state"] for run in result["runs"]]
    assert result["sent"] == states.count("sent") >= 1
    assert len(states) >= 6
    assert {run["domain"] for run in result["runs"]} == {"code", "finance"}
    assert not all(run["success"] for run in result["runs"])


def test_where_recording_is_switched_off_the_demo_says_so(type_command, monkeypatch):
    monkeypatch.setenv("KP_ENABLED", "false")

    result = type_command("demo")

    assert result.exit_code == 1
    assert "unset KP_ENABLED" in result.stderr
