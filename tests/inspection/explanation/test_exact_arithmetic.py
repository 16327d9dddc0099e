"""The arithmetic of `explain` is the scorer's, to the last bit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.inspection.explanation.rescoring import Parts
from kp_middleware.scores import Shape, Signals
from kp_middleware.scoring import PROFILES
from kp_middleware.scoring import _signals as formula
from kp_middleware.specified import SIGNALS

UNIT = st.floats(0, 1)
TYPES = ("thought", "tool_call", "observation", "error_recovery")
SHAPES = st.builds(
    Shape,
    steps=st.integers(1, 40),
    types=st.frozensets(st.sampled_from(TYPES), min_size=1),
    tools=st.integers(0, 4),
    recoveries=st.integers(0, 5),
)
WEIGHTS = st.sampled_from([*PROFILES.values()])
THRESHOLDS = UNIT | st.sampled_from([0.1, 0.6, 0.7, 0.75])


@st.composite
def scores(draw):
    """The parts of a score, and what the scorer makes of them: its value and its adjustments."""
    shape, weights, success = draw(SHAPES), draw(WEIGHTS), draw(st.booleans())
    signals = Signals(**{name: draw(UNIT) for name in SIGNALS})
    base = formula.weighted(signals, weights)
    value, adjustments = formula.adjusted(base, shape, success=success)
    values = (tuple(getattr(one, name) for name in SIGNALS) for one in (signals, weights))
    return Parts(*values, tuple(one.rule for one in adjustments)), value, adjustments


@given(scores())
def test_the_parts_give_the_score_that_the_scorer_gave(scored):
    parts, value, _ = scored

    assert parts.score == value


@given(scores())
def test_each_rule_changes_what_it_changed_for_the_scorer(scored):
    parts, _, adjustments = scored

    assert [tuple(change) for change in parts.changes] == [tuple(one) for one in adjustments]


@given(scores(), st.sampled_from(SIGNALS), THRESHOLDS, UNIT)
def test_a_value_reaches_the_threshold_just_where_it_is_the_least_or_more(
    scored, signal, threshold, probe
):
    parts, *_ = scored

    least = parts.least(signal, threshold)
    edge = math.inf if least is None else least
    probes = [probe, 0.0, 1.0, min(edge, 1.0), math.nextafter(min(edge, 1.0), 0)]

    reached = [parts.changed(signal, value).score >= threshold for value in probes]
    assert reached == [value >= edge for value in probes]


def test_a_signal_that_does_not_count_cannot_help():
    parts = Parts((0.5, 0.5, 0.5, 0.5), (0.0, 0.5, 0.25, 0.25), ())

    assert parts.least("complexity", 0.6) is None


def test_one_thought_scores_the_same_whatever_its_signals():
    parts = Parts((1.0, 1.0, 1.0, 1.0), (0.25, 0.25, 0.25, 0.25), ("single_thought",))

    assert parts.score == pytest.approx(0.1)


def test_a_signal_that_must_be_1_can_help():
    parts = Parts((0.5, 0.5, 0.5, 0.5), (0.25, 0.25, 0.25, 0.25), ())

    assert parts.least("novelty", 0.625) == pytest.approx(1.0)
