"""With ``sync=True``, an agent pays for its own run, and for no other's."""

import threading
from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.errors import EmbedderNotReadyError
from kp_middleware.testing import LocalRegistry, StandInEmbedder


class NotYet(StandInEmbedder):
    def embed(self, text, /):  # noqa: ARG002
        raise EmbedderNotReadyError("downloading")


class Stopping(StandInEmbedder):
    """Waits in its first embedding until it may go on."""

    def __init__(self):
        super().__init__()
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def embed(self, text, /):
        if not self.asked:
            self.begun.set()
            assert self.may_go_on.wait(30)
        return super().embed(text)


def states(db):
    with closing(connect(db)) as connection:
        return [state for (state,) in connection.execute("SELECT state FROM traces ORDER BY seq")]


@pytest.fixture
def left(pulse):
    """Twenty runs that another process could not score."""
    agent = pulse(embedder=NotYet(), sync=True).capture(lambda text: text)
    [agent(f"left {number}") for number in range(20)]


@pytest.mark.usefixtures("left")
def test_an_agent_s_call_scores_its_own_run_and_none_that_others_left(pulse, db):
    embedder = StandInEmbedder()

    pulse(embedder=embedder, sync=True).capture(lambda text: text)("ours")

    assert len(embedder.asked) == 2  # the run, and what people said in it
    assert states(db) == ["recorded"] * 20 + ["scored"]


@pytest.mark.usefixtures("left")
def test_a_flush_scores_what_others_left(pulse, db):
    kp = pulse(sync=True)

    assert not kp.flush()
    assert states(db) == ["scored"] * 20


@pytest.mark.usefixtures("left")
def test_a_flush_ends_when_its_time_is_over(pulse):
    embedder = StandInEmbedder()

    backlog = pulse(embedder=embedder, sync=True).flush(timeout_s=0)

    assert (backlog.unscored, embedder.asked) == (20, [])


def test_closing_keeps_what_is_in_memory(pulse, db):
    kp = pulse(sync=True)
    db.mkdir()
    agent = kp.capture(lambda text: text)
    [agent(str(number)) for number in range(5)]
    db.rmdir()

    kp.close(timeout_s=30)

    assert states(db) == ["scored"] * 5


@pytest.mark.usefixtures("left")
def test_an_agent_has_its_turn_while_another_thread_flushes(pulse, db):
    embedder = Stopping()
    kp = pulse(embedder=embedder, sync=True)
    flushing = threading.Thread(target=kp.flush, args=(60,))
    flushing.start()
    assert embedder.begun.wait(30)
    calling = threading.Thread(target=kp.capture(lambda text: text), args=("ours",))
    calling.start()

    embedder.may_go_on.set()
    calling.join(30)
    flushing.join(30)

    assert states(db) == ["scored"] * 21
    assert not calling.is_alive() | flushing.is_alive()


def test_rows_that_wait_for_a_key_are_not_queued_on_an_agent_s_time(pulse, db):
    without = pulse(threshold=0, embedder=None, sync=True)
    [without.capture(lambda text: text)(str(number)) for number in range(5)]
    without.close()

    with LocalRegistry() as registry, closing(connect(db)) as connection:
        kp = pulse(
            threshold=0,
            embedder=None,
            sync=True,
            registry_url=registry.url,
            api_key=registry.api_key,
        )
        kp.capture(lambda text: text)("ours")
        (at_once,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
        kp.flush()
        (in_the_end,) = connection.execute("SELECT count(*) FROM outbox").fetchone()

    assert (at_once, in_the_end) == (1, 6)


@pytest.mark.parametrize("sync", [True, False], ids=["in sync", "in the background"])
def test_where_no_thread_can_be_started_the_agent_goes_on_and_the_next_run_tries_again(
    sync, pulse, db, monkeypatch
):
    kp = pulse(sync=sync)
    agent = kp.capture(lambda text: text)

    def refused(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        assert agent("one") == "one"
    agent("two")

    assert not kp.flush()
    assert states(db) == ["scored"] * 2
