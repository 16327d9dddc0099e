"""A share lets through what it promises, on any stream of runs."""

import math
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kp_middleware.core.evaluation import RunFacts
from kp_middleware.core.formula import Shape, Signals, Weights
from kp_middleware.core.gates import WARM_UP, Ranking, choose, window_size

WEIGHTS = Weights(0.2, 0.3, 0.2, 0.3)


def chosen(keys, share):
    """Whether each run goes, by its key, if none scores enough for the warm-up."""
    ranking, went = Ranking(window_size(share)), []
    for key in keys:
        choice = choose(share, ranking, key=key, score=0.0)
        ranking.add(key, chosen=choice.is_chosen, credit=choice.credit)
        went.append(choice.is_chosen)
    return went


def most_off(went, share):
    """How far the number of those that went is off, at the worst end."""
    return max(abs(off) for off in accumulate(gone - share for gone in went))


def spread(went, share):
    """How far it is off in the worst stretch, wherever that begins and ends."""
    offs = [0.0, *accumulate(gone - share for gone in went)]
    return max(offs) - min(offs)


def longest_without(went):
    return max(map(len, "".join("x" if gone else " " for gone in went).split("x")))


unit = st.floats(0.0, 1.0, allow_nan=False)
count = st.integers(30, 1500)
shares = st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.2, 1 / 3, 0.5])


@st.composite
def streams(draw):
    """Keys of runs: alike, drifting, periodic, in bursts, or of two agents."""
    runs, chance = draw(count), draw(st.randoms(use_true_random=False))
    kind = draw(st.sampled_from(sorted(KINDS)))
    return [min(1.0, max(0.0, KINDS[kind](place / runs, place, chance))) for place in range(runs)]


KINDS = {
    "alike": lambda _, __, chance: chance.random(),
    "decaying": lambda part, _, chance: math.exp(-5 * part) * (0.8 + 0.2 * chance.random()),
    "strictly falling": lambda part, *_: 1 - part,
    "strictly rising": lambda part, *_: part,
    "drifting": lambda part, _, chance: part / 2 + chance.random() / 2,
    "periodic": lambda _, place, chance: math.sin(place / 16) / 2 + 0.5 + chance.random() / 100,
    "all equal": lambda *_: 0.3,
    "two values": lambda _, __, chance: chance.choice((0.2, 0.7)),
    "a burst": lambda part, _, chance: chance.random() / 2 + (0.4 < part < 0.5) / 2,
    "a step down": lambda part, _, chance: chance.random() / 2 + (part < 0.5) / 2,
    "two agents": lambda _, place, chance: (0.5 if place % 3 else 0.0) + chance.random() / 3,
}


@given(streams(), shares)
@settings(max_examples=75, deadline=None)
def test_a_share_holds_on_any_stream(keys, share):
    went = chosen(keys, share)

    after = went[WARM_UP:]
    assert not any(went[:WARM_UP])
    assert most_off(went, share) <= 6
    assert spread(after, share) < 11
    assert longest_without(after) <= 11 / share


@given(st.lists(unit, min_size=WARM_UP, max_size=400), shares)
@settings(max_examples=75, deadline=None)
@example([0.4] * 110, 0.1)
def test_a_share_holds_for_any_keys(keys, share):
    assert most_off(chosen(keys, share), share) <= 6


@given(st.lists(st.tuples(unit, st.booleans()), max_size=60), unit, st.integers(1, 20))
def test_a_ranking_counts_the_last_runs(runs, key, last):
    ranking = Ranking(last)
    for earlier, gone in runs:
        ranking.add(earlier, chosen=gone)

    kept = runs[-last:]
    assert len(ranking) == len(kept)
    assert ranking.chosen_count == sum(gone for _, gone in kept)
    assert ranking.runs_ahead(key) == sum(
        earlier > key or (earlier == key and gone) for earlier, gone in kept
    )


def test_the_protocols_threshold_holds_in_the_warm_up():
    ranking = Ranking(100)

    assert choose(0.2, ranking, key=0.1, score=0.75).is_chosen
    assert not choose(0.2, ranking, key=0.9, score=0.74).is_chosen


def run_of(signals, p_success=None):
    shape = Shape(4, frozenset({"thought"}), 2, 0)
    return RunFacts(shape, 0.8, True, measured=signals, p_success=p_success, is_stated=False)


def test_a_confirmed_run_ranks_before_an_unknown_one_and_that_before_a_failure():
    def key(p_success):
        return run_of(Signals(0.5, 0.3, 0.5, 0.8), p_success).rank_key(WEIGHTS)

    assert key(1.0) > key(0.6) > key(None) == key(0.5) > key(0.0) == 0.0


@pytest.mark.parametrize("worse", [Signals(0.9, 0.3, 0.5, 0.8), Signals(0.5, 0.2, 0.5, 0.8)])
def test_the_calmer_and_newer_of_two_runs_ranks_higher(worse):
    better = Signals(0.5, 0.3, 0.5, 0.8)
    keys = [run_of(signals).rank_key(WEIGHTS) for signals in (better, worse)]

    assert keys[0] > keys[1]
