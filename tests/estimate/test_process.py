"""An estimate of success from few known runs."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_middleware import ReasoningTrace, Step, Tool
from kp_middleware.estimate import FEATURES, GaussianProcess, features, is_trusted

STEPS = FEATURES.index("steps")


def runs(count, seed=1):
    """Runs of which the short ones succeed, and their vectors."""
    chance = np.random.default_rng(seed)
    of = chance.normal(0, 0.1, (count, len(FEATURES))).astype(np.float32)
    of[:, STEPS] += chance.random(count) < 0.5
    vectors = chance.normal(0, 1, (count, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return of, vectors, of[:, STEPS] < 0.5


def learned(count, **kwargs):
    of, vectors, success = runs(100)
    return GaussianProcess(of, of[:count], vectors[:count], success[:count], **kwargs)


def test_twenty_known_runs_tell_most_others_apart():
    of, vectors, success = runs(200, seed=2)
    process = learned(20)

    said = np.array([process.estimate(*run).p for run in zip(of, vectors, strict=True)])

    assert np.mean(said[success][:, None] > said[~success]) > 0.9


def test_its_main_reason_is_what_decided():
    of, vectors, _ = runs(100)

    said = learned(40).estimate(of[0], vectors[0])

    name, off, adds = said.reasons[0]
    assert name == "steps"
    assert len(said.reasons) == 2
    assert (off > 0) == (adds < 0)


def test_two_hundred_known_runs_are_solved_on_one_core_alone():
    of, vectors, success = runs(200)
    vectors = np.repeat(vectors, 48, axis=1) / np.sqrt(48)
    on_others = []
    for _ in range(5):
        all_s, own_s = time.process_time(), time.thread_time()
        GaussianProcess(of, of, vectors, success).estimate(of[0], vectors[0])
        on_others.append(time.process_time() - all_s - (time.thread_time() - own_s))

    assert min(on_others) < 0.001


def test_what_is_not_trusted_is_the_base_rate():
    of, vectors, success = runs(100)

    said = learned(20, is_trusted=False).estimate(of[0], vectors[0])

    assert said.p == said.base == (success[:20].sum() + 1) / 22
    assert said.raw != said.base


@given(
    st.integers(1, 30),
    st.sampled_from([0, 1]),
    st.integers(0, 2**16),
    st.floats(0, 100),
    st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_an_estimate_is_a_probability_whatever_is_known(count, width, seed, scale, rate):
    chance = np.random.default_rng(seed)
    of = (scale * chance.random((count, len(FEATURES)))).astype(np.float32)
    vectors = np.ones((count, width), np.float32)
    process = GaussianProcess(of, of, vectors, chance.random(count) < rate)

    said = [process.estimate(*run) for run in zip(of, vectors, strict=True)]

    assert all(0 < one.p < 1 and 0 < one.base < 1 for one in said)


def test_what_is_mostly_wrong_is_distrusted():
    assert not is_trusted([(0.1, 0.5, True)] * 3)
    assert is_trusted([(0.1, 0.5, False)] * 3)
    assert is_trusted([])


def trace(*steps):
    numbered = [step.model_copy(update={"step_id": at}) for at, step in enumerate(steps)]
    return ReasoningTrace.of("Cancel my flight", numbered)


def step(kind, content=None, tool=None, **arguments):
    given = {"content": content, "tool": tool and Tool(name=tool), "input": arguments}
    return Step(step_id=0, type=kind, **{name: value for name, value in given.items() if value})


def test_the_features_of_a_run_are_counted():
    counts = np.expm1(
        features(
            trace(
                step("thought", "I look it up"),
                step("tool_call", tool="find", id=1),
                step("error_recovery", tool="find"),
                step("tool_call", tool="find", id=1),
                step("observation", tool="find"),
                step("tool_call", tool="transfer_to_human"),
                step("observation", tool="transfer_to_human"),
                step("thought", "Sorry, I cannot cancel; you are confirmed."),
            )
        )
    )

    expected = {
        "steps": 8,
        "failed_calls": 1 / 3,
        "failed_last_steps": 1 / 8,
        "repeated_calls": 1 / 3,
        "transfer": 1,
        "words_per_thought": 5.5,
        "last_words": 7,
        "last_inability": 2,
        "last_positive": 1,
        "negative_words": 100 * 2 / 11,
        "tools": 2,
        "thoughts": 0.25,
    }
    assert dict(zip(FEATURES, counts, strict=True)) == pytest.approx(expected, rel=1e-5)


def test_a_run_without_thoughts_and_tools_has_features():
    assert np.isfinite(features(trace(step("observation", "x")))).all()
