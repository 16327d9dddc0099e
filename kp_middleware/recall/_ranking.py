"""The order in which past runs fit a task: by vectors and by words, ranks added."""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


def fused(words: Scores, cosines: Scores) -> Scores:
    """Return a score for each run, highest first by the sum of its two ranks.

    >>> fused(np.array([3.0, 2.0, 1.0]), np.array([0.1, 0.9, 0.5])).tolist()
    [-2.0, -1.0, -3.0]
    """
    return -(_ranks(words) + _ranks(cosines))


def _ranks(scores: Scores) -> Scores:
    """Return the rank of each, 0 for the highest."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks
