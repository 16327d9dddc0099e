"""Every command shows known outcomes, and never calls an assumed one a success."""

import csv
import io
import json
from contextlib import closing

import pytest
from sample_runs import put, run, step, with_value
from terminal import typed, typed_with_keys

from kp_middleware import KnowledgePulse, ReasoningTrace, Step
from kp_middleware.database import connect

THOUGHT = step("thought")


@pytest.fixture
def ended(db):
    """Stores runs that ended so, as somebody has told; a gate forwards the better ones."""

    def store(number, *, score, success=True, source="verdict"):
        for _ in range(number):
            made = run("one", THOUGHT, domain="code", success=success, success_source=source)
            put(db, made, with_value(score))

    return store


@pytest.fixture
def estimated(agent, kp):
    """A run of which nobody has said anything, after twelve that somebody has judged."""
    for number in range(12):
        agent(f"add {number} and {number}" if number % 2 else f"paint a bird number {number}")
        kp.feedback(kp.runs(limit=1)[0].id, success=bool(number % 2))
    agent("paint a bird number 20")
    kp.flush()


def test_an_assumed_success_is_not_known(ended, db, type_command, as_json):
    ended(1, score=0.9, source="assumed")

    assert "not known" in typed("--db", str(db), "list", columns=200)
    listed = type_command("list", "--csv", "-c", "success,success_source").stdout
    [row] = csv.DictReader(io.StringIO(listed))
    assert (row["success"], row["success_source"]) == ("", "assumed")
    for found in (*as_json("list"), as_json("show", "@last")):
        assert (found["success"], found["success_source"]) == (None, "assumed")
    assert "- outcome: not known" in type_command("show", "@last", "--md").stdout
    assert "outcome: not known" in typed("--db", str(db), "show", "@last", "--why")


@pytest.mark.parametrize(
    "words", [["export"], ["export", "--as-recorded"], ["show", "--payload", "@last"]]
)
def test_a_document_marks_a_success_that_is_only_assumed(ended, type_command, words):
    ended(1, score=0.9, source="assumed")
    metadata = json.loads(type_command(*words).stdout)["metadata"]
    assert (metadata["success"], metadata["success_source"]) == (True, "assumed")

    type_command("feedback", "@last", "--success")
    assert "success_source" not in json.loads(type_command(*words).stdout)["metadata"]


def test_calibrate_counts_only_what_is_known(ended, db, as_json):
    ended(3, score=0.9, source="assumed")
    ended(2, score=0.9)
    ended(1, score=0.9, success=False)

    at = next(one for one in as_json("calibrate")["settings"] if one["setting"] == 0.75)

    assert (at["let_through"], at["succeeded"], at["known"]) == (6, 2, 3)
    told = typed("--db", str(db), "calibrate", columns=160)
    assert "2 of 3 known (" in told
    assert "2 of 3 runs with a confirmed outcome succeeded; 2 of the 3 forwarded" in told


def test_what_was_forwarded_is_held_beside_all_runs(ended, db, as_json):
    ended(8, score=0.9)
    ended(1, score=0.9, success=False)
    ended(9, score=0.1)
    ended(23, score=0.1, success=False)
    ended(5, score=0.9, source="assumed")
    ended(5, score=0.9, source="said")

    found = as_json("status")

    told = "17 of 41 runs with a confirmed outcome succeeded; 8 of the 9 forwarded"
    assert found["successes"]["in_words"] == told
    assert found["successes"]["warning"] is None
    assert found["troubles"] == []
    assert told in " ".join(typed("--db", str(db), "status").split())


@pytest.mark.parametrize("threshold", [0.4, "top 20%"])
def test_what_the_gate_chose_counts_as_that_when_feedback_withdraws_it(db, as_json, threshold):
    steps = [Step(step_id=0, type="thought"), Step(step_id=1, type="observation")]
    with KnowledgePulse(db=db, embedder=None, sync=True, threshold=threshold) as kp:
        runs = [ReasoningTrace.of(f"Ask {number}", steps) for number in range(40)]
        [kp.submit(run) for run in runs]
        [kp.feedback(run.id, success=False) for run in runs[:39]]
        kp.feedback(runs[39].id, success=True)

    found = as_json("status")["successes"]

    assert (found["known"], found["succeeded"]) == (40, 1)
    assert found["forwarded_known"] >= 6
    assert found["forwarded_succeeded"] <= 1


def test_a_gate_that_chooses_worse_than_chance_is_a_trouble(ended, as_json):
    ended(9, score=0.9, success=False)
    ended(5, score=0.1)
    nine = as_json("status")["troubles"]
    ended(1, score=0.9, success=False)
    (ten,) = as_json("status")["troubles"]

    assert nine == []
    assert ten.startswith("the gate chooses worse than chance")


def test_silence_on_fifty_forwarded_runs_is_a_trouble(ended, as_json):
    silence = "none of 50 forwarded runs has a known outcome: kp-middleware review"
    troubles = []
    for number, source in ((49, "assumed"), (1, "assumed"), (1, "verdict")):
        ended(number, score=0.9, source=source)
        troubles.append(as_json("status")["troubles"])

    assert troubles == [[], [silence], []]


@pytest.mark.usefixtures("estimated")
def test_the_estimate_is_reported_with_reasons_and_track_record(db, kp, type_command, as_json):
    told = typed("--db", str(db), "show", "@last", "--why", columns=300)

    estimate = kp.run(kp.runs(limit=1)[0].id).estimate
    assert estimate.known == 11  # nothing was known before the first
    assert f"P(success) was estimated as {estimate.p:.2f}: " in told
    assert "like runs that failed (against it)" in told
    assert f"Right on {estimate.right} of 11 runs with a known outcome; guessing " in told
    assert type_command("show", "@last", "--why").exit_code == 0

    [item] = as_json("review")
    reviewed, _ = typed_with_keys("--db", str(db), "review", keys="q", prompt="q quit ")
    assert 0 < item["p_success"] < 0.5
    assert item["p_reasons"][0][0] == "likeness"
    assert f"P(success) {item['p_success']:.2f}: like runs that failed" in " ".join(
        reviewed.split()
    )


def test_a_review_asks_first_what_the_estimate_is_least_sure_of(ended, db, as_json):
    for score in (0.7, 0.1, 0.2):
        ended(1, score=score, source="assumed")
    with closing(connect(db)) as connection:
        connection.execute("UPDATE traces SET p_success = 0.99 WHERE score = 0.2")
        connection.execute("UPDATE traces SET p_success = 0.4 WHERE score = 0.7")

    assert [item["score"] for item in as_json("review")] == [0.1, 0.7, 0.2]
