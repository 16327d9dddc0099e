import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.scores import Shape, Signals, Weights
from kp_middleware.scoring import PROFILES
from kp_middleware.scoring._signals import (
    adjusted,
    complexity,
    novelty,
    outcome_confidence,
    tool_diversity,
    weighted,
)
from kp_middleware.traces import Outcome

ALL_TYPES = frozenset({"thought", "tool_call", "observation", "error_recovery"})
SHAPES = st.builds(
    Shape,
    steps=st.integers(1, 10_000),
    types=st.frozensets(st.sampled_from(sorted(ALL_TYPES)), min_size=1),
    tools=st.integers(0, 50),
    recoveries=st.integers(0, 10),
)
UNITS = st.floats(0, 1)


def shape(steps=2, types=frozenset({"thought"}), tools=0, recoveries=0):
    return Shape(steps=steps, types=types, tools=tools, recoveries=recoveries)


@pytest.mark.parametrize(
    ("given_shape", "expected"),
    [
        (shape(steps=1), 0.135),
        (shape(steps=10, types=ALL_TYPES), 0.6),
        (shape(steps=10, types=ALL_TYPES, recoveries=1), 0.9),
        (shape(steps=1000), 1.0),
    ],
    ids=["one thought", "all types", "with a recovery", "capped, though the step term is not"],
)
def test_complexity_counts_types_recoveries_and_steps(given_shape, expected):
    assert complexity(given_shape) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [(None, 0.5), (1.0, 0.0), (0.0, 1.0), (-1.0, 1.0), (1.0000000000000002, 0.0)],
    ids=["nothing to compare", "repeat", "unlike", "opposite is clamped", "rounding is clamped"],
)
def test_novelty_is_what_similarity_leaves(similarity, expected):
    assert novelty(similarity) == expected


@pytest.mark.parametrize(
    ("steps", "tools", "expected"),
    [(6, 0, 0.0), (6, 1, 0.5), (6, 2, 1.0), (6, 5, 1.0)],
    ids=["none", "one in six", "two in six", "capped"],
)
def test_tool_diversity_is_three_times_the_tools_per_step(steps, tools, expected):
    assert tool_diversity(shape(steps=steps, tools=tools)) == pytest.approx(expected)


@pytest.mark.parametrize(("success", "expected"), [(True, 0.9), (False, 0.27)])
def test_confidence_counts_less_after_a_failure(success, expected):
    outcome = Outcome(result_summary="", confidence=0.9)

    assert outcome_confidence(outcome, success=success) == pytest.approx(expected)


def test_a_single_thought_scores_a_tenth_whatever_else():
    score, adjustments = adjusted(0.9, shape(steps=1), success=True)

    assert score == 0.1
    assert adjustments == (("single_thought", pytest.approx(-0.8)),)


@pytest.mark.parametrize(
    ("recoveries", "success", "expected"),
    [(3, True, 0.6), (2, True, 0.5), (3, False, 0.5)],
    ids=["three survived", "two are not many", "the run failed"],
)
def test_many_recoveries_raise_the_score_of_a_success(recoveries, success, expected):
    many = shape(steps=9, tools=2, recoveries=recoveries)

    score, _ = adjusted(0.5, many, success=success)

    assert score == pytest.approx(expected)


def test_a_single_tool_lowers_the_score_but_not_below_zero():
    score, adjustments = adjusted(0.04, shape(tools=1), success=True)

    assert score == 0.0
    assert adjustments == (("single_tool", -0.04),)


def test_each_rule_works_on_the_result_of_the_one_before():
    score, adjustments = adjusted(0.95, shape(steps=9, tools=1, recoveries=3), success=True)

    assert score == pytest.approx(0.9)
    assert [rule for rule, _ in adjustments] == ["many_recoveries", "single_tool"]


@given(SHAPES, UNITS, UNITS, st.booleans(), st.sampled_from(sorted(PROFILES)))
def test_score_and_signals_stay_between_0_and_1(any_shape, similarity, confidence, success, domain):
    signals = Signals(
        complexity=complexity(any_shape),
        novelty=novelty(similarity),
        tool_diversity=tool_diversity(any_shape),
        outcome_confidence=confidence,
    )

    score, _ = adjusted(weighted(signals, PROFILES[domain]), any_shape, success=success)

    assert 0 <= score <= 1


@given(SHAPES, UNITS, st.booleans())
def test_the_adjustments_add_up_to_the_score(any_shape, base, success):
    score, adjustments = adjusted(base, any_shape, success=success)

    assert score == pytest.approx(base + sum(delta for _, delta in adjustments))


def test_weights_that_do_not_sum_to_one_are_refused():
    with pytest.raises(ValueError, match=r"weights must sum to 1, these sum to 1\.1"):
        Weights(complexity=0.5, novelty=0.2, tool_diversity=0.2, outcome_confidence=0.2)
