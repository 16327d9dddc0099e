"""Thousands of traces for a registry that does all that is bad, on a clock that does not wait."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from many_traces import random_trace, rows, send_for, sender_on, sent_by_id
from unsent_store import UnsentStore

from kp_middleware import KnowledgePulse, ReasoningTrace
from kp_middleware.testing import Answer, FakeClock, Fault, LocalRegistry

TRACES, BATCH, FEW = 1200, 50, 5
HOUR_S = 3600.0
TIMEOUT_S = 0.1

BUSY = Answer(503, b"<html>", {"Retry-After": "90"})
CALM = {None: 95, Fault.CLOSE_IDLE: 2, Fault.STORE_AND_RESET: 1, 500: 1, 429: 1}
ROUGH = {
    **dict.fromkeys(Fault, 2.5),
    **dict.fromkeys((500, 502, 503, 504, 429), 2.0),
    **dict.fromkeys((Fault.DEAD_KEY, Fault.NO_REPUTATION, 403), 0.5),
    None: 65,
}
OUTAGES = (500, 502, BUSY, Fault.HANG, Fault.RESET, Fault.HANG_UP, Fault.CUT, Fault.NONSENSE)
REFUSED = {b"forbidden words": 400, b"much too large": 413, b"choke on this": 500}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class ChangingFaults:
    """A script: each half hour is calm, rough, or an outage; some documents are never taken."""

    def __init__(self, seed, clock):
        self._seed = seed
        self._clock = clock
        self._calm = Fault.mixed(CALM, seed=seed)
        self._rough = Fault.mixed(ROUGH, seed=seed)
        self.met = Counter()

    def __call__(self, received):
        fault = self._fault(received)
        self.met[fault.status if isinstance(fault, Answer) else fault] += 1
        return fault

    def _fault(self, received):
        for words, status in REFUSED.items():
            if words in received.body:
                return status
        today = random.Random(f"{self._seed} {self._clock() // 1800}")
        kinds = self._calm, self._rough, lambda _: outage
        outage = today.choice(OUTAGES)
        return today.choices(kinds, (3, 6, 1))[0](received)


def run_season(folder, *, seed, replays):
    """Traces come by fifties, then good ones by fives; after each, another process sends a while.

    By fives, because a document that the registry chokes on is told from a registry in trouble
    only beside others that it takes.
    """
    clock, luck = FakeClock(), random.Random(seed)
    weather, db = ChangingFaults(seed, clock), folder / "kp.db"
    with LocalRegistry(answers=weather, replays=replays, clock=clock) as registry:
        coming = [BATCH] * (TRACES // BATCH)
        while coming or any_waits(db):
            count, kind = (coming.pop(), mixed_trace) if coming else (FEW, random_trace)
            score(db, registry, [kind(luck) for _ in range(count)])
            with sender_on(db, registry, clock, timeout_s=TIMEOUT_S) as forwarder:
                send_for(forwarder, clock, turns=luck.randint(1, 2 * count))
    return SimpleNamespace(registry=registry, weather=weather, db=db, replays=replays)


def any_waits(db):
    return rows(db, "SELECT 1 FROM outbox WHERE state IN ('pending', 'sending') LIMIT 1")


def mixed_trace(luck):
    objective = luck.choice([words.decode() for words in REFUSED]) if luck.random() < 0.03 else None
    trace = random_trace(luck, objective)
    visibility = "private" if luck.random() < 0.1 else "network"
    return trace.model_copy(
        update={"metadata": trace.metadata.model_copy(update={"visibility": visibility})}
    )


def score(db, registry, traces):
    goes = {"registry_url": registry.url, "api_key": registry.api_key, "threshold": 0.35}
    unsent = {"db": db, "store": UnsentStore.at(db), "embedder": None, "sync": True}
    with KnowledgePulse(**unsent, **goes) as kp:
        [kp.submit(trace) for trace in traces]


def forwardable(db):
    """The ids of what may leave, and will be taken."""
    cleared = rows(
        db,
        "SELECT id, objective FROM traces WHERE decision = 'forward' AND visibility <> 'private'",
    )
    return {id for id, objective in cleared if objective.encode() not in REFUSED}


@pytest.fixture(scope="module", params=["without Redis", "with Redis"])
def whole_season(request, memory):
    folder = memory / request.param
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        return run_season(folder, seed=20261121, replays=request.param == "with Redis")


def test_each_forwardable_trace_is_stored_as_it_was_sent_and_nothing_else(whole_season):
    registry, db = whole_season.registry, whole_season.db
    sent = rows(db, "SELECT remote_id, body FROM outbox WHERE state = 'sent'")

    assert len(forwardable(db)) > TRACES / 2
    assert set(registry.documents) == forwardable(db)
    assert {id: ReasoningTrace.model_validate_json(body) for id, body in sent} == registry.documents


def test_every_row_ends_as_it_should(whole_season):
    db = whole_season.db
    ends = Counter(rows(db, "SELECT state, coalesce(reason, '') FROM outbox"))

    assert ends.pop(("sent", "")) == len(forwardable(db))
    assert {state for state, _ in ends} == {"rejected", "blocked"}
    assert {reason for state, reason in ends if state == "blocked"} == {"retries_exhausted"}


def test_every_attempt_has_the_same_bytes_and_overwrites_only_under_another_key(whole_season):
    registry, sent = whole_season.registry, sent_by_id(whole_season.registry)
    bodies = {id: {body for body, _ in attempts} for id, attempts in sent.items()}
    keys = {id: {key for _, key in attempts} for id, attempts in sent.items()}
    overwritten = {id for id, times in registry.times_stored.items() if times > len(keys[id])}

    assert max(attempts.total() for attempts in sent.values()) >= 8
    assert {len(different) for different in bodies.values()} == {1}
    assert not whole_season.replays or overwritten == set()


def test_never_are_there_three_429s_within_an_hour(whole_season):
    registry = whole_season.registry
    at = registry.refused_at

    assert len(at) > 10
    assert not registry.revoked
    assert min(third - first for first, third in zip(at, at[2:], strict=False)) >= HOUR_S


def test_all_that_is_bad_was_met(whole_season):
    assert set(whole_season.weather.met) >= {*ROUGH, 400, 413}
