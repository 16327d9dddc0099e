"""With ``sync=True``, an agent pays for its own run, and for no other's."""

import threading

import pytest
from pipeline_helpers import Meanwhile, NotReady, column_of, echo

from kp_middleware.testing import StandInEmbedder


@pytest.fixture
def left(pulse):
    """Twenty runs that another process could not score."""
    agent = echo(pulse(embedder=NotReady(), sync=True))
    [agent(f"left {number}") for number in range(20)]


@pytest.mark.usefixtures("left")
def test_an_agent_s_call_scores_its_own_run_and_none_that_others_left(pulse, db):
    embedder = StandInEmbedder()

    echo(pulse(embedder=embedder, sync=True))("ours")

    assert len(embedder.asked) == 2  # the run, and what people said in it
    assert column_of(db, "state") == ["recorded"] * 20 + ["scored"]


@pytest.mark.usefixtures("left")
def test_a_flush_scores_what_others_left_in_its_time(pulse, db):
    embedder = StandInEmbedder()
    kp = pulse(embedder=embedder, sync=True)

    backlog, asked = kp.flush(timeout_s=0), [*embedder.asked]

    assert (backlog.unscored, asked) == (20, [])
    assert not kp.flush()
    assert column_of(db, "state") == ["scored"] * 20


def test_closing_keeps_what_is_in_memory(pulse, db):
    kp = pulse(sync=True)
    db.mkdir()
    agent = echo(kp)
    [agent(str(number)) for number in range(5)]
    db.rmdir()

    kp.close(timeout_s=30)

    assert column_of(db, "state") == ["scored"] * 5


@pytest.mark.usefixtures("left")
def test_an_agent_has_its_turn_while_another_thread_flushes(pulse, db):
    begun, may_go_on = threading.Event(), threading.Event()

    def stop():
        begun.set()
        assert may_go_on.wait(30)

    kp = pulse(embedder=Meanwhile(stop), sync=True)
    flushing = threading.Thread(target=kp.flush, args=(60,))
    flushing.start()
    assert begun.wait(30)
    calling = threading.Thread(target=echo(kp), args=("ours",))
    calling.start()

    may_go_on.set()
    calling.join(30)
    flushing.join(30)

    assert column_of(db, "state") == ["scored"] * 21
    assert not calling.is_alive() | flushing.is_alive()


def test_rows_that_wait_for_a_key_are_not_queued_on_an_agent_s_time(pulse, sending, db):
    with pulse(threshold=0, embedder=None, sync=True) as without:
        [echo(without)(str(number)) for number in range(5)]

    kp = pulse(**sending, embedder=None, sync=True)
    echo(kp)("ours")
    at_once = column_of(db, "trace_seq", "outbox")
    kp.flush()

    assert (at_once, column_of(db, "trace_seq", "outbox")) == ([6], [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("sync", [True, False], ids=["in sync", "in the background"])
def test_where_no_thread_can_be_started_the_agent_goes_on_and_the_next_run_tries_again(
    sync, pulse, db, monkeypatch
):
    kp = pulse(sync=sync)
    agent = echo(kp)

    def refused(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        assert agent("one") == "one"
    agent("two")

    assert not kp.flush()
    assert column_of(db, "state") == ["scored"] * 2
