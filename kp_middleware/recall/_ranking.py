"""How well past runs fit a task: their order, and whether any fits at all."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kp_middleware.asked import first_line, telling
from kp_middleware.embedding import Vector

_NEAR: Final = (0.81, 0.5)
"""A cosine at which a run is the same task in other words, and what its `fit` must then reach."""

_ALIKE: Final = (0.66, 0.5)
"""The same for a run that may be another one of a like task: words must tell them apart."""

_FORM: Final = (0.5, 0.45)
"""The same for a run that is done the same way with other values."""

_CLEARLY: Final = 1.7
"""How many times as well as others a run fits that words tell apart."""

_WORDS_ALONE: Final = 0.8
"""What the fit must reach without vectors."""

_SAME: Final = 3
"""As many runs may have done the same task; the next one is another's."""

_REPLACED: Final = 2
"""So many words are a detail that another task of the same wording has."""

_WORDS_FOR_COSINE: Final = 0.3
_WORD: Final = re.compile(r"[^\W_]+")


def packed(vector: Vector) -> bytes:
    r"""Return a unit vector in a quarter of the room: int8, 127 is 1.

    >>> packed(np.array([1.0, -0.5], np.float32))
    b'\x7f\xc0'
    """
    return np.rint(vector * 127).astype(np.int8).tobytes()


def cosines(vector: Vector, stored: Sequence[bytes | None]) -> list[float]:
    """Return the cosine with each packed vector; NaN where there is none of that length.

    >>> cosines(np.array([1.0, 0.0], np.float32), [packed(np.array([0.0, 1.0], np.float32)), None])
    [0.0, nan]
    """
    there = {at: one for at, one in enumerate(stored) if one and len(one) == len(vector)}
    matrix = np.frombuffer(b"".join(there.values()), np.int8).reshape(-1, len(vector))
    found = dict(zip(there, (matrix.astype(np.float32) @ vector / 127).tolist(), strict=True))
    return [found.get(at, math.nan) for at in range(len(stored))]


def order(words: Sequence[float], cosines: Sequence[float]) -> list[int]:
    """Return the places of runs, the best first: by the roots of both ranks, added.

    >>> order([3.0, 2.0, 1.0], [0.1, 0.9, 0.5])
    [1, 0, 2]
    """
    near = np.nan_to_num(np.asarray(cosines), nan=-1)
    total = np.sqrt(_ranks(np.asarray(words))) + np.sqrt(_ranks(near))
    return [int(at) for at in np.argsort(total, kind="stable")]


def words_of(text: str) -> list[str]:
    """Return the different words of a text.

    >>> words_of("Cancel my flight, cancel it!")
    ['cancel', 'my', 'flight', 'it']
    """
    return [*dict.fromkeys(_WORD.findall(text.lower()))]


def telling_of(shares: Mapping[str, float], shared: Collection[str]) -> float:
    """Return how telling the shared words are, by the share of runs that has each of the task's.

    It is a mean over all words of the task: a vague one fits nothing.
    """
    return sum(telling(shares[word]) for word in shared) / max(1, len(shares))


def fit(told: float, cosine: float) -> float:
    """Return how well a run fits: how telling the words are, times the cosine."""
    return told if math.isnan(cosine) else told * max(0.0, cosine)


def rating(told: float, cosine: float) -> float:
    """Return by what found runs are ordered: the cosine, and how telling the shared words are."""
    return told if math.isnan(cosine) else cosine + _WORDS_FOR_COSINE * min(told, 1.0)


def replaced(task: str, said: str) -> list[str]:
    """Return the words of a run that stand where a task of the same wording has others.

    If other runs have them, too, it was another task: they are a city, a name, a service.

    >>> replaced("Restart the billing service.", "Restart the search service.")
    ['search']
    >>> replaced("Book a flight from Rome to Oslo.", "Book a flight from Oslo to Rome.")
    ['oslo', 'to']
    >>> replaced("Restart the billing service.", "Billing hangs: please restart it.")
    []
    """
    ours, theirs = (_WORD.findall(first_line(text).lower()) for text in (task, said))
    if abs(len(ours) - len(theirs)) >= _REPLACED:
        return []
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    same = {at for block in blocks for at in range(block.b, block.b + block.size)}
    fewer, more = sorted(len(words) - len(same) for words in (ours, theirs))
    if not 1 <= fewer <= more <= min(_REPLACED, len(same) // 2):
        return []
    return [word for at, word in enumerate(theirs) if at not in same]


def may_be_form(cosine: float, fit: float) -> bool:
    """Return whether it matters if a run is a form: to know, its calls must be read."""
    return cosine >= _FORM[0] and fit >= _FORM[1]


def bar(
    cosine: float, fits: Sequence[float], *, is_form: bool = False, is_other: bool = False
) -> float:
    """Return what the fit of a run must reach: infinite if it is too far from the task.

    Tasks of one template share most of their words, and are taken for each other unless a run is
    near and none fits clearly better, fits clearly better than the others (``fits``, the best
    first), or is a form to be filled in. One of another task (``is_other``) can only be a form.

    >>> near, alike, far = 0.9, 0.7, 0.6
    >>> many, few = [0.85, 0.8, 0.8, 0.8], [0.9, 0.8, 0.4, 0.2]
    >>> bar(near, many), bar(near, many, is_other=True), bar(far, few)
    (0.5, inf, inf)
    >>> bar(alike, few), bar(far, many, is_form=True, is_other=True)
    (0.5, 0.45)
    """
    ways = [_FORM[1]] if is_form and cosine >= _FORM[0] else []
    clearly = _CLEARLY * (fits[_SAME] if len(fits) > _SAME else 0.0)
    if not is_other:
        if math.isnan(cosine):
            ways.append(max(_WORDS_ALONE, clearly))
        if cosine >= _NEAR[0]:
            ways.append(max(_NEAR[1], fits[0] / _CLEARLY))
        if cosine >= _ALIKE[0]:
            ways.append(max(_ALIKE[1], clearly))
    return min(ways, default=math.inf)


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each, 0 for the highest."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks
