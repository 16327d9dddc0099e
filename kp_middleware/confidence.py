"""Confidence extractors: read an agent's confidence from its result.

An extractor is any function from a run's result to a number from 0 to 1, or to None if the result
has no confidence. ``docs/confidence.md`` says when to use which.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

from kp_middleware.outcomes import OfRun

__all__ = ["Confidence", "Confidences", "Field", "log_probabilities", "unit"]

Confidence: TypeAlias = Callable[[Any], float | None]
"""A function from a run's result to the agent's confidence, 0 to 1, or None."""

Confidences: TypeAlias = Confidence | OfRun | Sequence[Confidence | OfRun] | None
"""One extractor, or several, of which the first value counts; None means no extractor."""


@dataclass(frozen=True, slots=True)
class Field:
    """Reads a number from a field of the result, or of an agent's structured response.

    An absent field or None means unknown. For words instead of numbers, use a function.

    Args:
        name: The name of a key or an attribute; nested as in ``review.certainty``.
        of: The value for full confidence: 1, or 100 for percent.

    Raises:
        ValueError: If ``of`` is not a positive number; when it is called, if the field holds
            anything but a number from 0 to that.

    >>> Field("certainty", of=100)({"answer": "yes", "certainty": 85})
    0.85
    """

    name: str
    of: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.of < math.inf:
            raise ValueError(f"of (full confidence) must be above 0, got {self.of!r}")

    def __call__(self, result: object) -> float | None:
        """Return the confidence, 0 to 1, or None if there is no such field."""
        value = result
        for name in self.name.split("."):
            value = _part(value, name)
        return None if value is None else unit(value, of=self.of)


def log_probabilities(answer: object) -> float | None:
    """Return the geometric mean of the probabilities of an answer's tokens.

    That is ``exp(mean(log-probabilities))``, also known as length-normalized sequence probability
    (Malinin and Gales 2021, arXiv:2002.07650), and 1 divided by the perplexity. It compares answers
    of one model to like questions, whatever their length. It is not the probability that an answer
    is right: models are confident in fluent text, even more so after training with human feedback.

    Args:
        answer: A response of an OpenAI client; or metadata with ``logprobs`` as of chat models,
            completion models or Ollama, or Gemini's ``avg_logprobs``. For a LangChain message,
            its ``response_metadata``.

    Returns:
        From 0 to 1; None if the response has no log-probabilities.

    >>> tokens = [{"token": "Yes", "logprob": -0.05}, {"token": ".", "logprob": -0.15}]
    >>> log_probabilities({"logprobs": {"content": tokens}})
    0.904837
    """
    choices = _part(answer, "choices")
    choice = choices[0] if choices else answer
    mean = _part(choice, "avg_logprobs")
    if mean is None:
        logs = _logs(_part(choice, "logprobs"))
        if not logs:
            return None
        mean = sum(logs) / len(logs)
    return round(math.exp(mean), 6)  # float32 may have a log a little above 0


def unit(value: object, *, of: float = 1.0) -> float:
    """Return a value as a fraction of the whole, from 0 to 1.

    Raises:
        ValueError: If it is not a number from 0 to the whole.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        share = float(value) / of
        if 0 <= share <= 1:
            return share
    raise ValueError(f"confidence must be a number (0 to {of:g}), got {value!r:.50}")


def _logs(logprobs: object) -> Sequence[float]:
    """Return the log-probabilities of the chosen tokens, from any provider's format."""
    logs = _part(logprobs, "token_logprobs")
    if logs is not None:
        return [log for log in logs if log is not None]  # an echoed first token has none
    tokens = logprobs if isinstance(logprobs, list) else _part(logprobs, "content")
    return [
        token["logprob"] if isinstance(token, dict) else token.logprob for token in tokens or ()
    ]


def _part(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
