"""The protocol's formula: signals, weights, rules, and what another value would have given."""

import math
from dataclasses import FrozenInstanceError, astuple
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kp_middleware import ReasoningTrace, Score, Step, Tool
from kp_middleware.core.evaluation import Ending, RunFacts, score_run
from kp_middleware.core.formula import (
    PROFILES,
    SIGNALS,
    STEP_TYPES,
    Nearest,
    ScoreParts,
    Shape,
    Signals,
    Weights,
    combine,
    measure,
)

ALL_TYPES = frozenset(STEP_TYPES)
SHAPES = st.builds(
    Shape,
    steps=st.integers(1, 10_000),
    types=st.frozensets(st.sampled_from(STEP_TYPES), min_size=1),
    tools=st.integers(0, 50),
    recoveries=st.integers(0, 10),
)
UNIT = st.floats(0, 1)
SIGNAL_SETS = st.builds(Signals, UNIT, UNIT, UNIT, UNIT)
WEIGHTS = st.sampled_from([*PROFILES.values()])
RULES = st.sampled_from(
    [(), ("single_thought",), ("many_recoveries", "single_tool"), ("single_tool",)]
)
THRESHOLDS = UNIT | st.sampled_from([0.1, 0.6, 0.7, 0.75])
EVEN = Weights(0.25, 0.25, 0.25, 0.25)
HALF = Signals(0.5, 0.5, 0.5, 0.5)


def shape(steps=2, types=frozenset({"thought"}), tools=0, recoveries=0):
    return Shape(steps=steps, types=types, tools=tools, recoveries=recoveries)


def test_the_shape_counts_steps_types_tools_and_recoveries():
    steps = [
        Step(step_id=0, type="tool_call", tool=Tool(name="search")),
        Step(step_id=1, type="error_recovery", tool=Tool(name="search")),
        Step(step_id=2, type="tool_call", tool=Tool(name="fetch", mcp_server="web")),
        Step(step_id=3, type="error_recovery"),
    ]

    found = ReasoningTrace.of("look it up", steps).shape

    assert found == shape(4, frozenset({"tool_call", "error_recovery"}), 2, 2)


@pytest.mark.parametrize(
    ("signal", "given", "expected"),
    [
        pytest.param("complexity", {"steps": 1}, 0.135, id="one thought"),
        pytest.param("complexity", {"steps": 10, "types": ALL_TYPES}, 0.6, id="all types"),
        pytest.param(
            "complexity",
            {"steps": 10, "types": ALL_TYPES, "recoveries": 1},
            0.9,
            id="with a recovery",
        ),
        pytest.param("complexity", {"steps": 1000}, 1.0, id="capped, though its step term is not"),
        pytest.param("novelty", {"similarity": None}, 0.5, id="nothing to compare"),
        pytest.param("novelty", {"similarity": 1.0}, 0.0, id="a repeat"),
        pytest.param("novelty", {"similarity": 0.0}, 1.0, id="unlike"),
        pytest.param("novelty", {"similarity": -1.0}, 1.0, id="opposite is clamped"),
        pytest.param("novelty", {"similarity": 1.0000000000000002}, 0.0, id="rounding is clamped"),
        pytest.param("tool_diversity", {"steps": 6, "tools": 0}, 0.0, id="no tool"),
        pytest.param("tool_diversity", {"steps": 6, "tools": 1}, 0.5, id="one in six steps"),
        pytest.param("tool_diversity", {"steps": 6, "tools": 2}, 1.0, id="two in six steps"),
        pytest.param("tool_diversity", {"steps": 6, "tools": 5}, 1.0, id="tools are capped"),
        pytest.param("outcome_confidence", {"success": True}, 0.9, id="after a success"),
        pytest.param("outcome_confidence", {"success": False}, 0.27, id="less after a failure"),
    ],
)
def test_a_signal_is_measured_as_the_protocol_says(signal, given, expected):
    given = {"similarity": None, "success": True, **given}
    similarity, success = given.pop("similarity"), given.pop("success")

    signals = measure(shape(**given), similarity, 0.9, success=success)

    assert getattr(signals, signal) == pytest.approx(expected)


def scored(given_shape, similarity=0.5, confidence=0.8, success=True, weights=EVEN):
    nearest = None if similarity is None else Nearest("", similarity)
    return score_run(RunFacts(given_shape, Ending(success, confidence), nearest), weights)


