"""A flush waits until all is sent or its time is over, and not where waiting is of no use."""

import time

import pytest

from kp_middleware import ReasoningTrace, Step
from kp_middleware.pipeline import Backlog
from kp_middleware.testing import Answer, Fault, LocalRegistry

TWO_HOURS = Answer.of(
    429, {}, Retry_After="7200", X_RateLimit_Limit="30", X_RateLimit_Remaining="0"
)
AN_HOUR_S = 3600.0  # whoever waits for so long is ended by the test's own timeout


@pytest.fixture
def sender(pulse):
    """Makes pipelines that send everything to a registry."""
    always = {"threshold": 0, "embedder": None}
    return lambda registry, **settings: pulse(
        registry_url=registry.url, **{"api_key": registry.api_key, **always, **settings}
    )


def submit(kp, count=1):
    for number in range(count):
        steps = [Step(step_id=0, type="thought", content=f"thought {number}")]
        kp.submit(ReasoningTrace.of(f"ask {number}", steps))


@pytest.mark.parametrize("sync", [False, True], ids=["in the background", "in sync"])
def test_a_flush_sends_more_than_may_go_at_once(sender, sync):
    with LocalRegistry(refill_s=0.05) as registry:
        kp = sender(registry, sync=sync)
        submit(kp, 40)

        backlog = kp.flush(timeout_s=50)

    assert backlog == Backlog(0, 0)
    assert (len(registry.documents), registry.refused_at) == (40, ())


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_forty_runs_are_sent_within_two_minutes_at_the_limits_of_the_real_registry(sender):
    with LocalRegistry() as registry:
        kp = sender(registry)
        submit(kp, 40)

        backlog = kp.flush(timeout_s=120)

    assert backlog == Backlog(0, 0)
    assert (len(registry.documents), registry.refused_at) == (40, ())


@pytest.mark.parametrize("timeout_s", [1, 3])
def test_a_flush_takes_all_of_its_time_and_tells_what_is_left(sender, timeout_s):
    with LocalRegistry() as registry:
        kp = sender(registry)
        submit(kp, 30)
        began_s = time.monotonic()

        backlog = kp.flush(timeout_s)
        took_s = time.monotonic() - began_s

    assert took_s >= timeout_s
    assert sum(backlog) >= 5
    assert sum(backlog) + len(registry.documents) in range(28, 33)  # two may be on their way


def test_a_flush_waits_for_a_registry_that_is_in_trouble_for_a_moment(sender):
    with LocalRegistry(answers=[503]) as registry:
        kp = sender(registry)
        submit(kp)

        assert kp.flush(timeout_s=50) == Backlog(0, 0)


@pytest.mark.parametrize(
    "answer",
    [Fault.DEAD_KEY, 403, TWO_HOURS],
    ids=["a dead key", "a key that may not write", "two hours' patience"],
)
def test_a_flush_does_not_wait_where_nothing_can_be_sent_by_then(sender, answer):
    with LocalRegistry(answers=[answer]) as registry:
        kp = sender(registry)
        submit(kp, 2)

        assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 2)


def test_a_flush_does_not_wait_for_what_is_never_accepted(sender):
    with LocalRegistry(answers=[400]) as registry:
        kp = sender(registry)
        submit(kp, 2)

        assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 0)


def test_a_flush_without_a_key_does_not_wait(sender, registry):
    kp = sender(registry, api_key="")
    submit(kp)

    assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 0)


def test_a_flush_sends_what_another_pipeline_left(sender):
    with LocalRegistry(answers=[503]) as registry:
        left = sender(registry)
        submit(left)
        left.close(timeout_s=0)

        assert sender(registry).flush(timeout_s=50) == Backlog(0, 0)


@pytest.mark.parametrize("sync", [False, True], ids=["in the background", "in sync"])
def test_a_flush_of_a_closed_pipeline_returns_at_once(pulse, sync):
    kp = pulse(sync=sync)
    submit(kp)
    kp.close()

    assert kp.flush(timeout_s=AN_HOUR_S) == Backlog(0, 0)
