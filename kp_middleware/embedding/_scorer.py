"""The scorer of traces, which compares each with those seen before."""

import asyncio
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kp_middleware.core.evaluation import Run, score_run
from kp_middleware.core.formula import (
    DEFAULT_PROFILE,
    PROFILES,
    Nearest,
    Score,
    Shape,
    Weights,
)
from kp_middleware.embedding._index import VectorCache
from kp_middleware.embedding._model import DEFAULT_EMBEDDER, embed_many
from kp_middleware.embedding._text import Embedder, Vector, embedded_text
from kp_middleware.errors import EmbedderError, EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")


class Scorer:
    """A thread-safe scorer that compares each trace with those scored before it.

    Args:
        embedder: Measures novelty; None means novelty is 0.5.
        cache: The vectors seen before; None means a new cache in memory.
        profiles: Weights by domain, which add to the protocol's own or replace them; ``"default"``
            is the profile of every domain without its own.

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
        own = {
            name: given if isinstance(given, Weights) else Weights(**given)
            for name, given in (profiles or {}).items()
        }
        self._profiles = {**PROFILES, **own}
        self._look_up_then_add = threading.Lock()
        self._warned = False

    def score(
        self, trace: ReasoningTrace, *, vector: Vector | None = None, shape: Shape | None = None
    ) -> Score:
        """Score one trace, then remember it.

        Args:
            trace: The document.
            vector: Its embedding, if the caller has it already.
            shape: The true counts of its steps, if the document holds only some of them.
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
        """Compare one trace with those before it, then remember it, without embedding it.

        Args:
            trace: The document.
            vector: Its embedding, or None.
            shape: The true counts of its steps.
            known: An earlier trace that the cache no longer holds.
        """
        nearest = None if vector is None else self._look_up(trace.id, vector)
        candidates = [near for near in (nearest, known) if near is not None]
        nearest = max(candidates, key=lambda near: near.similarity, default=None)
        embedder = None if vector is None or self._embedder is None else self._embedder.name
        return Run(shape, trace.outcome.confidence, trace.metadata.success, nearest, embedder)

    def embed(self, trace: ReasoningTrace) -> Vector | None:
        """Return the embedding of a trace, or None without a model, which is warned about once.

        Raises:
            EmbedderNotReadyError: If the model is being downloaded; try again later.
            ValueError: If the embedder has no name, or returns a vector that cannot be compared.
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

    def embed_many(self, traces: Iterable[ReasoningTrace]) -> Iterator[Vector | None]:
        """Yield the embedding of each trace, some at a time; raises and returns as `embed`."""
        embedder = self._embedder
        try:
            if embedder is None or not embedder.name:
                raise EmbedderUnavailableError("there is no embedding model")
        except EmbedderUnavailableError as error:
            if embedder is not None:
                self._warn_once(error)
            yield from (None for _ in traces)
            return
        texts = (embedded_text(trace, embedder) for trace in traces)
        yield from map(self._cache.unit, embed_many(texts, embedder))

    def load(self) -> None:
        """Load the stored vectors from the file, ahead of a look-up that holds a lock."""
        if self._embedder is not None:
            self._cache.load(embedder=self._embedder.name)

    def weights(self, domain: str) -> Weights:
        """Return the weights of the signals in a domain."""
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


_scorer: Final = Scorer(embedder=DEFAULT_EMBEDDER)  # nothing is loaded or allocated yet


def evaluate_value(trace: ReasoningTrace) -> float:
    """Return how much a trace is worth sharing, 0 to 1, given those evaluated before it here.

    The first call loads the embedding model; without one, novelty is 0.5.
    """
    return _scorer.score(trace).value


async def aevaluate_value(trace: ReasoningTrace) -> float:
    """Return `evaluate_value` of a trace, run in a thread so as not to block the event loop."""
    return await asyncio.to_thread(evaluate_value, trace)
