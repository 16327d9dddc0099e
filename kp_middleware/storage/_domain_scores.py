"""How the scores of a domain are spread."""

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BINS: Final = 20


class DomainScores(NamedTuple):
    """How the scores of one domain are spread.

    Attributes:
        domain: Its name.
        runs: How many have a score.
        median: Half of them score as much or more.
        top_tenth: The best tenth score as much or more.
        best: The highest.
        bins: How many score from 0, 0.05, … 0.95; 1 is in the last.
    """

    domain: str
    runs: int
    median: float
    top_tenth: float
    best: float
    bins: tuple[int, ...]


def spread(name: str, scores: "NDArray[Any]") -> DomainScores:
    """Of one domain, which has a score at least."""
    import numpy as np

    ordered = np.sort(scores)[::-1]
    bins = np.bincount(np.minimum((scores * _BINS + 1e-9).astype(int), _BINS - 1), minlength=_BINS)
    return DomainScores(
        name,
        len(scores),
        float(ordered[(len(scores) - 1) // 2] + ordered[len(scores) // 2]) / 2,
        float(ordered[math.ceil(len(scores) / 10) - 1]),
        float(ordered[0]),
        tuple(bins.tolist()),
    )
