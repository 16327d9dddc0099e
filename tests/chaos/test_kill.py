"""A process is killed at a random moment, and a clean one finishes what it left: 200 times."""

import random
import signal
import time
from collections import Counter
from contextlib import closing
from functools import cache, partial

import pytest
from many_traces import rows, sent_by_id
from working_process import Site, finish, processes, work_until_killed

from kp_middleware.database import connect
from kp_middleware.errors import DatabaseError
from kp_middleware.testing import LocalRegistry

GAMES, ROUNDS = 8, 25
LONGEST_S = 0.25

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def play(seed, folder):
    """Rounds in one place; the registry knows idempotency keys in every second game.

    Returns the registry, all sites, and how often a kill left something in which state.
    """
    luck = random.Random(seed)
    with LocalRegistry(
        answers=lambda _: time.sleep(luck.random() * 0.005),
        burst=1_000_000,
        replays=bool(seed % 2),
    ) as registry:
        return registry, *play_rounds(seed, registry, folder)


def play_rounds(seed, registry, folder):
    """Some of them begin a new file."""
    luck, sites, site, met = random.Random(seed), {}, None, Counter()
    for number in range(ROUNDS):
        db = site.db if site and luck.random() < 0.8 else f"{seed}-{number}.db"
        site = Site(folder, registry.url, registry.api_key, db, state=f"{seed}-{number}")
        sites[db] = site
        kill_at_random(site, luck)
        met.update(waiting_in(site))
        assert run(finish, site).exitcode == 0, site.log.read_text()
    return list(sites.values()), met


def kill_at_random(site, luck):
    victim = processes.Process(
        target=work_until_killed,
        args=(site, luck.random()),
        kwargs={"sync": luck.random() < 0.5},
    )
    victim.start()
    time.sleep(luck.random() * LONGEST_S)
    victim.kill()
    victim.join()
    assert victim.exitcode == -signal.SIGKILL, site.log.read_text()


def waiting_in(site):
    """In which states a killed process left something; its WAL stays as it is."""
    try:
        with closing(connect(site.file, read_only=True)) as connection:
            found = connection.execute(
                "SELECT state FROM traces WHERE state = 'recorded'"
                " UNION SELECT state FROM outbox WHERE state <> 'sent'"
            ).fetchall()
    except DatabaseError:
        return []  # it was killed before there was a table
    return [state for (state,) in found]


def run(work, *args):
    process = processes.Process(target=work, args=args)
    process.start()
    process.join(60)
    return process


def acknowledged(site):
    return set(site.said.read_text().split()) if site.said.exists() else set()


def column(sites, sql):
    return [value for site in sites for (value,) in rows(site.file, sql)]


@pytest.fixture(scope="module")
def played(memory):
    """Plays a game once, whichever test asks for it first."""
    return cache(partial(play, folder=memory))


@pytest.mark.parametrize("seed", range(GAMES))
def test_what_reached_the_file_is_scored_once_and_is_at_the_registry_once(played, seed):
    registry, sites, _ = played(seed)

    stored = column(sites, "SELECT id FROM traces")
    vectors = Counter(column(sites, "SELECT key FROM vectors"))
    cleared = column(sites, "SELECT id FROM traces WHERE decision = 'forward'")
    sent = column(sites, "SELECT remote_id FROM outbox WHERE state = 'sent'")
    assert set(column(sites, "PRAGMA integrity_check")) == {"ok"}
    assert set(column(sites, "SELECT state FROM traces")) == {"scored"}
    assert set(column(sites, "SELECT state FROM outbox")) == {"sent"}
    assert set.union(*map(acknowledged, sites)) <= set(stored)
    assert vectors == Counter(stored)
    assert sorted(sent) == sorted(cleared)
    assert set(registry.documents) == set(cleared)
    assert {len(sent) for sent in sent_by_id(registry).values()} == {1}
    assert max(registry.times_stored.values()) == 1 or seed % 2 == 0
    assert not registry.refused_at


def test_kills_have_hit_what_waits_to_be_scored_to_be_sent_and_is_being_sent(played):
    met = sum((played(seed)[-1] for seed in range(GAMES)), Counter())

    assert set(met) == {"recorded", "pending", "sending"}
