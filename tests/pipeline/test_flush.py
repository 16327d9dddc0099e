"""A flush waits until all is sent or its time is over, and not where waiting is of no use."""

import time

import pytest
from pipeline_helpers import echo, sending_to

from kp_middleware.pipeline import Backlog
from kp_middleware.testing import Answer, Fault, LocalRegistry

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
    "answer",
    [Fault.DEAD_KEY, 403, TWO_HOURS],
    ids=["a dead key", "a key that may not write", "two hours' patience"],
)
def test_a_flush_does_not_wait_where_nothing_can_be_sent_by_then(sender, answer):
    with LocalRegistry(answers=[answer]) as registry:
        kp = sender(registry)
        record(kp, 2)

        assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 2)


def test_a_flush_does_not_wait_for_what_is_never_accepted(sender, stored):
    with LocalRegistry(answers=[400]) as registry:
        kp = sender(registry)
        record(kp)

        assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 0)

    outbox = stored()["outbox"]
    assert (outbox["state"], outbox["http_status"]) == ("rejected", 400)
    assert outbox["reason"]


def test_a_flush_without_a_key_does_not_wait(sender, registry):
    kp = sender(registry, api_key="")
    record(kp)

    assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 0)


@pytest.mark.parametrize("sync", [False, True], ids=["in the background", "in sync"])
def test_a_flush_of_a_closed_pipeline_returns_at_once(pulse, sync):
    kp = pulse(sync=sync)
    record(kp)
    kp.close()

    assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 0)
