"""PostgreSQL is away, killed, frozen, restored or silent; a pod is killed or frozen."""

import gc
import os
import signal
import time
from functools import partial
from random import Random

import psycopg
import pytest
from pods import end, record, record_until_killed, run_of, wait_for
from servers import Proxy, SharedServer

from kp_middleware import KnowledgePulse
from kp_middleware.testing import Fault, LocalRegistry

pytestmark = pytest.mark.timeout(150)


def in_log(ask, url):
    """The decision on each run, by its id."""
    return dict(ask(url, "SELECT id, decision FROM kp.log WHERE rev = 0"))


def let_leases_end(ask, url):
    """Two minutes later, nobody holds the turn or an item any more."""
    ask(url, "UPDATE kp.outbox SET claimed_until = now() WHERE state = 'sending'")
    ask(url, "UPDATE kp.paces SET pace = (pace::jsonb - 'holder' - 'held_until')::text")


def every_has_recorded(hosts, runs):
    return all(len(pod.acknowledged) > runs for pod in hosts)


def in_files(hosts):
    return {
        id: decision
        for pod in hosts
        for id, decision in pod.rows("SELECT id, decision FROM traces")
    }


def test_away_at_the_start(server, own_shared, generous, pods, start, ask, whole):
    pod, keeping = pods(2, shared=own_shared, registry=generous, threshold=0.3)
    keeping.told["KP_THRESHOLD"] = "1.0"
    server.stop()

    ended = end([start(one, record, range(10), flush_s=3) for one in (pod, keeping)])
    meanwhile = pod.rows("SELECT count(*), count(decision) FROM traces"), len(generous.requests)
    kept_here = keeping.rows("SELECT DISTINCT state, decision FROM traces")
    server.start()
    end([start(pod, record, [10])])

    assert (ended, meanwhile) == ([0, 0], ([(10, 0)], 0))
    assert kept_here == [("scored", "withhold")]
    assert "connection refused" in pod.log
    assert (
        in_log(ask, own_shared) == in_files([pod]) == dict.fromkeys(generous.documents, "forward")
    )
    assert whole(own_shared) == 11


def test_the_server_is_killed_three_times_under_four_writers(
    server, own_shared, pods, start, ask, whole
):
    hosts = pods(4, shared=own_shared, threshold=0.3, max_per_day=30)
    children = [
        start(pod, record_until_killed, f"{number}", pause_s=0.2)
        for number, pod in enumerate(hosts)
    ]
    for known in (5, 10, 15):
        wait_for(partial(every_has_recorded, hosts, known))
        server.kill()
        server.start()
    [child.terminate() for child in children]
    [child.join() for child in children]
    end([start(pod, record, [f"last {number}"]) for number, pod in enumerate(hosts)])

    known = set().union(*(pod.acknowledged for pod in hosts))
    decisions = in_log(ask, own_shared)
    assert known <= decisions.keys()
    assert decisions == in_files(hosts)
    assert sum(one == "forward" for one in decisions.values()) == 30
    assert whole(own_shared) == len(decisions)


def test_pods_are_killed_at_any_moment(shared, generous, pods, start, ask, whole):
    luck = Random(7)
    hosts = pods(2, shared=shared, registry=generous, threshold=0.3)
    for turn in range(8):
        child = start(hosts[turn % 2], record_until_killed, f"turn {turn}", pause_s=0.02)
        time.sleep(0.3 + luck.random())
        child.kill()
        child.join()
    let_leases_end(ask, shared)
    end([start(pod, record, [f"last {number}"]) for number, pod in enumerate(hosts)])

    decisions = in_log(ask, shared)
    assert set().union(*(pod.acknowledged for pod in hosts)) <= decisions.keys()
    assert decisions == in_files(hosts)
    assert set(generous.documents) == {id for id, one in decisions.items() if one == "forward"}
    assert set(generous.times_stored.values()) == {1}
    assert whole(shared) == len(decisions)


def test_a_network_that_goes_silent(server, own_shared, pods, start, ask, whole):
    with Proxy(server.port) as proxy:
        url = own_shared.replace(f":{server.port}/", f":{proxy.port}/")
        [pod] = pods(1, shared=url, threshold=0.3)
        child = start(pod, record_until_killed, "a", pause_s=0.1)
        wait_for(lambda: ask(own_shared, "SELECT count(*) FROM kp.log")[0][0] > 5)
        with proxy.silent():
            time.sleep(10)  # longer than an exchange may take
            before = len(pod.acknowledged)
            wait_for(lambda: len(pod.acknowledged) > before + 5)  # it goes on recording
            known = pod.acknowledged
        wait_for(lambda: set(known) <= in_log(ask, own_shared).keys(), timeout_s=20)
        child.terminate()
        child.join()
        end([start(pod, record, ["last"])])

    assert in_log(ask, own_shared) == in_files([pod])
    assert whole(own_shared) == len(in_files([pod]))


