"""The shared log itself, where two ask at once."""

import threading
from dataclasses import replace

import pytest
from pods import end, record, run_of, wait_for

from kp_middleware.shared_log import Link, LogPosition, PostgresLog, pull_runs

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def make(shared):
    """Makes a pod's view of the log, on a connection of its own."""
    links = []

    def make(pod="a pod"):
        links.append(Link(shared, pod))
        return PostgresLog(links[-1], pod, newest=100)

    yield make
    [link.close() for link in links]


def test_who_asks_while_the_same_run_is_decided_gets_that_decision(
    make, shared, pods, start, ask, whole
):
    [pod] = pods(1, shared=shared, threshold=1.0)
    end([start(pod, record, [1])])
    first, second = make(), make()
    [logged] = pull_runs(first.link, None).rows
    run = replace(logged.run, id="kp:trace:another", decided_at=None)
    deciding, asked = threading.Event(), []
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

    def judge(_):
        deciding.set()
        wait_for(lambda: ask(shared, waiting) != [(0,)], timeout_s=2.5)
        return [(run, None)]

    def judge_again(known):
        asked.append(known.answered)
        return [] if run.id in known.answered else [(run, None)]

    thread = threading.Thread(target=first.decide, args=([run.id], LogPosition(), judge))
    thread.start()
    deciding.wait(5)
    places = second.decide([run.id], LogPosition(), judge_again)
    thread.join()

    assert list(asked[0]) == [run.id]
    assert [(place, run.id) for place, run in places] == [(2, run.id)]
    assert whole(shared) == 2


def record_when_told(pod):
    """Record some, and one more when a person says so, in one program."""
    with pod.pulse() as kp:
        for part in ([0, 1], [2, 3, 4], [5]):
            wait_for((pod.folder / f"go {part[0]}").exists)
            runs = [run_of(f"{pod.folder} {seed}") for seed in part]
            for run in runs:
                kp.submit(run)
            kp.flush(20)
            pod.acknowledge(run.id for run in runs)


def test_a_program_that_goes_on_ships_again_what_a_failover_lost(
    server, own_shared, pods, start, ask, whole
):
    """It has pulled just now, others have taken the numbers, and it ships before it pulls."""
    one, other = pods(2, shared=own_shared, threshold=1.0)
    (one.folder / "go 0").touch()
    child = start(one, record_when_told)
    wait_for(lambda: len(one.acknowledged) == 2)
    copy = server.keep_copy()
    (one.folder / "go 2").touch()
    wait_for(lambda: len(one.acknowledged) == 5)
    server.restore(copy)
    end([start(other, record, range(10))])
    (one.folder / "go 5").touch()
    assert end([child]) == [0]

    assert set(one.acknowledged) <= {id for (id,) in ask(own_shared, "SELECT id FROM kp.log")}
    assert whole(own_shared) == 16
