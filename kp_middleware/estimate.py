"""Estimate whether a run succeeded, from the few runs with a known outcome.

Twelve counts of a run go into a Gaussian process with a logistic link, by Laplace's approximation:
Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), section 3.4.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kp_middleware.traces import ReasoningTrace

__all__ = ["FEATURES", "Features", "GaussianProcess", "features", "is_trusted"]

Features: TypeAlias = NDArray[np.float32]
"""float32, shape ``(12,)`` or ``(runs, 12)``: ``log(1 + count)``."""

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
"""The names of the features, in column order."""

_LAST_STEPS: Final = 10
_MAX_READ: Final = 50_000  # characters of thoughts, the last ones: a page takes 0.1 ms

# On text in lower case: ten times as fast as re.IGNORECASE.
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
    """Return the features of a run, which do not depend on its outcome."""
    steps = trace.steps
    tools = [step.tool.name for step in steps if step.type == "tool_call" and step.tool]
    calls = {
        (step.tool.name, json.dumps(step.input, sort_keys=True, default=str))
        for step in steps
        if step.type == "tool_call" and step.tool
    }
    failed = [step.type == "error_recovery" for step in steps]
    thoughts = [step.content or "" for step in steps if step.type == "thought"]
    last = thoughts[-1][-_MAX_READ:].lower() if thoughts else ""
    text = "\n".join(thoughts)[-_MAX_READ:].lower()
    words = len(text.split())
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
        100 * len(_NEGATIVE.findall(text)) / max(1, words),
        len(set(tools)),
        len(thoughts) / len(steps),
    )
    return np.log1p(np.array(counts, dtype=np.float32))


Vector: TypeAlias = NDArray[np.float32]
"""float32, shape ``(d,)`` or ``(runs, d)``: unit vectors, or zeros without an embedding."""

_Reals: TypeAlias = NDArray[np.floating[Any]]

_BIAS: Final = 0.3
_ON_FEATURES: Final = 2.0
_ON_VECTORS: Final = 4.0
_MIN_GAIN: Final = -3.0  # the base rate predicted known outcomes 20 times better


class Estimate(NamedTuple):
    """The probability that a run succeeded, from 0 to 1.

    Attributes:
        raw: The process's estimate, even if it is not trusted and ``p`` is the base rate.
        reasons: The two main ones: a feature of `FEATURES` or ``likeness``, its deviation from the
            mean in standard deviations (0 for likeness), and its share of the log-odds.
    """

    p: float
    raw: float
    base: float
    reasons: tuple[tuple[str, float, float], ...]


def is_trusted(predictions: Iterable[tuple[float, float, bool]]) -> bool:
    """Return False if the base rates predicted the outcomes far better than the estimates.

    A prediction is an estimate, its base rate, and the outcome.
    """
    ratios = (p / base if success else (1 - p) / (1 - base) for p, base, success in predictions)
    return sum(map(math.log, ratios)) >= _MIN_GAIN


class GaussianProcess:
    """A Gaussian process fitted to runs with a known outcome, in 5 ms for 200 on one core.

    ``seen``, shape ``(runs, 12)``, standardizes the features, shape ``(known, 12)``; a missing
    embedding, or one of another width than the largest, is zeros. Untrusted, it returns the base
    rate.
    """

    def __init__(
        self,
        seen: Features,
        features: Features,
        vectors: Sequence[Vector],
        success: NDArray[np.bool_],
        *,
        is_trusted: bool = True,
    ) -> None:
        self.current_until = len(seen) * 1.05  # runs; then it should be fitted again
        usual = len(seen) >= 6  # with fewer runs a feature has no usual value
        self._mean = seen.mean(axis=0) if usual else np.zeros(len(FEATURES), np.float32)
        deviation = seen.std(axis=0) if usual else np.full(len(FEATURES), np.inf)
        self._deviation = np.where(deviation > 1e-3, deviation, np.inf)
        self._is_trusted = is_trusted
        self._z = self._standardized(features)
        self._width = max(map(len, vectors))
        self._vectors = np.array([*map(self._padded, vectors)])
        self._base = float(success.sum() + 1) / (len(success) + 2)
        self._offset = math.log(self._base / (1 - self._base))
        self._kernel_of_known = self._kernel(self._z, self._vectors)
        self._weights, self._root = _solve(
            self._kernel_of_known, success.astype(float), self._offset
        )
        self._slopes = _ON_FEATURES / len(FEATURES) * self._weights @ self._z

    def estimate(self, features: Features, embedding: Vector | None) -> Estimate:
        """Estimate one run: features of shape ``(12,)``, and its embedding."""
        z, vector = self._standardized(features), self._padded(embedding)
        kernel = self._kernel(z[None], vector[None])[0]
        prior = _BIAS + _ON_FEATURES / len(FEATURES) * z @ z + _ON_VECTORS * (vector @ vector)
        scaled = self._root * kernel
        known = _linear_solve(scaled, self._kernel_of_known, self._root, np.zeros(len(scaled)))
        variance = max(0.0, prior - scaled @ known)
        logit = self._offset + kernel @ self._weights
        raw = float(_sigmoid(logit / math.sqrt(1 + math.pi * variance / 8)))
        p = raw if self._is_trusted else self._base
        return Estimate(p, raw, self._base, self._reasons(z, vector))

    def _reasons(self, z: _Reals, vector: _Reals) -> tuple[tuple[str, float, float], ...]:
        similarity = float(_ON_VECTORS * self._similarity(vector[None])[0] @ self._weights)
        effects = [
            *zip(FEATURES, z.tolist(), (z * self._slopes).tolist(), strict=True),
            ("likeness", 0.0, similarity),
        ]
        main = sorted(effects, key=lambda effect: -abs(effect[2]))[:2]
        return tuple((name, round(off, 3), round(adds, 3)) for name, off, adds in main if adds)

    def _padded(self, vector: Vector | None) -> _Reals:
        is_usable = vector is not None and len(vector) == self._width
        return np.asarray(vector, np.float64) if is_usable else np.zeros(self._width)

    def _standardized(self, features: Features) -> _Reals:
        return np.clip((features - self._mean) / self._deviation, -3.0, 3.0)

    def _kernel(self, z: _Reals, vectors: _Reals) -> _Reals:
        linear = _ON_FEATURES / len(FEATURES) * _product(z, self._z.T)
        return _BIAS + linear + _ON_VECTORS * self._similarity(vectors)

    def _similarity(self, vectors: _Reals) -> _Reals:
        return np.maximum(0.0, _product(vectors, self._vectors.T)) ** 4


def _solve(kernel: _Reals, success: _Reals, offset: float) -> tuple[_Reals, _Reals]:
    """Return the weights of the known runs and the roots of their curvatures, by Newton."""
    latent: _Reals = np.zeros(len(success))
    weights = solved = latent
    for _ in range(25):
        p = _sigmoid(latent + offset)
        curvature = p * (1 - p) + 1e-6
        root, target = np.sqrt(curvature), curvature * latent + (success - p)
        solved = _linear_solve(root * _times(kernel, target), kernel, root, solved)
        weights = target - root * solved
        previous, latent = latent, _times(kernel, weights)
        if np.abs(latent - previous).max() < 1e-5:
            break
    return weights, root


def _linear_solve(target: _Reals, kernel: _Reals, root: _Reals, start: _Reals) -> _Reals:
    """Solve ``(1 + root · kernel · root) x = target`` by conjugate gradients from ``start``."""
    solved = start
    residual = direction = target - start - root * _times(kernel, root * start)
    norm = residual @ residual
    for _ in range(len(target)):
        if norm <= 1e-12 * len(target):
            break
        image = direction + root * _times(kernel, root * direction)
        step = norm / (direction @ image)
        solved, residual = solved + step * direction, residual - step * image
        norm, previous = residual @ residual, norm
        direction = residual + norm / previous * direction
    return solved


def _product(one: _Reals, other: _Reals) -> _Reals:
    """Multiply in parts too small for BLAS to use threads, which would only add waits."""
    if len(one) == 1:
        return _times(other.T, one[0])[None]
    parts = math.ceil(one.size * other.shape[1] / 2**18)  # multiplications
    return np.concatenate([part @ other for part in np.array_split(one, max(1, parts))])


def _times(matrix: _Reals, vector: _Reals) -> _Reals:
    product: _Reals = np.einsum("ij,j->i", matrix, vector)  # without BLAS
    return product


def _sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(z, -30, 30)))
