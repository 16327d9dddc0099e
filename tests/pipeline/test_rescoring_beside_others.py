"""Scoring anew beside the outbox, beside programs that record, and after it was cut off."""

import json
import signal
import subprocess
import sys
from collections import deque
from contextlib import closing

import pytest
from pipeline_helpers import SideEffectEmbedder
from rescored import KEYED, OtherEmbedder, contents, rescore, rows, score_in_turn, traces
from unsent_store import UnsentStore

from kp_middleware import Settings
from kp_middleware.database import connect
from kp_middleware.pipeline import Feedback, Reevaluation, Rescoring
from kp_middleware.storage import MAY_HAVE_BEEN_SENT, History, SqliteStore
from kp_middleware.testing import StandInEmbedder

SURE = {"complexity": 0, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 1}


@pytest.fixture
def keep(pulse, db):
    """Scores runs as a pipeline does that sends nothing."""
    unsent = {"store": UnsentStore.at(db), "embedder": None}
    return lambda runs, **settings: score_in_turn(pulse, runs, **{**KEYED, **unsent, **settings})


@pytest.fixture
def outbox(connection):
    return lambda: {row["trace_seq"]: row for row in rows(connection, "outbox")}


def states(outbox):
    return {seq: row["state"] for seq, row in outbox().items()}


@pytest.mark.parametrize("state", ["sent", "sending", "rejected", "blocked"])
def test_what_has_left_keeps_score_decision_and_row_and_gets_a_vector(
    keep, connection, outbox, db, state
):
    keep(traces(4), threshold=0)
    reason = MAY_HAVE_BEEN_SENT if state == "blocked" else None
    connection.execute("UPDATE outbox SET state = ?, reason = ?", (state, reason))
    before = rows(connection, "traces"), outbox()

    rescoring = rescore(db, StandInEmbedder(), threshold=1, profiles={"general": SURE}, **KEYED)

    assert (rows(connection, "traces"), outbox()) == before
    assert [row["embedder"] for row in rows(connection, "vectors")] == ["stand-in"] * 4
    assert rescoring.counts == {"left": 4, "embedded": 4}


def test_others_are_compared_with_what_was_sent(keep, connection, db):
    keep(traces(1), threshold=0)
    keep(traces(1), threshold=1)
    connection.execute("UPDATE outbox SET state = 'sent'")

    rescore(db, StandInEmbedder(), threshold=1, **KEYED)

    assert [row["nearest_seq"] for row in rows(connection, "traces")] == [None, 1]


def test_what_waits_goes_with_its_new_score(keep, connection, outbox, db):
    keep(traces(1), threshold=0)

    rescoring = rescore(db, OtherEmbedder(), threshold=0, profiles={"general": SURE}, **KEYED)

    (trace,), row = rows(connection, "traces"), outbox()[1]
    body = json.loads(row["body"])
    assert trace["score"] == trace["confidence"] == body["metadata"]["quality_score"]
    assert (row["state"], rescoring.counts["changed"]) == ("pending", 1)


def test_what_waits_and_no_longer_clears_is_cancelled_and_waits_again_where_it_clears(
    keep, outbox, db
):
    keep(traces(3), threshold=0)

    withdrawing = rescore(db, None, threshold=1, **KEYED)

    assert states(outbox) == dict.fromkeys((1, 2, 3), "cancelled")
    assert "is below 1" in outbox()[1]["reason"]
    assert withdrawing.counts == {"changed": 3, "withdrawn": 3, "cancelled": 3}

    rescoring = rescore(db, None, threshold=0, **KEYED)

    assert states(outbox) == dict.fromkeys((1, 2, 3), "pending")
    assert rescoring.counts["queued"] == 3


def test_what_clears_now_is_queued(keep, outbox, db):
    keep(traces(3), threshold=1)

    rescoring = rescore(db, None, threshold=0, **KEYED)

    assert states(outbox) == dict.fromkeys((1, 2, 3), "pending")
    assert rescoring.counts == {"changed": 3, "cleared": 3, "queued": 3}