def test_a_single_thought_scores_a_tenth_whatever_else():
    score = scored(shape(steps=1))

    assert (score.value, score.rules) == (0.1, ("single_thought",))


@pytest.mark.parametrize(
    ("recoveries", "success", "fires"),
    [(3, True, True), (2, True, False), (3, False, False)],
    ids=["three survived", "two are not many", "the run failed"],
)
def test_many_recoveries_raise_the_score_of_a_success(recoveries, success, fires):
    score = scored(shape(steps=9, tools=2, recoveries=recoveries), success=success)

    assert score.rules == (("many_recoveries",) if fires else ())
    assert sum(delta for _, delta in score.adjustments) == pytest.approx(0.1 if fires else 0)


def test_a_single_tool_lowers_the_score_but_not_below_zero():
    value, adjustments = combine(Signals(0.04, 0, 0, 0), Weights(1, 0, 0, 0), ("single_tool",))

    assert (value, adjustments) == (0.0, (("single_tool", -0.04),))


def test_each_rule_works_on_the_result_of_the_one_before():
    high = Signals(0.95, 0.95, 0.95, 0.95)

    value, adjustments = combine(high, EVEN, ("many_recoveries", "single_tool"))

    assert value == pytest.approx(0.9)
    assert [delta for _, delta in adjustments] == [pytest.approx(0.05), pytest.approx(-0.1)]


@given(SHAPES, UNIT, UNIT, st.booleans(), WEIGHTS)
def test_a_score_is_what_its_signals_weights_and_rules_add_up_to(
    any_shape, similarity, confidence, success, weights
):
    score = scored(any_shape, similarity, confidence, success, weights)

    parts = ScoreParts(score.signals, weights, score.rules)
    base, _ = combine(score.signals, weights, ())
    assert all(0 <= number <= 1 for number in (score.value, *score.signals))
    assert score.value == pytest.approx(base + sum(delta for _, delta in score.adjustments))
    assert (parts.score, parts.adjustments) == (score.value, score.adjustments)


@given(SHAPES, UNIT, UNIT, UNIT, st.booleans(), st.booleans(), WEIGHTS)
def test_another_outcome_gives_the_score_that_it_would_have_given_at_once(
    any_shape, similarity, before, after, succeeded, success, weights
):
    first = scored(any_shape, similarity, before, succeeded, weights)

    run = RunFacts(any_shape, Ending(success, after), first.nearest, measured=first.signals)

    assert score_run(run, weights) == scored(any_shape, similarity, after, success, weights)


@given(
    st.builds(ScoreParts, SIGNAL_SETS, WEIGHTS, RULES), st.sampled_from(SIGNALS), THRESHOLDS, UNIT
)
@example(
    ScoreParts(HALF, Weights(0, 0.5, 0.25, 0.25), ()), "complexity", 0.6, 0.5
)  # does not count
@example(ScoreParts(HALF, EVEN, ()), "novelty", 0.625, 0.5)  # must be 1
def test_a_value_reaches_the_threshold_from_the_least_millionth_on(parts, signal, threshold, probe):
    least = parts.min_signal(signal, threshold)

    edge = math.inf if least is None else least
    probes = [round(probe, 6), 0.0, 1.0, min(edge, 1.0), round(max(0.0, min(edge, 1.0) - 1e-6), 6)]
    reached = [parts.with_signal(signal, value).score >= threshold for value in probes]
    assert reached == [value >= edge for value in probes]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *(
            (partial(Weights, 0.25, weight, 0.25, 0.25), "weights must sum to 1, these sum to")
            for weight in (0.3, 0.25 + 1e-8, 0)
        ),
        *(
            (partial(Weights, weight, 0.25, 0.25, 0.25), "complexity")
            for weight in (-0.25, 1.25, math.nan, math.inf)
        ),
        *((partial(Score, value, HALF, EVEN), "from 0 to 1") for value in (-0.01, 1.01, math.nan)),
    ],
)
def test_weights_and_scores_that_are_none_are_refused_in_words(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_weights_may_be_off_by_rounding():
    assert sum(Weights(0.1, 0.2, 0.3, 0.4)) == pytest.approx(1)


def test_a_score_cannot_be_changed():
    score = Score(0.5, HALF, EVEN)

    with pytest.raises(FrozenInstanceError):
        score.value = 0.9


def test_signals_and_weights_are_in_the_order_of_their_names():
    signals = measure(shape(), None, 0.9, success=True)

    assert tuple(signals) == astuple(signals) == tuple(getattr(signals, n) for n in SIGNALS)
