"""Estimate whether a run did its task, from the few runs of which somebody has told.

Twelve counts of a run go into a Gaussian process with a logistic link, by Laplace's approximation:
Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), section 3.4.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kp_middleware.traces import ReasoningTrace

Features: TypeAlias = NDArray[np.float32]
"""float32, shape ``(12,)`` or ``(runs, 12)``: the logarithms of counts from 0, plus one."""

FEATURES: Final = (
    "steps",
    "failed_calls",
    "failed_last_steps",
    "repeated_calls",
    "transfer",
    "words_per_thought",
    "last_words",
    "last_inability",
    "last_positive",
    "negative_words",
    "tools",
    "thoughts",
)
"""Their names, in the order of the columns."""

_LAST_STEPS: Final = 10
_READ: Final = 50_000  # characters of thoughts, the last ones: a page takes 0.1 ms

# In lower case, by first letters: ten times as fast as re.IGNORECASE over whole words.
_UNABLE: Final = (
    r"sorry|apolog\w*|un(?:able|fortunately)|can(?:not|'t)|could(?:n't| not)"
    r"|not (?:possible|able|allowed|eligible)|failed|transfer\w*"
)
_INABILITY: Final = re.compile(rf"\b(?:{_UNABLE})\b")
_NEGATIVE: Final = re.compile(
    rf"\b(?:{_UNABLE}|however|fails|timed? ?out|issue|still|limited|partial\w*|error)\b"
)
_POSITIVE: Final = re.compile(
    r"\b(?:success\w*|co(?:mpleted?|nfirmed|rrect\w*)|done|refund\w*|thank\w*|verified|passe[sd]"
    r"|works|perfect)\b"
)


def features(trace: ReasoningTrace) -> Features:
    """Return the features of a run, which do not read how it ended."""
    steps = trace.steps
    tools = [step.tool.name for step in steps if step.type == "tool_call" and step.tool]
    calls = {
        (step.tool.name, json.dumps(step.input, sort_keys=True, default=str))
        for step in steps
        if step.type == "tool_call" and step.tool
    }
    failed = [step.type == "error_recovery" for step in steps]
    thoughts = [step.content or "" for step in steps if step.type == "thought"]
    last = thoughts[-1][-_READ:].lower() if thoughts else ""
    said = "\n".join(thoughts)[-_READ:].lower()
    words = len(said.split())
    counts = (
        len(steps),
        sum(failed) / max(1, len(tools)),
        sum(failed[-_LAST_STEPS:]) / len(failed[-_LAST_STEPS:]),
        (len(tools) - len(calls)) / max(1, len(tools)),
        any("transfer" in name for name in tools),
        words / max(1, len(thoughts)),
        len(last.split()),
        len(_INABILITY.findall(last)),
        len(_POSITIVE.findall(last)),
        100 * len(_NEGATIVE.findall(said)) / max(1, words),
        len(set(tools)),
        len(thoughts) / len(steps),
    )
    return np.log1p(np.array(counts, dtype=np.float32))


Vector: TypeAlias = NDArray[np.float32]
"""float32, shape ``(d,)`` or ``(runs, d)``, of length 1; of length 0 where there is none."""

_Reals: TypeAlias = NDArray[np.floating[Any]]

_BIAS: Final = 0.3
_ON_FEATURES: Final = 2.0
_ON_VECTORS: Final = 4.0
_POWER: Final = 4
_FEWEST_SEEN: Final = 6  # with fewer runs a feature has no usual value
_DISTRUST: Final = -3.0  # the base rate foretold what is known 20 times better
_GROWTH: Final = 1.25
_ITERATIONS: Final = 25
_CLOSE: Final = 1e-5
_EXACT: Final = 1e-12
_ALONE: Final = 2**18  # multiplications
_LIKENESS: Final = "likeness"
_REASONS: Final = 2


class Known(NamedTuple):
    """The runs of which somebody has told how they ended; embeddings have shape ``(known, d)``."""

    features: Features
    vectors: Vector
    success: NDArray[np.bool_]


class Estimate(NamedTuple):
    """The probability that a run did its task, from 0 to 1.

    Attributes:
        raw: What the process says, also while it is not trusted and ``p`` is the base rate.
        reasons: The two main ones: a feature of `FEATURES` or ``likeness``, how far it lies from
            the usual in standard deviations (0 for likeness), and what it adds to the log-odds.
    """

    p: float
    raw: float
    base: float
    reasons: tuple[tuple[str, float, float], ...]


class Prediction(NamedTuple):
    """An estimate, its base rate, and how the run ended."""

    p: float
    base: float
    success: bool


def is_trusted(foretold: Iterable[Prediction]) -> bool:
    """Return False where the base rate was better by far on runs whose end became known.

    >>> is_trusted([Prediction(0.1, 0.5, True)])
    True
    >>> is_trusted([Prediction(0.1, 0.5, True)] * 3)
    False
    """
    gain = sum(_log(one.p, one.success) - _log(one.base, one.success) for one in foretold)
    return gain >= _DISTRUST


class Process:
    """A Gaussian process that has learned from known runs: 5 ms for 200, on one core.

    ``seen``, shape ``(runs, 12)``, tells what is usual; untrusted, each estimate is the base rate.
    """

    def __init__(self, seen: Features, known: Known, *, is_trusted: bool = True) -> None:
        self.solved_at = len(seen)
        usual = len(seen) >= _FEWEST_SEEN
        self._mean = seen.mean(axis=0) if usual else np.zeros(len(FEATURES), np.float32)
        deviation = seen.std(axis=0) if usual else np.full(len(FEATURES), np.inf)
        self._deviation = np.where(deviation > 1e-3, deviation, np.inf)
        self._is_trusted = is_trusted
        self._z = self._standardized(known.features)
        self._vectors = known.vectors.astype(np.float64)
        success = known.success.astype(float)
        self._base = float(success.sum() + 1) / (len(success) + 2)
        self._offset = math.log(self._base / (1 - self._base))
        kernel = self._kernel(self._z, self._vectors)
        self._kernel_of_known = kernel
        self._weights, self._root = _solve(kernel, success, self._offset)
        self._slopes = _ON_FEATURES / len(FEATURES) * self._weights @ self._z

    def estimate(self, features: Features, vector: Vector) -> Estimate:
        """Estimate one run: features of shape ``(12,)``, and its embedding."""
        z, vector = self._standardized(features), vector.astype(np.float64)
        kernel = self._kernel(z[None], vector[None])[0]
        own = _BIAS + _ON_FEATURES / len(FEATURES) * z @ z + _ON_VECTORS * (vector @ vector)
        scaled = self._root * kernel
        known = _divided(scaled, self._kernel_of_known, self._root, np.zeros(len(scaled)))
        variance = max(0.0, own - scaled @ known)
        logit = self._offset + kernel @ self._weights
        raw = float(_sigmoid(logit / math.sqrt(1 + math.pi * variance / 8)))
        p = raw if self._is_trusted else self._base
        return Estimate(p, raw, self._base, self._reasons(z, vector))

    def holds_at(self, runs: int) -> bool:
        """Return whether so few runs were seen since that what is usual is still the same."""
        return runs < self.solved_at * _GROWTH

    def _reasons(self, z: _Reals, vector: _Reals) -> tuple[tuple[str, float, float], ...]:
        likeness = float(_ON_VECTORS * self._alike(vector[None])[0] @ self._weights)
        effects = [
            *zip(FEATURES, z.tolist(), (z * self._slopes).tolist(), strict=True),
            (_LIKENESS, 0.0, likeness),
        ]
        main = sorted(effects, key=lambda effect: -abs(effect[2]))[:_REASONS]
        return tuple((name, round(off, 3), round(adds, 3)) for name, off, adds in main if adds)

    def _standardized(self, features: Features) -> _Reals:
        return np.clip((features - self._mean) / self._deviation, -3.0, 3.0)

    def _kernel(self, z: _Reals, vectors: _Reals) -> _Reals:
        linear = _ON_FEATURES / len(FEATURES) * _product(z, self._z.T)
        return _BIAS + linear + _ON_VECTORS * self._alike(vectors)

    def _alike(self, vectors: _Reals) -> _Reals:
        return np.maximum(0.0, _product(vectors, self._vectors.T)) ** _POWER


def _solve(kernel: _Reals, success: _Reals, offset: float) -> tuple[_Reals, _Reals]:
    """Return the weights of the known runs and the root of each one's curvature, by Newton."""
    latent: _Reals = np.zeros(len(success))
    weights = solved = latent
    for _ in range(_ITERATIONS):
        p = _sigmoid(latent + offset)
        curvature = p * (1 - p) + 1e-6
        root, target = np.sqrt(curvature), curvature * latent + (success - p)
        solved = _divided(root * _times(kernel, target), kernel, root, solved)
        weights = target - root * solved
        before, latent = latent, _times(kernel, weights)
        if np.abs(latent - before).max() < _CLOSE:
            break
    return weights, root


