"""The score as one function, with its state in the process."""

import asyncio
from typing import Final

from kp_middleware.embedding._minilm import DEFAULT_EMBEDDER
from kp_middleware.embedding._scorer import Scorer
from kp_middleware.traces import ReasoningTrace

_scorer: Final = Scorer(embedder=DEFAULT_EMBEDDER)  # nothing is loaded or allocated yet


def evaluate_value(trace: ReasoningTrace) -> float:
    """Return how much a trace is worth sharing, 0 to 1, given those evaluated before it here.

    The first call loads the embedding model; without one, novelty is 0.5.
    """
    return _scorer.score(trace).value


async def aevaluate_value(trace: ReasoningTrace) -> float:
    """Return `evaluate_value` of a trace, run in a thread so as not to block the event loop."""
    return await asyncio.to_thread(evaluate_value, trace)
