"""The gate's benchmark plays streams through today's gate."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from gate import WEIGHTS, Reviewer, Stream, by_last_scores, by_share

sys.path.pop(0)


@pytest.fixture
def stream():
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(80, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    success = chance.random(80) < 0.5
    features = (chance.random((80, 12)) + success[:, None]).astype(np.float32)
    return Stream(WEIGHTS["airline"], features, chance.random((80, 3)), vectors, success)


@pytest.mark.parametrize("answers", [0, 10])
def test_a_fifth_of_a_stream_goes_by_its_share(stream, answers):
    reviewer = Reviewer(answers, at_random=0.0, chance=np.random.default_rng(1))

    went = by_share(stream, 0.2, reviewer)

    assert 0.1 <= went.mean() <= 0.3
    assert len(by_last_scores(stream, 0.2, reviewer)) == len(went)
