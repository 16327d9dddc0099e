"""What `show --why` promises is so, by the formula itself; what it calls impossible is."""

import re
from contextlib import closing
from dataclasses import replace

import pytest
from hand_made import put, run, scored, step
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.core.formula import (
    PROFILES,
    SIGNALS,
    Parts,
    Signals,
    fired_rules,
    measure,
)
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.explanation import remedy, shape_of

UNIT = st.floats(0, 1)
THRESHOLDS = UNIT | st.sampled_from([0.1, 0.5, 0.6, 0.7, 0.75, 0.8])


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run as it is read from a file."""
    db = tmp_path_factory.mktemp("remedies") / "kp.db"
    made = run("Book", step("thought"), step("tool_call", "search"))
    seq = put(db, made, scored(made))
    with closing(connect(db, read_only=True)) as connection:
        return History(connection).run(seq)


def made(stored, steps, tools, recoveries, confidence, *, success):
    facts = {"step_count": steps, "tool_count": min(tools, steps), "recovery_count": recoveries}
    return replace(stored, **facts, confidence=confidence, success=success)


def parts_of(of, weights, measured):
    """The parts of its score, by the formula; complexity and novelty as they were measured."""
    of_run = measure(shape_of(of), None, of.confidence, success=of.success)
    signals = Signals(*measured, of_run.tool_diversity, of_run.outcome_confidence)
    return Parts(signals, weights, fired_rules(shape_of(of), success=of.success))


@given(
    st.tuples(st.integers(2, 30), st.integers(0, 6), st.integers(0, 4), UNIT),
    st.booleans(),
    st.sampled_from([*PROFILES.values()]),
    st.tuples(UNIT, UNIT),
    THRESHOLDS,
    st.sampled_from(SIGNALS),
)
def test_what_is_named_gives_the_other_verdict(
    stored, counts, success, weights, measured, threshold, signal
):
    of = made(stored, *counts, success=success)
    parts = parts_of(of, weights, measured)
    cleared = parts.score >= threshold

    words = remedy(of, parts, signal, threshold, measured=True)

    if value := re.match(r"(at most )?(\d\.\d{3}) instead of", words):
        score = parts.with_signal(signal, max(0.0, float(value[2]))).score
        assert score < threshold if cleared else score >= threshold - 1e-9
    if tools := re.match(r"(\d+) different tools? instead of", words):
        other = replace(of, tool_count=int(tools[1]))
        assert (parts_of(other, weights, measured).score >= threshold) != cleared
    if confidence := re.search(r"(a|its) confidence of (\d\.\d{3})", words):
        said = of.confidence if confidence[1] == "its" else float(confidence[2])
        outcome = "a failure" not in words if success else "a success" in words
        other = replace(of, confidence=said, success=outcome)
        score = parts_of(other, weights, measured).score
        assert score < threshold if cleared else score >= threshold - 1e-9
    if words.startswith("cannot alone") and signal == "tool_diversity":
        others = [replace(of, tool_count=tools) for tools in range(of.step_count + 1)]
        scores = [parts_of(other, weights, measured).score for other in others]
        assert {score >= threshold for score in scores} == {cleared}
