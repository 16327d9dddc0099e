"""A share holds for all who use a file: at once, one after another, and replayed."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate

import pytest
from pipeline_helpers import column_of
from rescored import rescore, score_in_turn, traces

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.testing import StandInEmbedder

SHARE = 0.2
TOP = {"threshold": "top 20%"}


@pytest.fixture
def submit(pulse):
    """Scores runs in a pipeline of its own, which ends; as after a restart."""
    return partial(score_in_turn, pulse, **TOP)


@pytest.fixture
def let_through(type_command):
    """Return how many runs a threshold would have let through, by calibrate."""

    def count(setting="top 20%", *words):
        found = json.loads(type_command("calibrate", "--json", *words).stdout)
        return next(row["let_through"] for row in found["settings"] if row["setting"] == setting)

    return count


def spread(chosen, share=SHARE):
    """Return the largest surplus or deficit of chosen runs in any stretch."""
    offs = [0.0, *accumulate(gone - share for gone in chosen)]
    return max(offs) - min(offs)


AT_ONCE = """
    import random
    from kp_middleware import KnowledgePulse, ReasoningTrace, Step
    from kp_middleware.testing import StandInEmbedder

    luck = random.Random({seed})
    steps = [Step(step_id=0, type="thought", content="x"), Step(step_id=1, type="observation")]
    with KnowledgePulse(embedder=StandInEmbedder(), sync=True, threshold="top 20%") as kp:
        for number in range(60):
            kp.submit(ReasoningTrace.of(f"Ask {{number}}", steps, confidence=luck.random()))
"""


@pytest.mark.slow
def test_processes_at_once_keep_one_account(run_child, column, db, let_through):
    for first in (0, 3):  # and once more after a restart
        with ThreadPoolExecutor(3) as at_once:
            codes = [AT_ONCE.format(seed=first + number) for number in range(3)]
            assert [*at_once.map(run_child, codes)] == [""] * 3

    chosen, credit = column("chosen"), column("credit")
    assert len(chosen) == 360
    assert credit[-1] == pytest.approx(360 * SHARE - sum(chosen))
    assert abs(credit[-1]) <= 6

    rescore(db, StandInEmbedder(), **TOP)

    replayed = column("chosen")
    assert sum(replayed) == let_through()
    assert spread(replayed[10:]) < 11
    assert rescore(db, StandInEmbedder(), **TOP).counts == {"unchanged": 360}


@pytest.mark.parametrize("most", [None, 3])
def test_restarts_change_nothing_and_a_replay_gives_the_same(
    submit, column, db, tmp_path, let_through, most
):
    runs, settings = traces(240), {} if most is None else {"max_per_day": most}
    [submit(runs[first : first + 40], **settings) for first in range(0, 240, 40)]
    submit(runs, db=tmp_path / "in_one.db", **settings)

    for name in ("chosen", "credit", "decision", "rank_key", "bar"):
        assert column(name) == column_of(tmp_path / "in_one.db", name)
    assert rescore(db, StandInEmbedder(), **TOP, **settings).counts == {"unchanged": 240}
    assert let_through() == sum(column("chosen"))
    assert column("credit")[-1] == pytest.approx(240 * SHARE - sum(column("chosen")))
    if most is not None:
        assert column("decision").count("forward") == most


def test_a_share_holds_when_old_runs_are_removed(submit, column, connection):
    gone = []
    for part in range(6):
        submit(traces(50, seed=part))
        gone += column("chosen")[-50:]
        connection.execute("DELETE FROM traces WHERE seq <= (SELECT max(seq) FROM traces) - 20")

    assert len(column("chosen")) == 20
    assert spread(gone[10:]) < 11
    assert column("credit")[-1] == pytest.approx(300 * SHARE - sum(gone))


def test_what_is_reported_later_moves_a_run_but_not_the_share(
    submit, pulse, column, db, let_through
):
    submit(traces(120))
    chosen, credit = column("chosen"), column("credit")
    with pulse(sync=True, estimate="off", **TOP) as kp:
        for name, went in [*zip(column("id"), chosen, strict=True)][20:80:3]:
            kp.feedback(name, success=not went)

    moved = column("decision")
    assert (column("chosen"), column("credit")) == (chosen, credit)
    refused = range(20, 80, 3)
    assert moved == [
        "forward" if went and place not in refused else "withhold"
        for place, went in enumerate(chosen)
    ]
    assert let_through() == sum(chosen)
    rescore(db, StandInEmbedder(), estimate="off", **TOP)
    assert (column("chosen"), column("credit")) == (chosen, credit)
    assert column("decision") == moved


def test_a_share_holds_where_every_run_is_reported_to_have_succeeded(pulse, column):
    with pulse(sync=True, **TOP) as kp:
        for run in traces(100):
            kp.submit(run)
            kp.feedback(run.id, success=True)

    assert spread(decision == "forward" for decision in column("decision")[10:]) < 11
    assert column("decision").count("forward") == sum(column("chosen"))


def test_what_is_reported_of_the_first_runs_does_not_change_the_account(submit, pulse, column, db):
    tools = [Tool(name="find"), Tool(name="read")]
    steps = [
        Step(step_id=0, type="thought"),
        Step(step_id=1, type="tool_call", tool=tools[0]),
        Step(step_id=2, type="error_recovery", tool=tools[0]),
        Step(step_id=3, type="tool_call", tool=tools[1]),
        Step(step_id=4, type="observation", tool=tools[1]),
    ]
    certain = [
        ReasoningTrace.of(f"Ask {number}", steps, domain="medical", confidence=1.0)
        for number in range(40)
    ]
    submit(certain)
    chosen, credit = column("chosen"), column("credit")
    assert any(chosen[:10])
    with pulse(sync=True, **TOP) as kp:
        for run in certain[:10]:
            kp.feedback(run.id, success=False)

    anew = rescore(db, StandInEmbedder(), estimate="off", **TOP)
    assert anew.counts == {"unchanged": 40}
    assert (column("chosen"), column("credit")) == (chosen, credit)


def test_a_share_that_was_changed_is_replayed_as_if_it_had_always_held(
    submit, column, db, tmp_path
):
    runs = traces(150)
    submit(runs[:50])
    submit(runs[50:100], threshold="top 10%")
    submit(runs[100:])
    submit(runs, db=tmp_path / "always.db")
    back = column("chosen")[100:]

    rescore(db, StandInEmbedder(), **TOP)

    assert spread(back) < 11
    for name in ("chosen", "credit", "decision", "gate"):
        assert column(name) == column_of(tmp_path / "always.db", name)
