"""Several hosts together decide as one host alone."""

import random
from collections import Counter

import pytest
from pods import Pod, end, record

pytestmark = pytest.mark.timeout(280)

HOMES = [4, pytest.param(16, marks=pytest.mark.slow)]
TASKS = 20


@pytest.fixture
def play(start):
    """Records on all hosts at once; gives the ids of the runs that cleared."""

    def play(hosts, seeds_of):
        children = [start(pod, record, seeds_of(number)) for number, pod in enumerate(hosts)]
        assert end(children, timeout_s=250) == [0] * len(hosts)
        return [id for pod in hosts for id in cleared(pod)]

    return play


def cleared(pod):
    return [id for (id,) in pod.rows("SELECT id FROM traces WHERE decision = 'forward'")]


@pytest.mark.parametrize(
    "homes_and_way",
    [(4, "shared"), (4, "pooled"), pytest.param((16, "shared"), marks=pytest.mark.slow)],
    ids=["four", "four through pgbouncer", "sixteen"],
)
def test_a_task_clears_once_however_many_do_it(
    homes_and_way, shared, generous, pods, play, ask, whole, request
):
    homes, way = homes_and_way
    hosts = pods(homes, shared=request.getfixturevalue(way), registry=generous, threshold=0.75)

    went = play(hosts, lambda _: range(TASKS))

    tasks = Counter(generous.documents[id].task.objective for id in went)
    assert len(went) == len(tasks) == TASKS
    assert set(generous.documents) == set(went)
    assert ask(shared, "SELECT count(*) FROM kp.log WHERE decision = 'forward'") == [(TASKS,)]
    assert whole(shared) == homes * TASKS
    assert not [pod for pod in hosts if "prepared statement" in pod.log]


@pytest.mark.parametrize("homes", HOMES)
def test_the_daily_limit_is_one_for_all(homes, shared, generous, pods, play, whole):
    hosts = pods(homes, shared=shared, registry=generous, threshold=0.3, max_per_day=5)

    went = play(hosts, lambda number: range(number * 20, number * 20 + 20))

    assert len(went) == len(generous.documents) == 5
    assert whole(shared) == homes * 20


@pytest.mark.parametrize("homes", HOMES)
def test_a_share_is_one_of_all_runs(homes, shared, generous, pods, play, tmp_path, whole):
    hosts = pods(homes, shared=shared, registry=generous, threshold="top 10%")
    seeds = range(homes * 40)
    orders = [random.Random(number).sample(seeds, len(seeds)) for number in range(3)]
    ones = [Pod.at(tmp_path / f"one-{number}", threshold="top 10%") for number in range(3)]

    alone = [
        len(play([one], lambda _, o=order: o)) for one, order in zip(ones, orders, strict=True)
    ]
    went = play(hosts, lambda number: range(number * 40, number * 40 + 40))

    # The order of the runs moves one host's share; three orders show a part of how far.
    apart = 2 * max(1, max(alone) - min(alone))
    assert min(alone) - apart <= len(went) <= max(alone) + apart
    assert len(generous.documents) == len(went)
    assert whole(shared) == homes * 40
