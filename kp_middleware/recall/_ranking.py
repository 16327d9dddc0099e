"""How well past runs fit a task: their order, and whether any fits at all."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kp_middleware.embedding import Vector

_NEAR: Final = (0.86, 0.6)
"""A cosine at which a run is the same task in other words, and what its `fit` must then reach."""

_ALIKE: Final = (0.76, 0.5)
"""The same for a run that may be another one of a like task: words must tell them apart."""

_ALONE: Final = (0.5, 0.5)
"""The same for a run that no other one comes near."""

_BY_FAR: Final = 5.0
"""How many times as well as any other such a run fits."""

_FORM: Final = (0.5, 0.45)
"""The same for a run that is done the same way with other values."""

_FEW_WORDS: Final = 8
"""A task of fewer words tells little: then no other run may fit nearly as well."""

_CLEARLY: Final = 1.6
"""How many times as well as others a run fits that words tell apart."""

_WORDS_ALONE: Final = 0.8
"""What the fit must reach without vectors."""

_SAME: Final = 3
"""As many runs may have done the same task; the next one is another's."""

_MOST_TELLING: Final = 5.0  # of one word, in nats
_WORDS_FOR_COSINE: Final = 0.3


def packed(vector: Vector) -> bytes:
    r"""Return a unit vector in a quarter of the room: int8, 127 is 1.

    >>> packed(np.array([1.0, -0.5], np.float32))
    b'\x7f\xc0'
    """
    return np.rint(vector * 127).astype(np.int8).tobytes()


class Cosines(NamedTuple):
    """How like a task a run is; NaN without vectors.

    Attributes:
        opening: The cosine with the beginning of what people said.
        mean: Of that and the cosine with its first line.
    """

    opening: float
    mean: float


def cosines(vector: Vector, stored: Sequence[bytes | None]) -> list[Cosines]:
    """Return the cosines with each pair of packed vectors, or with one that stands for both."""
    width = len(vector)
    there = {at: one for at, one in enumerate(stored) if one and len(one) in (width, 2 * width)}
    pairs = b"".join(one if len(one) > width else one + one for one in there.values())
    matrix = np.frombuffer(pairs, np.int8).reshape(-1, 2, width).astype(np.float32)
    found = dict(zip(there, matrix @ vector / 127, strict=True))
    nothing = (math.nan, math.nan)
    both = (found.get(at, nothing) for at in range(len(stored)))
    return [Cosines(float(opening), float(opening + first) / 2) for opening, first in both]


def order(words: Sequence[float], cosines: Sequence[float]) -> list[int]:
    """Return the places of runs, the best first: by the roots of both ranks, added.

    >>> order([3.0, 2.0, 1.0], [0.1, 0.9, 0.5])
    [1, 0, 2]
    """
    near = np.nan_to_num(np.asarray(cosines), nan=-1)
    total = np.sqrt(_ranks(np.asarray(words))) + np.sqrt(_ranks(near))
    return [int(at) for at in np.argsort(total, kind="stable")]


def telling(share: float) -> float:
    """Return how telling a word is that this share of runs has: little if all have it."""
    return min(_MOST_TELLING, math.log((2 - share) / share))


def telling_of(shares: Mapping[str, float], shared: Collection[str]) -> float:
    """Return how telling the shared words are, as a mean over all of the task.

    A vague task fits nothing: its words tell little, however many of them are shared.
    """
    return sum(telling(shares[word]) for word in shared) / max(1, len(shares))


def fit(told: float, cosine: float) -> float:
    """Return how well a run fits: how telling the words are, times the cosine."""
    return told if math.isnan(cosine) else told * max(0.0, cosine)


def rating(told: float, cosine: float) -> float:
    """Return by what found runs are ordered: the cosine, and how telling the shared words are."""
    return told if math.isnan(cosine) else cosine + _WORDS_FOR_COSINE * min(told, 1.0)


def bar(cosines: Cosines, words: int, fits: Sequence[float], *, is_form: bool = False) -> float:
    """Return what the fit of a run must reach.

    Tasks of one template share most of their words, and are taken for each other unless a run is
    near, fits much better than the others, or is a form to be filled in.

    Args:
        cosines: Of the run.
        words: The number of different words of the task.
        fits: Those of the runs that fit best, the best first.
        is_form: Whether the run took all that it did from its task.

    >>> near, alike, far = Cosines(0.9, 0.9), Cosines(0.8, 0.8), Cosines(0.6, 0.6)
    >>> bar(near, 5, [1.2, 1.1]), bar(alike, 5, [1.2, 1.0]), bar(far, 5, [0.6])
    (0.6, 1.6, 0.5)
    >>> bar(alike, 20, [0.9, 0.8, 0.4, 0.2]), bar(far, 5, [1.2, 1.1], is_form=True)
    (0.5, 0.45)
    """
    if math.isnan(cosines.mean):
        return max(_WORDS_ALONE, _CLEARLY * _at(fits, _SAME))
    ways = []
    if cosines.opening >= _NEAR[0]:
        ways.append(_NEAR[1])
    if is_form and cosines.mean >= _FORM[0]:
        ways.append(_FORM[1])
    if cosines.mean >= _ALIKE[0]:
        other = _at(fits, _SAME if words >= _FEW_WORDS else 1)
        ways.append(max(_ALIKE[1], _CLEARLY * other))
    if cosines.mean >= _ALONE[0]:
        ways.append(max(_ALONE[1], _BY_FAR * _at(fits, 1)))
    return min(ways, default=math.inf)


def _at(fits: Sequence[float], place: int) -> float:
    return fits[place] if place < len(fits) else 0.0


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each, 0 for the highest."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks
