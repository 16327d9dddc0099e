"""``status``: everything at a glance."""

import time
from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value
from terminal import typed

from kp_middleware import KnowledgePulse
from kp_middleware.database import SCHEMA, connect
from kp_middleware.locations import pacing_file
from kp_middleware.rate_limit import Pace
from kp_middleware.storage import PacingTable
from kp_middleware.testing import StandInEmbedder

REGISTRY = "https://registry.example"


@pytest.fixture
def change(db):
    """Changes the file by a statement."""

    def run(sql, *values):
        with closing(connect(db)) as connection:
            connection.execute(sql, values)

    return run


@pytest.fixture
def waiting(agent, change):
    """A trace that waits to be sent."""
    agent("one")
    change(
        "INSERT INTO outbox (trace_seq, state, idempotency_key, registry, redactor, body)"
        " VALUES (1, 'pending', 'k', ?, 'r', '{}')",
        REGISTRY,
    )


def noted(*, key_hash="hash", **pacing):
    table = PacingTable(pacing_file(), registry=REGISTRY, agent_id="agent-1", key_hash=key_hash)
    table.change(lambda _: Pace(noted_at=time.time(), **pacing))


def test_the_file_is_reported_with_the_same_numbers_as_stats(agent, as_json, kp, db):
    agent("one")
    agent("two")

    found, stats = as_json("status"), kp.stats()._asdict()

    assert (found["path"], found["schema"]) == (str(db), SCHEMA)
    assert found["size_bytes"] > 4096
    assert found["oldest"] <= found["newest"]
    assert (found["recorded"], found["scored"], found["failed"]) == (2, 2, 0)
    assert (found["waiting_since"], found["pauses"], found["troubles"]) == ({}, [], [])
    of_the_process = {"in_memory", "dropped", "swallowed", "trouble"}
    assert {name: found[name] for name in stats.keys() - of_the_process} == {
        name: value for name, value in stats.items() if name not in of_the_process
    }


@pytest.mark.parametrize(("state", "name"), [("recorded", "unscored"), ("paused", "paused")])
def test_what_waits_is_reported_with_since_when(agent, change, as_json, state, name):
    agent("one")
    change("UPDATE traces SET state = ?, score = NULL", state)

    found = as_json("status")

    assert (found[name], found["waiting_since"]) == (1, {name: found["oldest"]})


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize(
    ("state", "words"),
    [("blocked", "outbox --blocked says why"), ("rejected", "outbox --failed says why")],
)
def test_each_kind_of_trouble_is_one_line_with_what_to_do(change, as_json, state, words):
    change("UPDATE outbox SET state = ?", state)

    (trouble,) = as_json("status")["troubles"]

    assert trouble.startswith("1 ")
    assert words in trouble


@pytest.mark.usefixtures("waiting")
def test_a_pause_of_sending_is_reported_with_its_end_and_its_cause(as_json):
    noted(paused_until=4e9, problem="unheard", problem_since=1.8e9, tries=2)

    found = as_json("status")

    assert found["pauses"] == [
        {
            "registry": REGISTRY,
            "until": "2096-10-02T07:06:40.000Z",
            "refused": False,
            "problem": "unheard",
            "in_words": "two programs exited while waiting for an answer, and another 429 may cost"
            " the key; sending resumes automatically; kp.close(timeout_s=…) waits longer for an"
            " answer",
            "since": "2027-01-15T08:00:00.000Z",
            "tries": 2,
            "next_at": "2096-10-02T07:06:40.000Z",
        }
    ]
    assert found["troubles"][0].startswith(
        f"nothing is sent to {REGISTRY} (since 2027-01-15T08:00:00Z, tried 2 times, next at"
        " 2096-10-02T07:06:40Z if a program is running then): two programs exited while"
    )


@pytest.mark.usefixtures("waiting")
def test_a_key_that_was_refused_is_reported_until_the_user_acts(as_json, type_command):
    noted(stopped_at=1.0)

    found = as_json("status")
    retried = type_command("outbox", "retry", "--failed")

    assert retried.stderr == "retrying the refused API key\n"

    (pause,) = found["pauses"]
    assert (pause["registry"], pause["until"], pause["refused"]) == (REGISTRY, None, True)
    assert "refused the API key (unknown or revoked)" in found["troubles"][0]
    assert "outbox retry --failed" in found["troubles"][0]
    assert as_json("status")["troubles"] == []


@pytest.mark.usefixtures("waiting")
def test_a_pause_that_is_over_or_of_another_key_or_registry_is_not_told(change, as_json):
    noted(stopped_at=1.0)
    noted(key_hash="another", answering=True)
    refused = as_json("status")["pauses"]
    noted(paused_until=1e9)
    over = as_json("status")["pauses"]
    noted(paused_until=4e9)
    change("UPDATE outbox SET registry = 'https://other.example'")

    assert (refused, over, as_json("status")["pauses"]) == ([], [], [])


def test_a_damaged_file_that_was_set_aside_is_reported(agent, db, as_json):
    agent("one")
    aside = db.with_name("kp.db.corrupt-20261121T200000Z")
    aside.touch()

    assert str(aside) in as_json("status")["troubles"][0]


@pytest.mark.usefixtures("waiting")
def test_people_see_it_in_lines_no_longer_than_the_terminal(change, db, type_command):
    change("UPDATE traces SET state = 'failed', score = NULL")
    noted(paused_until=4e9)

    shown = typed("--db", str(db), "status", columns=70)
    piped = type_command("status").stdout

    assert str(db) in piped
    for told in (shown, piped):
        assert "recorded          1\n" in told
        assert "unscorable        1\n" in told
        assert "pending           1  " in told
        assert "dropped" not in told
        sentences = " ".join(told.split())
        assert "1 could not be scored: kp-middleware show ID says why" in sentences
        assert "next at 2096-10-02T07:06:40Z" in sentences
    assert max(map(len, shown.splitlines())) <= 70


def test_an_empty_file_has_a_status(db, as_json):
    KnowledgePulse(db=db, embedder=StandInEmbedder())
    connect(db).close()

    assert (as_json("status")["recorded"], as_json("status")["oldest"]) == (0, None)


def test_that_none_of_100_cleared_is_a_trouble_with_what_to_do(db, as_json, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    for number in range(100):
        put(db, run(f"run {number}", step("thought")), with_value(0.5))
    (trouble,) = as_json("status")["troubles"]
    warned = gate_of(as_json("doctor"))

    put(db, run("a good one", step("thought")), with_value(0.9))

    assert trouble.startswith("none of the last 100 scored runs cleared the gate (threshold 0.75)")
    assert (warned["ok"], warned["warning"]) == (True, True)
    assert 'KP_THRESHOLD="top 10%"' in trouble
    assert 'KP_THRESHOLD="top 10%"' in warned["detail"]
    found = as_json("status")
    assert (found["troubles"], found["last_decisions"]["cleared"]) == ([], 1)
    assert gate_of(as_json("doctor"))["warning"] is False


def gate_of(findings):
    return next(finding for finding in findings if finding["check"] == "gate")