def test_without_a_key_what_clears_waits_for_one(keep, connection, outbox, db):
    keep(traces(2), threshold=1)

    rescoring = rescore(db, None, threshold=0)
    waits = ["no_key" in row["reason_args"] for row in rows(connection, "traces")]
    keep([], threshold=0)

    assert waits == [True, True]
    assert rescoring.counts == {"changed": 2, "cleared": 2}
    assert states(outbox) == {1: "pending", 2: "pending"}


def test_what_is_private_stays(keep, outbox, db):
    keep(traces(2), threshold=1, visibility="private")

    rescoring = rescore(db, None, threshold=0, **KEYED)

    assert outbox() == {}
    assert rescoring.counts == {"changed": 2, "cleared": 2}


def test_what_is_sent_between_reading_and_writing_stays(keep, connection, outbox, db):
    keep(traces(1), threshold=0)
    before = rows(connection, "traces")
    sent = "UPDATE outbox SET state = 'sent'"

    rescoring = rescore(
        db, SideEffectEmbedder(lambda: connection.execute(sent)), threshold=1, **KEYED
    )

    assert (rows(connection, "traces"), states(outbox)) == (before, {1: "sent"})
    assert rescoring.counts["left"] == 1


def test_what_is_learned_of_a_run_between_reading_and_writing_counts(keep, connection, outbox, db):
    (run,) = traces(1, confidence=0.5)
    keep([run], threshold=0)
    late = Feedback(run.id, success=False, confidence=0.9, given_at_s=1.8e9)

    def give_feedback():
        with closing(connect(db)) as another:
            settings = Settings(threshold=0, **KEYED)
            Reevaluation.from_settings(SqliteStore(another), settings).apply(late)

    rescoring = rescore(
        db, SideEffectEmbedder(give_feedback), threshold=0.4, profiles={"general": SURE}, **KEYED
    )

    (row,) = rows(connection, "traces")
    assert (row["success"], row["confidence"], row["embedder"]) == (0, 0.9, "stand-in")
    assert row["score"] == row["outcome_confidence"] == pytest.approx(0.27)
    assert states(outbox) == {1: "cancelled"}
    assert rescoring.counts == {"changed": 1, "withdrawn": 1, "cancelled": 1, "embedded": 1}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE traces SET state = 'recorded', score = NULL",
        "UPDATE traces SET step_count = step_count + 1",
        "DELETE FROM traces",
    ],
    ids=["goes on", "went on", "removed"],
)
def test_a_run_that_is_another_since_it_was_read_is_left_and_told_of(
    keep, connection, db, statement
):
    keep(traces(1), threshold=0)
    embedder = SideEffectEmbedder(lambda: connection.execute(statement))

    rescoring = rescore(db, embedder, profiles={"general": SURE}, **KEYED)

    assert rescoring.counts == {"overtaken": 1}
    assert rows(connection, "vectors") == []
    assert {row["outcome_confidence_weight"] for row in rows(connection, "traces")} <= {0.25}


def test_what_was_on_its_way_when_it_was_read_is_left_for_that(keep, connection, outbox, db):
    keep(traces(2), threshold=0, embedder=StandInEmbedder())
    connection.execute("UPDATE outbox SET state = 'sending' WHERE trace_seq = 2")
    connection.execute("DELETE FROM vectors WHERE trace_seq = 1")
    released = "UPDATE outbox SET state = 'pending' WHERE trace_seq = 2"
    embedder = SideEffectEmbedder(lambda: connection.execute(released))

    rescoring = rescore(db, embedder, threshold=0, profiles={"general": SURE}, **KEYED)

    assert states(outbox)[2] == "pending"
    assert rescoring.counts == {"changed": 1, "embedded": 1, "left": 1}


def test_a_dry_run_prepares_no_item_and_so_warns_of_none(keep, db, caplog):
    keep(traces(3), threshold=1)
    rules = {"redact_engines": ["gitleaks:/none.toml"], "threshold": 0, **KEYED}

    foreseen = rescore(db, StandInEmbedder(), dry_run=True, **rules).counts
    said = caplog.text
    done = rescore(db, StandInEmbedder(), **rules).counts

    assert foreseen == done
    assert (said, "is not sent" in caplog.text) == ("", True)


