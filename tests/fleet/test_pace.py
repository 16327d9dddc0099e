"""One pace for all hosts, and a key that is refused for all of them."""

import time

import pytest
from pods import end, record, wait_for

from kp_middleware.testing import LocalRegistry

pytestmark = pytest.mark.timeout(150)


@pytest.mark.parametrize(
    ("count", "runs", "limits", "arrive"),
    [(4, 12, {"refill_s": 0.1}, 48), pytest.param(16, 10, {}, 31, marks=pytest.mark.slow)],
    ids=["fast", "at the real limits"],
)
def test_pods_with_one_key_meet_no_429(shared, pods, start, count, runs, limits, arrive):
    with LocalRegistry(**limits) as registry:
        hosts = pods(count, shared=shared, registry=registry, threshold=0.3)
        children = [
            start(pod, record, range(number * runs, (number + 1) * runs), flush_s=45)
            for number, pod in enumerate(hosts)
        ]
        ended = end(children, timeout_s=120)

    assert ended == [0] * count
    assert (registry.refused_at, registry.revoked) == ((), False)
    assert len(registry.documents) == len(registry.requests) >= arrive


def test_a_key_that_is_refused_to_one_pod_is_asked_for_by_none(shared, pods, start):
    with LocalRegistry() as registry:
        registry.revoke()
        first, *others = pods(4, shared=shared, registry=registry, threshold=0.3)
        end([start(first, record, [0], flush_s=10)])
        asked = len(registry.requests)
        end([start(pod, record, [number], flush_s=5) for number, pod in enumerate(others, 1)])

    assert asked == len(registry.requests) == 1
    assert "refused the API key" in others[0].log


@pytest.mark.parametrize("agent", ["", "one-agent"], ids=["unknown", "known"])
def test_a_new_key_sends_what_waited_for_the_old_one(shared, pods, start, agent):
    old = f"kp_{'0' * 64}"
    with LocalRegistry(burst=100) as registry:
        [host] = pods(1, shared=shared, registry=registry, threshold=0.3, agent_id=agent)
        host.told["KP_API_KEY"] = old
        end([start(host, record, [0], flush_s=5)])
        assert "refused the API key" in host.command("status").stdout.replace("\n", " ")
        host.told["KP_API_KEY"] = registry.api_key
        end([start(host, record, [1], flush_s=30)])
        host.told["KP_API_KEY"] = old
        end([start(host, record, [2], flush_s=5)])

    assert len(registry.documents) == 2
    assert "the registry failed" not in host.log


def test_nothing_is_sent_while_postgresql_is_away(server, own_shared, pods, start):
    with LocalRegistry(refill_s=0.1) as registry:
        hosts = pods(2, shared=own_shared, registry=registry, threshold=0.3)
        children = [
            start(pod, record, range(number * 40, number * 40 + 40))
            for number, pod in enumerate(hosts)
        ]
        wait_for(lambda: len(registry.documents) >= 10)
        server.stop("immediate")
        time.sleep(1)  # a request may have been under way
        before = len(registry.requests)
        time.sleep(3)
        during = len(registry.requests) - before
        server.start()
        ended = end(children)

    assert (during, ended) == (0, [0, 0])
    assert (len(registry.documents), registry.refused_at) == (80, ())
