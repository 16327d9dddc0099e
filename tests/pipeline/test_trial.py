"""What a trial says of a gate, the gate itself has decided: both look at the same runs."""

import random
from contextlib import closing

import pytest
from pipeline_helpers import trace_of

from kp_middleware.database import connect
from kp_middleware.instants import epoch_s, instant
from kp_middleware.storage import History
from kp_middleware.views.gate import calibrated

DAY_S = 24 * 3600
BEGAN_S = 1.76e9
DOMAINS = ("medical",) * 4 + ("law",)


@pytest.fixture
def decided(pulse, db):
    """Submits runs; returns what the real gate let through, by domain, and a trial on the file.

    What is private takes part, and is counted by neither.
    """
    opened = []

    def submit(traces, **settings):
        kp = pulse(embedder=None, sync=True, **settings)
        for trace in traces:
            kp.submit(trace)
        kp.flush()
        kp.close()
        opened.append(connect(db, read_only=True))
        went = opened[-1].execute(
            "SELECT domain, sum(decision = 'forward') FROM traces"
            " WHERE visibility <> 'private' GROUP BY domain"
        )
        return dict(went.fetchall()), History(opened[-1]).scored_runs()

    yield submit
    [connection.close() for connection in opened]


def runs(seed, count, *, days=20.0, values=40):
    """Of two domains, whose scores often are the same, in no strict order of time."""
    chance = random.Random(seed)
    return [
        run(
            chance.randrange(values) / values,
            chance.choice(DOMAINS),
            BEGAN_S + (place / count * days + chance.random() * 3) * DAY_S,
            private=chance.random() < 0.2,
        )
        for place in range(count)
    ]


def run(confidence, domain, began_s, *, private=False, success=True):
    visibility = "private" if private else "network"
    metadata = {"created_at": instant(began_s), "visibility": visibility}
    return trace_of(domain=domain, confidence=confidence, success=success, metadata=metadata)


def tried(trial, threshold, most=None, **asked):
    found = calibrated(trial, now=threshold, most=most, **asked)
    return next(one for one in found.settings if one.setting == threshold)


FILES = {
    "often the same": (150, 20, 20),
    "long ago": (220, 70, 6),
    "more than it looks back on": (760, 20, 1),
    "all the same": (120, 1, 1),
}
GATES = [(0.5, None), (0.5, 9), ("top 10%", None), ("top 10%", 9), ("top 33.3%", None)]


@pytest.mark.parametrize(
    ("file", "threshold", "most"),
    [
        *((file, *gate) for file in ("often the same", "all the same") for gate in GATES),
        ("often the same", "top 2.5%", None),
        ("often the same", "top 100%", 9),
        ("long ago", "top 10%", None),
        ("long ago", "top 33.3%", None),
        ("more than it looks back on", "top 10%", None),
    ],
)
def test_a_trial_lets_through_what_the_gate_did(decided, file, threshold, most):
    count, days, values = FILES[file]
    traces = runs(count + values, count, days=days, values=values)

    went, trial = decided(traces, threshold=threshold, max_per_day=most)

    assert dict(tried(trial, threshold, most).domains) == went


def test_only_what_is_asked_for_is_counted_and_all_is_looked_back_on(decided, db):
    traces = runs(1, 200)
    went, _ = decided(traces, threshold="top 10%")
    with closing(connect(db, read_only=True)) as connection:
        half = connection.execute("SELECT started_at FROM traces WHERE seq = 100").fetchone()[0]
        since = connection.execute(
            "SELECT count(*), sum(decision = 'forward') FROM traces"
            " WHERE started_at >= ? AND visibility <> 'private'",
            (half,),
        ).fetchone()
        runs_of_file = History(connection).scored_runs()
    late = calibrated(runs_of_file, now="top 10%", since_ms=round(epoch_s(half) * 1000))

    assert dict(tried(runs_of_file, "top 10%", domain="law").domains) == {"law": went["law"]}
    assert late.runs == since[0]
    assert (
        tried(runs_of_file, "top 10%", since_ms=round(epoch_s(half) * 1000)).let_through == since[1]
    )


def test_a_day_has_room_for_so_many(decided, db):
    decided([run(0.9, "law", BEGAN_S) for _ in range(60)])
    with closing(connect(db)) as connection:
        connection.execute(
            "UPDATE traces SET decided_at = strftime('%Y-%m-%dT%H:%M:%fZ', ?, 'unixepoch',"
            " seq || ' hours')",
            (BEGAN_S,),
        )
        trial = History(connection).scored_runs()

    assert tried(trial, 0.0, 7).let_through == 3 * 7


def test_how_many_of_them_succeeded_is_counted(decided):
    _, trial = decided([run(0.9, "law", BEGAN_S, success=well) for well in (True, False)])

    assert (tried(trial, 0.0).let_through, tried(trial, 0.0).succeeded) == (2, 1)


def test_a_file_without_scores_has_nothing_to_try(decided):
    _, trial = decided([])

    found = calibrated(trial, now=0.0)

    assert (found.runs, found.days, found.domains, found.recommended) == (0, 1, [], None)
    assert {(one.let_through, one.share, one.known) for one in found.settings} == {(0, 0, 0)}
