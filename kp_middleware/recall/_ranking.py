"""How well past runs fit a task: their order, and whether any fits at all."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kp_middleware.embedding import Vector

BAR: Final = 0.53
"""What `fit` must reach: where nothing fits, 2 to 4 in 100 runs did on recorded ones."""

BAR_OF_WORDS: Final = 0.8
"""The same without vectors."""

_MOST_TELLING: Final = 5.0  # of one word, in nats


def packed(vector: Vector) -> bytes:
    r"""Return a unit vector in a quarter of the room: int8, 127 is 1.

    >>> packed(np.array([1.0, -0.5], np.float32))
    b'\x7f\xc0'
    """
    return np.rint(vector * 127).astype(np.int8).tobytes()


def cosines(vector: Vector, stored: Sequence[bytes | None]) -> NDArray[np.float64]:
    """Return the cosine with each packed vector; NaN where there is none of that width."""
    found = np.full(len(stored), np.nan)
    there = [at for at, one in enumerate(stored) if one is not None and len(one) == len(vector)]
    if there:
        matrix = np.frombuffer(b"".join(stored[at] or b"" for at in there), np.int8)
        found[there] = matrix.reshape(len(there), -1).astype(np.float32) @ vector / 127
    return found


def order(words: Sequence[float], cosines: NDArray[np.float64]) -> list[int]:
    """Return the places of runs, the best first: by the roots of both ranks, added.

    >>> order([3.0, 2.0, 1.0], np.array([0.1, 0.9, 0.5]))
    [1, 0, 2]
    """
    total = np.sqrt(_ranks(np.asarray(words))) + np.sqrt(_ranks(np.nan_to_num(cosines, nan=-1)))
    return [int(at) for at in np.argsort(total, kind="stable")]


def telling(share: float) -> float:
    """Return how telling a word is that this share of runs has: little if all have it."""
    return min(_MOST_TELLING, math.log((2 - share) / share))


def fit(shares: Mapping[str, float], shared: Collection[str], cosine: float) -> float:
    """Return how telling the shared words are, as a mean over all of the task, times the cosine.

    A vague task fits nothing: its words tell little, however many of them are shared.
    """
    told = sum(telling(shares[word]) for word in shared) / max(1, len(shares))
    return told if math.isnan(cosine) else told * max(0.0, cosine)


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each, 0 for the highest."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks
