"""Say how much a trace is worth sharing, against what was seen before."""

import logging
import threading
from collections.abc import Mapping

from kp_middleware.core.evaluation import Run, score_run
from kp_middleware.core.formula import (
    DEFAULT_PROFILE,
    PROFILES,
    Nearest,
    Score,
    Shape,
    Weights,
)
from kp_middleware.embedding._embedder import Embedder, Vector
from kp_middleware.embedding._text import embedded_text
from kp_middleware.embedding._vector_cache import VectorCache
from kp_middleware.errors import EmbedderError, EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")


class Scorer:
    """Scores traces one after another, each against those before it. Safe in several threads.

    Args:
        embedder: Measures novelty; None means novelty is 0.5.
        cache: What was seen before; None means a new one in memory.
        profiles: Weights by domain, beside the protocol's own or in their place; ``"default"``
            names those of every domain without its own.

    Raises:
        ValueError: If a profile's weights do not sum to 1.

    >>> from kp_middleware.traces import Step
    >>> steps = [Step(step_id=0, type="thought", content="Paris")]
    >>> trace = ReasoningTrace.of("What is the capital of France?", steps)
    >>> score = Scorer().score(trace)
    >>> score.value, score.rules
    (0.1, ('single_thought',))
    """

    def __init__(
        self,
        *,
        embedder: Embedder | None = None,
        cache: VectorCache | None = None,
        profiles: Mapping[str, Weights | Mapping[str, float]] | None = None,
    ) -> None:
        self._embedder = embedder
        self._cache = VectorCache() if cache is None else cache
        own = {name: _weights(given) for name, given in (profiles or {}).items()}
        self._profiles = {**PROFILES, **own}
        self._look_up_then_add = threading.Lock()
        self._warned = False

    def score(
        self, trace: ReasoningTrace, *, vector: Vector | None = None, shape: Shape | None = None
    ) -> Score:
        """Score one trace, then remember it.

        Args:
            trace: The document.
            vector: Its embedding, where the caller has it already.
            shape: The true counts of its steps, where the document holds only a part of them.
        """
        if vector is None:
            vector = self._embed_if_ready(trace)
        run = self.compare(trace, vector, shape or trace.shape)
        return score_run(run, self.weights(trace.metadata.task_domain))

    def compare(
        self,
        trace: ReasoningTrace,
        vector: Vector | None,
        shape: Shape,
        *,
        known: Nearest | None = None,
    ) -> Run:
        """Compare one trace with those before it, then remember it; nothing is embedded.

        Args:
            trace: The document.
            vector: Its embedding; None means that there is none.
            shape: The true counts of its steps.
            known: A trace before it that the cache does not hold any more.
        """
        nearest = None if vector is None else self._look_up(trace.id, vector)
        candidates = [near for near in (nearest, known) if near is not None]
        nearest = max(candidates, key=lambda near: near.similarity, default=None)
        embedder = None if vector is None or self._embedder is None else self._embedder.name
        return Run(shape, trace.outcome.confidence, trace.metadata.success, nearest, embedder)

    def embed(self, trace: ReasoningTrace) -> Vector | None:
        """The embedding of a trace, or None where there is no model: one warning says why.

        Raises:
            EmbedderNotReadyError: If the model is on its way: ask again later.
            ValueError: If the embedder has no name, or gives a vector that cannot be compared.
        """
        if self._embedder is None:
            return None
        try:
            if not self._embedder.name:
                raise ValueError("an embedder needs a name, which tells its vectors from others")
            return self._cache.unit(self._embedder.embed(embedded_text(trace, self._embedder)))
        except EmbedderUnavailableError as error:
            self._warn_once(error)
            return None

    def load(self) -> None:
        """Read from the file what traces are compared with, before a look-up that holds a lock."""
        if self._embedder is not None:
            self._cache.load(embedder=self._embedder.name)

    def weights(self, domain: str) -> Weights:
        """What each signal counts in a domain."""
        return self._profiles.get(domain, self._profiles[DEFAULT_PROFILE])

    def _embed_if_ready(self, trace: ReasoningTrace) -> Vector | None:
        try:
            return self.embed(trace)
        except EmbedderNotReadyError as error:
            self._warn_once(error)
            return None

    def _look_up(self, trace_id: str, vector: Vector) -> Nearest | None:
        name = "" if self._embedder is None else self._embedder.name
        with self._look_up_then_add:
            found = self._cache.nearest(vector, embedder=name)
            self._cache.add(vector, trace_id, embedder=name)
        return None if found is None else Nearest(found.key or "", found.similarity)

    def _warn_once(self, error: EmbedderError) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("novelty is 0.5: %s", error)


def _weights(given: Weights | Mapping[str, float]) -> Weights:
    return given if isinstance(given, Weights) else Weights(**given)
