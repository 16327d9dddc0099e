"""What goes wrong is said once, costs the agent nothing, and loses nothing that could be kept."""

import signal

import numpy as np
import pytest

from kp_middleware import KnowledgePulse, ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.errors import EmbedderNotReadyError
from kp_middleware.testing import LocalRegistry, StandInEmbedder


class OddEmbedder(StandInEmbedder):
    """Gives what it is told to; raises it if it is an error."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = [*answers]

    def embed(self, text, /):
        if not self.answers:
            return super().embed(text)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_path_that_cannot_be_used_is_said_once_and_the_runs_wait(pulse, tmp_path, caplog):
    blocking = tmp_path / "file"
    blocking.write_text("in the way")
    kp = pulse(db=blocking / "kp.db", sync=True)
    agent = kp.capture(lambda text: text)

    agent("one")
    agent("two")

    assert kp.flush(timeout_s=0.01).unscored == 2
    assert len(said(caplog)) == 1
    assert str(blocking / "kp.db") in said(caplog)[0]
    blocking.unlink()


def test_runs_that_waited_are_kept_once_the_path_can_be_used(pulse, tmp_path):
    blocking = tmp_path / "file"
    blocking.write_text("in the way")
    kp = pulse(db=blocking / "kp.db", sync=True)
    agent = kp.capture(lambda text: text)
    agent("one")

    blocking.unlink()
    agent("two")

    assert not kp.flush()
    assert (blocking / "kp.db").exists()


def test_a_file_that_is_no_database_is_left_as_it_is(pulse, db, caplog):
    db.write_text("a letter to my aunt, " * 100)
    kp = pulse(sync=True)

    kp.capture(lambda text: text)("one")
    kp.close()

    assert "is not an SQLite file" in said(caplog)[0]
    assert said(caplog)[1].startswith("finished runs that could not be stored and are lost: 1; ")
    assert db.read_text().startswith("a letter")


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (np.full(384, np.nan, dtype=np.float32), "NaN"),
        (np.ones(3, dtype=np.float32), "expected a vector of 384 dimensions, got 3"),
    ],
    ids=["NaN", "wrong dimension"],
)
def test_a_run_whose_vector_cannot_be_used_is_scored_without_it_and_said_once(
    pulse, stored, caplog, vector, words
):
    kp = pulse(embedder=OddEmbedder(vector, vector), sync=True)
    agent = kp.capture(lambda text: text)

    agent("one")
    agent("two")
    without = stored()
    agent("three")

    assert (without["state"], without["novelty"], without["embedder"]) == ("scored", 0.5, None)
    assert stored()["embedder"] == "stand-in"
    assert len(said(caplog)) == 1
    assert words in said(caplog)[0]


@pytest.mark.parametrize("answer", [LookupError("short"), np.full(384, np.nan), [1.0] * 3])
def test_a_run_whose_task_cannot_be_embedded_is_compared_all_the_same(
    pulse, stored, caplog, answer
):
    kp = pulse(embedder=OddEmbedder(np.ones(384), answer, np.ones(384), answer), sync=True)
    agent = kp.capture(lambda text: text)

    agent("one")
    agent("two")

    assert (stored()["state"], stored()["novelty"]) == ("scored", pytest.approx(0, abs=1e-6))
    assert len(said(caplog)) == 1
    assert "a run is recalled by its words only, the embedder failed" in said(caplog)[0]


def test_runs_wait_in_the_file_for_a_model_that_is_on_its_way(pulse, stored):
    kp = pulse(embedder=OddEmbedder(EmbedderNotReadyError("downloading")), sync=True)
    agent = kp.capture(lambda text: text)

    agent("one")
    waiting = stored()["state"]

    assert waiting == "recorded"
    assert kp.flush().unscored == 0


def test_what_an_earlier_process_left_recorded_is_scored_after_our_own(pulse, stored):
    killed = pulse(embedder=OddEmbedder(EmbedderNotReadyError("downloading")), sync=True)
    killed.capture(lambda text: text)("one")

    kp = pulse()
    kp.capture(lambda text: text)("two")
    kp.flush()

    assert kp.flush().unscored == 0
    assert stored()["nearest_id"] is None
    assert stored("@best")["state"] == "scored"


def test_a_full_queue_drops_the_newest_and_says_so_once(pulse, caplog):
    kp = pulse(max_queue_bytes=0)
    agent = kp.capture(lambda text: text)

    assert [agent("one"), agent("two")] == ["one", "two"]

    assert said(caplog) == [
        (
            "a run was dropped: the queue is full: see kp.stats().trouble,"
            " or raise max_queue_bytes; more are counted, not logged"
        )
    ]


def test_a_run_that_cannot_be_kept_is_said_and_the_next_goes_on(pulse, stored, caplog):
    kp = pulse(sync=True)
    hollow = ReasoningTrace.model_construct(steps=())

    kp.submit(hollow)
    kp.capture(lambda text: text)("two")

    assert "two" in stored()["objective"]
    assert "a run was lost" in caplog.text
    assert not kp.flush()
    assert kp.stats().dropped == 1


def test_scoring_goes_on_when_the_file_can_be_written_again(pulse, stored, db):
    kp = pulse(sync=True)
    agent = kp.capture(lambda text: text)
    agent("one")
    other = connect(db)
    other.execute("CREATE TRIGGER full BEFORE INSERT ON vectors BEGIN SELECT raise(FAIL, 'x'); END")

    agent("two")
    failed = stored()
    other.execute("DROP TRIGGER full")
    agent("three")

    other.close()
    assert failed["state"] == "failed"
    assert (stored()["state"], stored()["nearest_id"] is not None) == ("scored", True)


def test_an_unreachable_registry_keeps_the_trace_for_later(pulse, stored, caplog):
    kp = pulse(registry_url="http://127.0.0.1:9", api_key="kp_" + "0" * 64, threshold=0)

    kp.capture(lambda text: text)("one")
    backlog = kp.flush()

    assert backlog == (0, 1)
    assert stored()["outbox"]["state"] == "pending"
    assert len(said(caplog)) == 1


def test_a_rejected_trace_is_kept_with_the_issues(pulse, stored):
    with LocalRegistry(answers=[400]) as refusing:
        kp = pulse(registry_url=refusing.url, api_key=refusing.api_key, threshold=0)
        kp.capture(lambda text: text)("one")
        kp.flush()

    outbox = stored()["outbox"]
    assert (outbox["state"], outbox["http_status"]) == ("rejected", 400)
    assert outbox["reason"]


def test_a_registry_that_could_be_overheard_is_refused(db):
    with pytest.raises(ValueError, match="https"):
        KnowledgePulse(db=db, registry_url="http://registry.example", api_key="kp_x")


def test_a_wrong_setting_is_named():
    with pytest.raises(ValueError, match="threshold"):
        KnowledgePulse(threshold=7)


def test_the_default_pipeline_is_made_of_the_environment(run_child, db):
    printed = run_child(
        """
        from kp_middleware import KnowledgePulse
        kp = KnowledgePulse.default()
        print(kp is KnowledgePulse.default(), kp.settings.domain, kp.settings.db)
        """,
        KP_DOMAIN="medical",
    )

    assert printed == f"True medical {db}\n"


def test_a_process_that_just_ends_has_scored_its_runs(run_child, stored):
    run_child(
        """
        from kp_middleware import KnowledgePulse
        from kp_middleware.testing import StandInEmbedder
        kp = KnowledgePulse(embedder=StandInEmbedder())
        kp.capture(lambda text: text)("one")
        """
    )

    assert stored()["state"] == "scored"


def test_a_process_that_is_killed_leaves_its_runs_to_the_next(run_child, pulse, stored):
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
    left = stored()["state"]

    kp = pulse(sync=True)
    kp.capture(lambda text: text)("two")

    assert left == "recorded"
    assert kp.flush().unscored == 0


def test_a_trace_that_cannot_be_redacted_is_kept_without_its_texts(pulse, stored, caplog):
    kp = pulse(sync=True)
    bottomless = {"password": "x"}
    [bottomless := {"deeper": bottomless} for _ in range(200)]
    step = Step(step_id=0, type="tool_call", input=bottomless)

    kp.submit(ReasoningTrace.of("my secret errand", [step]))

    trace = stored()
    assert (trace["state"], trace["step_count"]) == ("failed", 1)
    assert "too_deep" in trace["reason"]
    assert "errand" not in str(trace)
    assert len(said(caplog)) == 1
