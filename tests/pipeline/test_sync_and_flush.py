"""The cost of sync=True for the agent; flush waits only where that helps."""

import math
import threading
import time

import pytest
from pipeline_helpers import NotReady, SideEffectEmbedder, column_of, echo, sending_to

from kp_middleware import MiniLMEmbedder
from kp_middleware.errors import EmbedderNotReadyError
from kp_middleware.pipeline import Backlog
from kp_middleware.testing import Answer, Fault, LocalRegistry, StandInEmbedder


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
    assert not kp.flush(timeout_s=math.inf)
    assert column_of(db, "state") == ["scored"] * 20


@pytest.mark.parametrize("timeout_s", [30, math.inf])
def test_closing_keeps_what_is_in_memory(pulse, db, timeout_s):
    kp = pulse(sync=True)
    db.mkdir()
    agent = echo(kp)
    [agent(str(number)) for number in range(5)]
    db.rmdir()

    kp.close(timeout_s=timeout_s)

    assert column_of(db, "state") == ["scored"] * 5


@pytest.mark.usefixtures("left")
def test_an_agent_has_its_turn_while_another_thread_flushes(pulse, db):
    begun, may_go_on = threading.Event(), threading.Event()

    def stop():
        begun.set()
        assert may_go_on.wait(30)

    kp = pulse(embedder=SideEffectEmbedder(stop), sync=True)
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


TWO_HOURS = Answer.of(
    429, {}, Retry_After="7200", X_RateLimit_Limit="30", X_RateLimit_Remaining="0"
)
AN_HOUR_S = 3600.0  # whoever waits for so long is ended by the test's own timeout


@pytest.fixture
def sender(pulse):
    """Makes pipelines that send everything to a registry."""
    return lambda registry, **settings: pulse(
        **{**sending_to(registry), "embedder": None, **settings}
    )


def record(kp, count=1):
    [echo(kp)(f"ask {number}") for number in range(count)]


@pytest.mark.parametrize(
    ("sync", "refill_s"),
    [
        pytest.param(False, 0.05, id="in the background"),
        pytest.param(True, 0.05, id="in sync"),
        pytest.param(
            False,
            2.0,
            id="at the limits of the real registry",
            marks=[pytest.mark.slow, pytest.mark.timeout(180)],
        ),
    ],
)
def test_a_flush_sends_more_than_may_go_at_once(sender, sync, refill_s):
    with LocalRegistry(refill_s=refill_s) as registry:
        kp = sender(registry, sync=sync)
        record(kp, 40)

        backlog = kp.flush(timeout_s=120)

    assert backlog == Backlog(0, 0)
    assert (len(registry.documents), registry.refused_at) == (40, ())


def test_a_flush_takes_all_of_its_time_and_tells_what_is_left(sender):
    with LocalRegistry() as registry:
        kp = sender(registry)
        record(kp, 30)
        began_s = time.monotonic()

        backlog = kp.flush(timeout_s=1)
        took_s = time.monotonic() - began_s

    assert took_s >= 1
    assert sum(backlog) >= 5
    assert sum(backlog) + len(registry.documents) in range(28, 33)  # two may be on their way


def test_a_flush_waits_for_a_registry_that_is_in_trouble_for_a_moment(sender, monkeypatch):
    monkeypatch.setattr("kp_middleware.export._sender.backoff_s", lambda *_: 0.2)
    with LocalRegistry(answers=[503]) as registry:
        kp = sender(registry)
        record(kp)

        assert kp.flush(timeout_s=50) == Backlog(0, 0)
        assert len(registry.documents) == 1


@pytest.mark.parametrize(
    ("answer", "settings", "unsent"),
    [
        pytest.param(Fault.DEAD_KEY, {}, 2, id="a dead key"),
        pytest.param(403, {}, 2, id="a key that may not write"),
        pytest.param(TWO_HOURS, {}, 2, id="two hours' patience"),
        pytest.param(400, {}, 0, id="one is never accepted"),
        pytest.param(201, {"api_key": ""}, 0, id="no key"),
    ],
)
def test_a_flush_does_not_wait_where_nothing_more_can_be_sent_by_then(
    sender, answer, settings, unsent
):
    with LocalRegistry(answers=[answer]) as registry:
        kp = sender(registry, **settings)
        record(kp, 2)

        assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, unsent)


@pytest.mark.parametrize("sync", [False, True], ids=["in the background", "in sync"])
def test_a_flush_of_a_closed_pipeline_returns_at_once(pulse, sync):
    kp = pulse(sync=sync)
    record(kp)
    kp.close()

    assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 0)


class SlowToLoad(MiniLMEmbedder):
    """The model, which is not loaded before the test allows it."""

    is_loaded = False

    def __init__(self):
        super().__init__()
        self.loads, self.may_load = threading.Event(), threading.Event()

    @property
    def name(self):
        self.loads.set()
        assert self.may_load.wait(30)
        self.is_loaded = True
        return "slow"

    def text_of(self, trace):
        return trace.task.objective

    def embed_with(self, text, _, /):
        return StandInEmbedder().embed(text), None


def test_runs_are_stored_while_the_model_is_being_loaded_and_a_flush_waits_for_it(pulse, db):
    embedder = SlowToLoad()
    agent = echo(kp := pulse(embedder=embedder))
    agent("one")
    assert embedder.loads.wait(30)

    agent("two")
    deadline = time.monotonic() + 30
    while (states := column_of(db, "state")) != ["recorded"] * 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    waits = kp.flush(timeout_s=0.2)
    embedder.may_load.set()

    assert (states, waits.unscored) == (["recorded"] * 2, 2)
    assert not kp.flush(timeout_s=30)
    assert column_of(db, "state") == ["scored"] * 2


class FailsToLoad(SlowToLoad):
    """The model, whose first attempts to load end with these errors."""

    def __init__(self, *errors):
        super().__init__()
        self.may_load.set()
        self.errors, self.loaded_by = [*errors], []

    @property
    def name(self):
        if not self.is_loaded:
            self.loaded_by.append(threading.current_thread().name)
        if self.errors:
            raise self.errors.pop(0)
        return super().name


def test_a_model_that_was_downloaded_is_loaded_apart_too(pulse, db):
    embedder = FailsToLoad(EmbedderNotReadyError("being downloaded"))
    agent = echo(kp := pulse(embedder=embedder))

    agent("one")
    deadline = time.monotonic() + 30
    while not kp.stats().scored and time.monotonic() < deadline:
        kp.flush(timeout_s=1)

    assert column_of(db, "state") == ["scored"]
    assert embedder.loaded_by == ["kp-loading"] * 2


def test_a_library_that_panics_while_it_is_loaded_keeps_no_agent_waiting(pulse, db):
    embedder = FailsToLoad(SystemExit("as a panic"))

    echo(pulse(embedder=embedder, sync=True))("one")

    assert column_of(db, "state") == ["scored"]