def _divided(right: _Reals, kernel: _Reals, root: _Reals, near: _Reals) -> _Reals:
    """Divide by ``1 + root · kernel · root``: conjugate gradients, from a solution that is near."""
    solved = near
    rest = way = right - near - root * _times(kernel, root * near)
    left = rest @ rest
    for _ in range(len(right)):
        if left <= _EXACT * len(right):
            break
        ahead = way + root * _times(kernel, root * way)
        step = left / (way @ ahead)
        solved, rest = solved + step * way, rest - step * ahead
        left, before = rest @ rest, left
        way = rest + left / before * way
    return solved


def _product(one: _Reals, other: _Reals) -> _Reals:
    """Multiply in parts that are too small for BLAS to share among threads: waits cost more."""
    if len(one) == 1:
        return _times(other.T, one[0])[None]
    parts = math.ceil(one.size * other.shape[1] / _ALONE)
    return np.concatenate([part @ other for part in np.array_split(one, max(1, parts))])


def _times(matrix: _Reals, vector: _Reals) -> _Reals:
    product: _Reals = np.einsum("ij,j->i", matrix, vector)  # without BLAS
    return product


def _sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(z, -30, 30)))


def _log(p: float, success: bool) -> float:  # noqa: FBT001 - an outcome
    return math.log(p if success else 1 - p)