SHARE = {**KEYED, "threshold": "top 10%"}
_CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from rescored import KEYED, OtherEmbedder, rescore

class Deadly(OtherEmbedder):
    def embed(self, text, /):
        if len(self.asked) == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(text)

rescore(sys.argv[1], Deadly(), **{**KEYED, "threshold": "top 10%"})
"""


@pytest.fixture
def many(pulse):
    """A file of runs that were scored with another model."""
    score_in_turn(pulse, traces(150))


def rounded(contents):
    """To what a similarity is exact to, wherever a vector lies in memory."""
    return {
        table: [
            {n: round(v, 5) if isinstance(v, float) else v for n, v in row.items() if n != "body"}
            for row in rows
        ]
        for table, rows in contents.items()
    }


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("number", [0, 77])
def test_after_a_kill_the_same_command_does_all_and_embeds_the_rest(
    connection, db, tmp_path, request, number
):
    whole, embedder = tmp_path / "copy.db", OtherEmbedder()
    History(connection).back_up(whole, on_progress=lambda *_: None)
    rescore(whole, OtherEmbedder(), **SHARE)

    words = [sys.executable, "-c", _CHILD, str(db), str(request.path.parent), str(number)]
    killed = subprocess.run(words, timeout=50, check=False)
    rescore(db, embedder, **SHARE)

    assert killed.returncode == -signal.SIGKILL
    assert 150 - number <= len(embedder.asked) <= 150 - number + 8
    with closing(connect(whole, read_only=True)) as not_killed:
        assert rounded(contents(connection)) == rounded(contents(not_killed))


@pytest.mark.usefixtures("many")
def test_programs_go_on_recording_and_what_they_record_is_scored_anew_too(pulse, connection):
    kp = pulse(sync=True, embedder=OtherEmbedder())
    steps = Rescoring(SqliteStore(connection), Settings(), OtherEmbedder()).steps()

    [kp.submit(run) for run, _ in zip(traces(10, seed=9), steps, strict=False)]
    deque(steps, maxlen=0)
    kp.close()

    assert kp.stats().trouble is None
    found = rows(connection, "traces")
    assert {row["embedder"] for row in found} == {"other"}
    vectors = [row for row in rows(connection, "vectors") if row["embedder"] == "other"]
    assert [row["trace_seq"] for row in vectors] == [row["seq"] for row in found]
    assert all(row["nearest_seq"] is None or row["nearest_seq"] < row["seq"] for row in found)


@pytest.mark.usefixtures("many")
def test_a_program_that_was_there_before_looks_back_on_what_was_scored_anew(pulse, stored, db):
    kp = pulse(sync=True, embedder=OtherEmbedder())
    kp.submit(traces(1, seed=9)[0])

    rescore(db, OtherEmbedder())
    kp.submit(traces(1)[0])

    assert stored()["novelty"] == pytest.approx(0, abs=1e-6)
    assert stored()["nearest_seq"] is not None


@pytest.mark.usefixtures("many")
def test_a_run_that_is_removed_meanwhile_is_passed_over(connection, db):
    rescoring = Rescoring(SqliteStore(connection), Settings(), OtherEmbedder())

    with closing(connect(db)) as another:
        for _ in rescoring.steps():
            another.execute("DELETE FROM traces WHERE seq > 60")

    assert sum(rescoring.counts[name] for name in ("changed", "unchanged")) == 60


def test_vectors_stay_in_the_order_of_their_runs_though_it_was_cut_off(pulse, connection, db):
    for embedder in (None, OtherEmbedder()):
        score_in_turn(pulse, traces(8), embedder=embedder)

    rescore(db, OtherEmbedder(), steps=1)
    rescore(db, OtherEmbedder())

    assert [row["trace_seq"] for row in rows(connection, "vectors")] == [*range(1, 17)]
