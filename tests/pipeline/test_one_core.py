"""A run's evaluation is the same, live, calibrated, rescored, after feedback and explained."""

import json
import random
from contextlib import closing

import pytest
from click.testing import CliRunner
from rescored import rescore

from kp_middleware import KnowledgePulse, ReasoningTrace, Step, Tool
from kp_middleware.cli import main
from kp_middleware.core.gates import SettingsGate, replay
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.testing import StandInEmbedder

HISTORIES, AT_ONCE = 500, 25
GATES = (0.5, 0.4, "top 20%", "top 5%")
TYPES = ("thought", "tool_call", "observation", "error_recovery")
EVALUATION = "score, decision, threshold, reason_code, gate, success, confidence, id"


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
    with closing(connect(db, read_only=True)) as connection:
        runs = History(connection).scored_runs()
    went = replay(runs, [SettingsGate(threshold, most)])
    return ["forward" if gates else "withhold" for gates in went]


def explained(db, trace_id):
    printed = CliRunner().invoke(main, ["--db", str(db), "show", trace_id, "--why", "--json"])
    return json.loads(printed.stdout)["score"]


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
            *_, success, confidence, trace_id = live[-1]
            kp.feedback(trace_id, success=not success, confidence=confidence / 2)
            kp.feedback(trace_id, success=bool(success), confidence=confidence)

        told = evaluations(db)  # the last run is confirmed now, and ranks higher
        assert (told[:-1], told[-1][0]) == (live[:-1], live[-1][0])
        assert replayed(db, threshold, most) == [decision for _, decision, *_ in live]
        counts = rescore(db, embedder, dry_run=True, **gate).counts
        assert counts["unchanged"] == len(live), counts
        assert explained(db, trace_id) == live[-1][0]
