"""The values of scoring hold what they promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kp_middleware import ReasoningTrace, Score, Step, Tool
from kp_middleware.scores import Adjustment, Shape, Signals, Weights

EQUAL = {"complexity": 0.25, "novelty": 0.25, "tool_diversity": 0.25, "outcome_confidence": 0.25}


def test_the_shape_counts_steps_types_tools_and_recoveries():
    steps = [
        Step(step_id=0, type="tool_call", tool=Tool(name="search")),
        Step(step_id=1, type="error_recovery", tool=Tool(name="search")),
        Step(step_id=2, type="tool_call", tool=Tool(name="fetch", mcp_server="web")),
        Step(step_id=3, type="error_recovery"),
    ]

    shape = Shape.of(ReasoningTrace.of("look it up", steps))

    assert (shape.steps, shape.tools, shape.recoveries) == (4, 2, 2)
    assert shape.types == {"tool_call", "error_recovery"}


@pytest.mark.parametrize(
    "changes",
    [{"novelty": 0.3}, {"novelty": 0.25 + 1e-8}, {"novelty": 0}],
    ids=["too much", "a little too much", "too little"],
)
def test_weights_that_do_not_sum_to_one_are_refused_with_their_sum(changes):
    with pytest.raises(ValidationError, match="weights must sum to 1, these sum to"):
        Weights(**EQUAL | changes)


def test_weights_may_be_off_by_rounding():
    weights = Weights(complexity=0.1, novelty=0.2, tool_diversity=0.3, outcome_confidence=0.4)

    assert weights.complexity + weights.novelty == pytest.approx(0.3)


@pytest.mark.parametrize("share", [-0.25, 1.25, float("nan"), float("inf")])
def test_a_share_outside_of_0_to_1_is_refused(share):
    with pytest.raises(ValidationError, match="complexity"):
        Weights(**EQUAL | {"complexity": share})


@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan")])
def test_a_score_outside_of_0_to_1_is_refused(value):
    with pytest.raises(ValidationError, match="value"):
        Score(value=value, signals=Signals(**EQUAL), weights=Weights(**EQUAL))


@given(st.lists(st.sampled_from(["single_thought", "many_recoveries", "single_tool"])))
def test_the_rules_are_the_names_of_the_adjustments_in_order(names):
    adjustments = tuple(Adjustment(name, 0.1) for name in names)

    score = Score(
        value=0.5, signals=Signals(**EQUAL), weights=Weights(**EQUAL), adjustments=adjustments
    )

    assert score.rules == tuple(names)


def test_a_score_cannot_be_changed():
    score = Score(value=0.5, signals=Signals(**EQUAL), weights=Weights(**EQUAL))

    with pytest.raises(ValidationError, match="frozen"):
        score.value = 0.9
