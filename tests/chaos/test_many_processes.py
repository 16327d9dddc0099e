"""Four processes record, score and send at once, into one file."""

import time
from collections import Counter

import pytest
from many_traces import rows
from working_process import Site, compete, finish, processes

from kp_middleware.testing import LocalRegistry

PROCESSES, ROUNDS, OWN = 4, 40, 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def registry():
    """Takes a moment for each answer, so that two who send at once are found out."""
    with LocalRegistry(answers=lambda _: time.sleep(0.01), burst=1_000_000) as registry:
        yield registry


@pytest.fixture(scope="module")
def site(registry, memory):
    """The site after all processes have worked in it."""
    site = Site(memory, registry.url, registry.api_key)
    barrier = processes.Barrier(PROCESSES)
    compete_all(site, [(compete, site, number, barrier, ROUNDS) for number in range(PROCESSES)])
    compete_all(site, [(finish, site)])
    return site


def compete_all(site, works):
    started = [processes.Process(target=work, args=args) for work, *args in works]
    [process.start() for process in started]
    [process.join(60) for process in started]
    assert {process.exitcode for process in started} == {0}, site.log.read_text()


def values_of(site, sql):
    return [value for (value,) in rows(site.file, sql)]


def test_no_trace_is_missing_each_is_scored_once_and_nobody_finds_the_file_locked(site):
    states = Counter(values_of(site, "SELECT state FROM traces"))
    vectors = Counter(values_of(site, "SELECT key FROM vectors"))
    log = site.log.read_text()

    assert states == {"scored": PROCESSES * ROUNDS * (1 + OWN) + 1}
    assert vectors == Counter(values_of(site, "SELECT id FROM traces"))
    assert not any(word in log for word in ("locked", "WARNING", "Traceback"))


def test_one_alone_finds_novel_what_all_finish_at_the_same_moment(site):
    novel = rows(
        site.file,
        "SELECT sum(novelty >= 0.5), sum(novelty < 0.1) FROM traces"
        " WHERE domain LIKE 'round %' GROUP BY domain",
    )

    assert novel == [(1, PROCESSES - 1)] * ROUNDS


def test_each_sees_the_vectors_of_the_others(site):
    nearest = rows(
        site.file,
        "SELECT ours.domain = theirs.domain, count(*)"
        " FROM traces ours JOIN traces theirs ON theirs.seq = ours.nearest_seq"
        " WHERE ours.domain LIKE 'round %' AND ours.novelty < 0.1 GROUP BY 1",
    )

    assert nearest == [(1, (PROCESSES - 1) * ROUNDS)]


def test_one_sends_at_a_time_and_everything_once(site, registry):
    cleared = values_of(site, "SELECT id FROM traces WHERE decision = 'forward'")

    assert registry.most_at_once == 1
    assert registry.times_stored == Counter(cleared) == registry.times_received
    assert len(cleared) > 100