def test_who_ends_in_a_network_that_has_gone_silent_waits_for_neither_log_nor_registry(
    server, own_shared, db
):
    with Proxy(server.port) as proxy, LocalRegistry(answers=lambda _: Fault.HANG) as registry:
        url = own_shared.replace(f":{server.port}/", f":{proxy.port}/")
        there = {"registry_url": registry.url, "api_key": registry.api_key, "threshold": 0}
        kp = KnowledgePulse(db=db, embedder=None, shared=url, **there)
        kp.submit(run_of(1))
        kp.flush(timeout_s=0.1)
        wait_for(lambda: registry.requests)
        with proxy.silent():
            began = time.monotonic()
            kp.close(timeout_s=1)
            took_s = time.monotonic() - began

    assert took_s < 5


def test_who_freezes_with_the_lock_holds_up_the_others_for_seconds(
    server, own_shared, pods, start, ask, whole
):
    waiting = (
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE relation = 'kp.heads'::regclass AND l.mode = 'RowShareLock'"
        " AND a.state LIKE 'idle in transaction%%'"
    )
    with Proxy(server.port, delay_s=0.2) as proxy:
        far = own_shared.replace(f":{server.port}/", f":{proxy.port}/")
        frozen, other = pods(2, shared=own_shared, threshold=0.3)
        frozen.told["KP_SHARED"] = far
        child = start(frozen, record, range(8))
        wait_for(lambda: ask(own_shared, waiting) == [(1,)])
        os.kill(child.pid, signal.SIGSTOP)
        began = time.monotonic()
        assert end([start(other, record, range(100, 105))]) == [0]
        took_s = time.monotonic() - began
        os.kill(child.pid, signal.SIGCONT)
        assert end([child]) == [0]

    assert took_s < 30
    assert in_log(ask, own_shared) == in_files([frozen, other])
    assert whole(own_shared) == 13


def close_all_connections():
    for one in gc.get_objects():
        if type(one) is psycopg.Connection:
            one.close()


def fork_all_the_time(pod, forks):
    """Fork while runs are shipped; now and then a child closes all that it has inherited."""
    with pod.pulse() as kp:
        for number in range(forks):
            run = run_of(f"fork {number}")
            kp.submit(run)
            pod.acknowledge([run.id])
            child = os.fork()
            if child == 0:
                if number % 20 == 0:  # it takes a while to look for them
                    close_all_connections()
                os._exit(0)
            os.waitpid(child, 0)
        kp.flush(60)


def test_two_hundred_forks_while_shipping(shared, pods, start, ask, whole):
    [pod] = pods(1, shared=shared, threshold=0.3)

    assert end([start(pod, fork_all_the_time, 200)]) == [0]

    assert set(pod.acknowledged) == in_log(ask, shared).keys()
    assert "closed the connection" not in pod.log
    assert whole(shared) == 200


def fork_after_recording(pod, children):
    """As gunicorn with --preload: the parent has recorded, then its workers do."""
    with pod.pulse() as kp:
        kp.submit(run_of("parent"))
        kp.flush(30)
        workers = []
        for number in range(children):
            worker = os.fork()
            if worker == 0:
                for turn in range(5):
                    kp.submit(run_of(f"worker {number} {turn}"))
                kp.flush(60)
                kp.close()
                os._exit(0)
            workers.append(worker)
        for turn in range(5):
            kp.submit(run_of(f"parent {turn}"))
        codes = [os.waitpid(worker, 0)[1] for worker in workers]
        kp.flush(60)
    assert codes == [0] * children


def test_workers_of_one_file_ship_beside_their_parent(shared, generous, pods, start, ask, whole):
    [pod] = pods(1, shared=shared, registry=generous, threshold=0.3)

    assert end([start(pod, fork_after_recording, 3)]) == [0]

    assert in_log(ask, shared) == in_files([pod])
    assert whole(shared) == 1 + 5 + 3 * 5


def test_an_older_copy_is_restored(server, own_shared, generous, pods, start, ask, whole):
    first, second = pods(2, shared=own_shared, registry=generous, threshold=0.3)
    end([start(first, record, range(10)), start(second, record, range(10, 20))])
    copy = server.keep_copy()
    end([start(first, record, range(20, 27))])
    server.restore(copy)
    end([start(second, record, range(30, 35))])  # takes the numbers of what was lost
    end([start(first, record, range(40, 43))])

    assert in_log(ask, own_shared) == in_files([first, second])
    assert len(generous.documents) == whole(own_shared) == 35
    assert max(generous.times_stored.values()) <= 2  # what was sent after the copy goes once more


def test_a_standby_is_promoted(server, own_shared, pods, start, ask, whole):
    with SharedServer.standby_of(server) as standby:
        both = own_shared.replace(f":{server.port}/", f":{server.port},127.0.0.1:{standby.port}/")
        [pod] = pods(1, shared=both, threshold=0.3)
        child = start(pod, record_until_killed, "a", pause_s=0.2)
        wait_for(lambda: len(in_log(ask, own_shared)) > 5)
        server.stop()
        standby.promote()
        there = standby.url("agents")
        known = pod.acknowledged
        wait_for(lambda: set(known) <= in_log(ask, there).keys())
        child.terminate()
        child.join()
        end([start(pod, record, ["last"])])

        assert in_log(ask, there) == in_files([pod])
        assert whole(there) == len(in_files([pod]))
