"""Failures are reported once, cost the agent nothing, and lose nothing that can be kept."""

import signal
import time

import numpy as np
import pytest
from pipeline_helpers import NotReady, echo, wait_until, warnings_in

from kp_middleware import ReasoningTrace
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.testing import StandInEmbedder


class OddEmbedder(StandInEmbedder):
    """Gives these answers, and then its own; raises them if they are errors."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = [*answers]

    def embed(self, text, /):
        if not self.answers:
            return super().embed(text)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def test_while_a_path_cannot_be_used_that_is_said_once_and_the_runs_wait(pulse, db, caplog):
    kp = pulse(sync=True)
    agent = echo(kp)
    db.mkdir()

    assert [agent("one"), agent("two")] == ["one", "two"]
    assert kp.flush(timeout_s=40).unscored == 2  # it does not wait in vain
    [said] = warnings_in(caplog)
    assert str(db) in said
    assert "is a directory" in said.lower()

    db.rmdir()
    agent("three")
    assert not kp.flush()
    assert kp.stats().scored == 3


def test_a_file_that_is_no_database_is_left_as_it_is_and_told_of(pulse, db, caplog):
    db.write_text("a letter to my aunt, " * 100)
    kp = pulse(sync=True)

    echo(kp)("one")
    stats = kp.stats()
    kp.close()

    assert (stats.in_memory, stats.recorded) == (1, 0)
    assert stats.trouble == f"{db}: is not an SQLite file; name another file with KP_DB or --db"
    first, last = warnings_in(caplog)
    assert stats.trouble in first
    assert last.startswith("finished runs that could not be stored and are lost: 1; ")
    assert db.read_text().startswith("a letter")


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (np.full(384, np.nan, dtype=np.float32), "NaN"),
        (np.ones(3, dtype=np.float32), "expected a vector of 384 dimensions, got 3"),
        (EmbedderUnavailableError("there is no model"), "there is no model"),
        (SystemExit("as a panic"), "as a panic"),
    ],
    ids=["NaN", "wrong dimension", "no model, which is asked for once a run", "panic"],
)
def test_a_run_whose_vector_cannot_be_used_is_scored_without_it_and_said_once(
    pulse, stored, caplog, vector, words
):
    agent = echo(pulse(embedder=OddEmbedder(vector, vector), sync=True))

    agent("one")
    agent("two")
    without = stored()
    agent("three")

    assert (without["state"], without["novelty"], without["embedder"]) == ("scored", 0.5, None)
    assert stored()["embedder"] == "stand-in"
    [said] = warnings_in(caplog)
    assert words in said


class NoModel(StandInEmbedder):
    """Raises as MiniLM does on a machine that has no model, also if asked for its name."""

    @property
    def name(self):
        raise EmbedderUnavailableError("there is no model")


def test_without_a_model_runs_are_scored_after_feedback_too(pulse, stored):
    kp = pulse(embedder=NoModel(), sync=True)
    agent = echo(kp)
    agent("one")

    kp.feedback(stored()["id"], success=True)
    agent("two")

    assert (stored()["state"], stored()["novelty"]) == ("scored", 0.5)


@pytest.mark.parametrize("answer", [LookupError("short"), np.full(384, np.nan), [1.0] * 3])
def test_a_run_whose_task_cannot_be_embedded_is_compared_all_the_same(
    pulse, stored, caplog, answer
):
    embedder = OddEmbedder(np.ones(384), answer, np.ones(384), answer)
    agent = echo(pulse(embedder=embedder, sync=True))

    agent("one")
    agent("two")

    assert (stored()["state"], stored()["novelty"]) == ("scored", pytest.approx(0, abs=1e-6))
    [said] = warnings_in(caplog)
    assert "the embedder failed: recall compares words only" in said


def test_runs_wait_in_the_file_for_a_model_that_is_on_its_way(pulse, stored):
    kp = pulse(embedder=OddEmbedder(EmbedderNotReadyError("downloading")), sync=True)

    echo(kp)("one")

    stats = kp.stats()
    assert (stored()["state"], stats.recorded, stats.unscored) == ("recorded", 1, 1)
    assert kp.flush().unscored == 0


def test_a_paused_run_whose_time_is_over_ends_while_the_model_is_on_its_way(pulse):
    embedder = NotReady()
    kp = pulse(embedder=embedder, thread_idle_s=0)
    echo(kp)("one")
    turn = kp.start_recording("test")
    turn.thread_id = "T"
    turn.thread_notes.resume()
    turn.thought("said")
    turn.thread_notes.awaits = "turn"

    turn.finish(None)
    kp.flush()
    time.sleep(0.5)

    assert (kp.stats().paused, kp.stats().unscored) == (0, 2)
    assert len(embedder.asked) < 10, "the thread asks once a second, not all the time"


def test_a_run_that_cannot_be_kept_is_said_and_the_next_goes_on(pulse, stored, caplog):
    kp = pulse(sync=True)
    hollow = ReasoningTrace.model_construct(steps=())

    kp.submit(hollow)
    echo(kp)("two")

    assert "two" in stored()["objective"]
    assert "a run was lost" in caplog.text
    assert not kp.flush()
    assert kp.stats().dropped == 1


def test_an_unreachable_registry_keeps_the_trace_for_later(pulse, stored, caplog):
    kp = pulse(registry_url="http://127.0.0.1:9", api_key="kp_" + "0" * 64, threshold=0)

    echo(kp)("one")
    wait_until(lambda: warnings_in(caplog))

    assert kp.flush(timeout_s=0.1) == (0, 1)
    assert stored()["outbox"]["state"] == "pending"
    assert len(warnings_in(caplog)) == 1


def test_a_process_that_is_killed_leaves_its_runs_to_the_next(run_child, pulse, stored, db):
    run_child(
        """
        import os, signal
        from kp_middleware import KnowledgePulse

        class Killing:
            name = "killing"
            def embed(self, text, /):
                os.kill(os.getpid(), signal.SIGKILL)

        KnowledgePulse(embedder=Killing(), sync=True).capture(lambda text: text)("one")
        """,
        returns=-signal.SIGKILL,
    )
    in_the_wal, left = db.with_name("kp.db-wal").stat().st_size, stored()["state"]

    kp = pulse(sync=True)
    echo(kp)("two")

    assert (in_the_wal > 0, left) == (True, "recorded")
    assert kp.flush().unscored == 0
    assert kp.stats().scored == 2
