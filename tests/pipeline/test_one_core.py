"""A run's evaluation is the same, live, calibrated, rescored, after feedback and explained."""

import json
import random
from contextlib import closing

import pytest
from click.testing import CliRunner
from pipeline_helpers import trace_of
from rescored import rescore

from kp_middleware import KnowledgePulse, ReasoningTrace, Step, Tool
from kp_middleware.cli import main
from kp_middleware.core.gates import SettingsGate, replay
from kp_middleware.database import connect
from kp_middleware.instants import instant
from kp_middleware.storage import History
from kp_middleware.testing import StandInEmbedder
from kp_middleware.views.explanation import explain_score
from kp_middleware.views.gate import calibrated

HISTORIES, AT_ONCE = 500, 25
GATES = (0.5, 0.4, "top 20%", "top 5%")
TYPES = ("thought", "tool_call", "observation", "error_recovery")
EVALUATION = (
    "score, complexity, novelty, tool_diversity, outcome_confidence, rules, decision, threshold,"
    " reason_code, gate, rank_key, bar, success, confidence, id"
)


def history(chance):
    """A few runs, now and then enough to tell a share of; some repeat one another."""
    count = 70 if chance.random() < 0.04 else chance.randint(1, 6)
    return [run(chance) for _ in range(count)]


def run(chance):
    kinds = [chance.choice(TYPES) for _ in range(chance.randint(1, 6))]
    steps = [
        Step(
            step_id=place,
            type=kind,
            content=chance.choice(("read", "write", "compare")),
            **({} if kind == "thought" else {"tool": Tool(name=chance.choice("abc"))}),
        )
        for place, kind in enumerate(kinds)
    ]
    return ReasoningTrace.of(
        chance.choice(("find it", "mend it", "tell it")),
        steps,
        domain=chance.choice(("code", "code", "law")),
        confidence=chance.randint(0, 10) / 10,
        success=chance.random() < 0.7,
    )


def evaluations(db):
    with closing(connect(db, read_only=True)) as connection:
        return connection.execute(f"SELECT {EVALUATION} FROM traces ORDER BY seq").fetchall()


def replayed(db, threshold, most):
    """Return the runs that the gate forwarded, and their number as calibrate counts it."""
    with closing(connect(db, read_only=True)) as connection:
        history = History(connection)
        runs = history.scored_runs(history.domains(), timed=True)
        went = replay(runs, SettingsGate(threshold, most))
        counted = tried(history, threshold, most).let_through
    by_seq = dict(pair for name in runs for pair in zip(runs[name].seqs, went[name], strict=True))
    return ["forward" if by_seq[seq] else "withhold" for seq in sorted(by_seq)], counted


def explained(db, trace_ids):
    """Each score and its signals, from the explanations that people see."""
    with History.open(db) as history:
        found = [explain_score(history.run(history.find(trace_id))) for trace_id in trace_ids]
    return [(one.score, *(signal.value for signal in one.signals)) for one in found]


def printed(db, trace_id):
    result = CliRunner().invoke(main, ["--db", str(db), "show", trace_id, "--why", "--json"])
    return json.loads(result.stdout)["score"]


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.slow] if seed else [])
        for seed in range(HISTORIES // AT_ONCE)
    ],
)
def test_every_door_gives_the_same_evaluation(tmp_path, seed):
    chance = random.Random(seed)
    for number in range(AT_ONCE):
        db = tmp_path / f"{number}.db"
        threshold, most = chance.choice(GATES), chance.choice((None, None, 3))
        embedder = chance.choice((None, StandInEmbedder()))
        gate = {"threshold": threshold, "max_per_day": most}
        with KnowledgePulse(db=db, embedder=embedder, sync=True, **gate) as kp:
            for trace in history(chance):
                kp.submit(trace)
            live = evaluations(db)
            ids = [trace_id for *_, trace_id in live]
            explanations = explained(db, ids)
            *_, success, confidence, trace_id = live[-1]
            kp.feedback(trace_id, success=not success, confidence=confidence / 2)
            kp.feedback(trace_id, success=bool(success), confidence=confidence)

        told = evaluations(db)  # the last run is confirmed now, and ranks higher
        assert (told[:-1], told[-1][:6]) == (live[:-1], live[-1][:6])
        decisions = [decision for *_, decision, _, _, _, _, _, _, _, _ in live]
        assert replayed(db, threshold, most) == (decisions, decisions.count("forward"))
        counts = rescore(db, embedder, dry_run=True, **gate).counts
        assert counts["unchanged"] == len(live), counts
        assert explanations == explained(db, ids) == [evaluation[:5] for evaluation in live]
        assert printed(db, trace_id) == live[-1][0]


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
        return dict(went.fetchall()), History(opened[-1])

    yield submit
    [connection.close() for connection in opened]


def runs(seed, count, *, days=20.0, values=40):
    """Of two domains, whose scores often are the same, in no strict order of time."""
    chance = random.Random(seed)
    return [
        run_of(
            chance.randrange(values) / values,
            chance.choice(DOMAINS),
            BEGAN_S + (place / count * days + chance.random() * 3) * DAY_S,
            private=chance.random() < 0.2,
        )
        for place in range(count)
    ]


def run_of(confidence, domain, began_s, *, private=False):
    visibility = "private" if private else "network"
    metadata = {"created_at": instant(began_s), "visibility": visibility}
    return trace_of(domain=domain, confidence=confidence, metadata=metadata)


def tried(trial, threshold, most=None, **asked):
    found = calibrated(trial, now=threshold, most=most, **asked)
    return next(one for one in found.settings if one.setting == threshold)


FILES = {
    "often the same": (90, 20, 20),
    "long ago": (140, 70, 6),
    "more than it looks back on": (240, 20, 1),
    "all the same": (70, 1, 1),
}
TRIED = [(0.5, None), (0.5, 9), ("top 10%", None), ("top 10%", 9), ("top 33.3%", None)]


@pytest.mark.parametrize(
    ("file", "threshold", "most"),
    [
        *((file, *gate) for file in ("often the same", "all the same") for gate in TRIED),
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
    went, trial = decided(traces, threshold="top 10%")
    with closing(connect(db, read_only=True)) as connection:
        half = connection.execute("SELECT started_at FROM traces WHERE seq = 100").fetchone()[0]
        since = connection.execute(
            "SELECT count(*), sum(decision = 'forward') FROM traces"
            " WHERE started_at >= ? AND visibility <> 'private'",
            (half,),
        ).fetchone()
    late = calibrated(trial, now="top 10%", since=half)

    assert dict(tried(trial, "top 10%", domain="law").domains) == {"law": went["law"]}
    assert dict(tried(trial, "top 10%", 999, domain="law").domains) == {"law": went["law"]}
    assert late.runs == since[0]
    assert tried(trial, "top 10%", since=half).let_through == since[1]


def test_a_file_without_scores_has_nothing_to_try(decided):
    _, trial = decided([])

    found = calibrated(trial, now=0.0)

    assert (found.runs, found.days, found.domains, found.recommended) == (0, 1, [], None)
    assert {(one.let_through, one.share, one.known) for one in found.settings} == {(0, 0, 0)}
